"""Requests that get through to a service, and those that do not."""

import asyncio
from typing import Any

import pytest

from trainyard.serving import gate

TOKEN = "canary-token-0123456789"


@pytest.fixture(autouse=True)
def _token(tmp_path, monkeypatch) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv(gate.TOKEN_FILE_VARIABLE, str(tmp_path / "token"))


def ask(
    path: str, authorization: bytes | None = None, kind: str = "http", method: str = "GET"
) -> list[Any]:
    """Return the answer; "through" where the application would answer."""
    sent: list[Any] = []

    async def application(*_: Any) -> None:
        sent.append("through")

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    headers = [] if authorization is None else [(b"authorization", authorization)]
    scope = {"type": kind, "path": path, "headers": headers, "method": method}
    if kind == "websocket":
        del scope["method"]
    asyncio.run(gate.Gate(application)(scope, receive, send))
    return sent


@pytest.mark.parametrize(
    "path",
    [
        "/first/predict",
        "/-/routes",
        "/",
        "/first/-/healthy/x",
        # What only ends like a path of health; another application's routes may.
        "/first/secret/-/healthy",
        "/first/x/../-/healthy",
        "/first/-/healthy\n",
        "//-/healthy",
        "/-/healthy",
        "/First/-/healthy",
        "/first/-/healthz",
    ],
)
@pytest.mark.parametrize(
    ("given", "status"),
    [
        (None, 401),
        (b"", 401),
        (b"Bearer", 401),
        (b"Bearer  ", 401),
        (b"Basic " + TOKEN.encode(), 401),
        (b"Bearer wrong", 403),
        (b"Bearer \xff\xfe", 403),
        (f"Bearer {TOKEN[:-1]}".encode(), 403),
        (f"Bearer {TOKEN}x".encode(), 403),
    ],
)
def test_who_has_no_token_is_refused(path, given, status):
    start, body = ask(path, given)
    assert start["status"] == status
    assert TOKEN.encode() not in body["body"]
    names = [name for name, _ in start["headers"]]
    assert (b"www-authenticate" in names) == (status == 401)


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN} "])
def test_who_has_the_token_gets_through(given):
    assert ask("/first/predict", given.encode()) == ["through"]


@pytest.mark.parametrize("path", ["/-/healthz", "/first/-/healthy"])
def test_health_needs_no_token(path):
    assert ask(path) == ["through"]


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/-/healthz", "/first/-/healthy"])
def test_health_is_only_asked_for(path, method):
    [sent, *_] = ask(path, method=method)
    assert (sent == "through") == (method == "HEAD")
    assert sent == "through" or sent["status"] == 401


@pytest.mark.parametrize("path", ["/first/x", "/first/-/healthy", "/-/healthz"])
def test_a_web_socket_without_a_token_is_closed(path):
    assert ask(path, None, "websocket")[0]["type"] == "websocket.close"
    assert ask(path, b"Bearer wrong", "websocket")[0]["type"] == "websocket.close"
    assert ask(path, f"Bearer {TOKEN}".encode(), "websocket") == ["through"]


def test_without_a_token_nothing_is_served(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("\n")
    with pytest.raises(OSError, match="is empty"):
        ask("/")
    monkeypatch.setenv(gate.TOKEN_FILE_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        ask("/")
