"""Where key and address of the account come from."""

import pytest

from infra.places.lambda_cloud import account
from infra.places.lambda_cloud.account import open_account
from infra.places.lambda_cloud.errors import AccessError, LambdaError


@pytest.fixture(autouse=True)
def opened(monkeypatch):
    """No account in the environment; arguments of the clients that are made."""
    for name in (*account.KEY_VARIABLES, account.URL_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    made = []

    monkeypatch.setattr(account, "PacedClient", lambda *arguments, sleep: made.append(arguments))
    return made


def test_the_key_of_the_environment_goes_before_the_setting(monkeypatch, opened):  # A4
    open_account("of-the-setting")
    monkeypatch.setenv("LAMBDALABS_API_KEY", "of-the-second")
    open_account("of-the-setting")
    monkeypatch.setenv("LAMBDA_API_KEY", "of-the-first\n")
    open_account("of-the-setting")
    assert [key for key, _ in opened] == ["of-the-setting", "of-the-second", "of-the-first"]
    assert {url for _, url in opened} == {"https://cloud.lambda.ai"}


@pytest.mark.parametrize("key", [None, "", " \n"])
def test_without_a_key_the_error_names_all_places(monkeypatch, key, opened):  # F1
    monkeypatch.setenv("LAMBDA_API_KEY", " ")
    with pytest.raises(AccessError) as caught:
        open_account(key)
    for name in ("LAMBDA_API_KEY", "LAMBDALABS_API_KEY", "lambdaApiKey"):
        assert name in str(caught.value)
    assert opened == []


@pytest.mark.parametrize(
    "url",
    [
        "https://cloud.lambda.ai",
        "https://cloud.lambda.ai/",
        "https://example.com:8443",
        "http://127.0.0.1:8080",
        "http://127.5.5.5:80",
        "http://[::1]:8080",
        "http://localhost:8080",
    ],
)
def test_addresses_that_keep_the_key_private(monkeypatch, url, opened):
    monkeypatch.setenv("LAMBDA_API_URL", url)
    open_account("key")
    assert opened == [("key", url.removesuffix("/"))]


@pytest.mark.parametrize(
    "url",
    [
        "http://cloud.lambda.ai",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://127.0.0.1@example.com",
        "https://user:canary@cloud.lambda.ai",
        "https://cloud.lambda.ai:0",
        "https://cloud.lambda.ai#part",
        "https://cloud.lambda.ai/api/v1",
        "https://cloud.lambda.ai?x=1",
        "https://cloud.lambda.ai:none",
        "https://",
        "https://[",
        "cloud.lambda.ai",
        "file:///etc/passwd",
        "ftp://127.0.0.1",
    ],
)
def test_no_key_goes_to_other_addresses(monkeypatch, url, opened):
    monkeypatch.setenv("LAMBDA_API_URL", url)
    with pytest.raises(LambdaError, match="LAMBDA_API_URL") as caught:
        open_account("key")
    assert "canary" not in str(caught.value)
    assert opened == []
