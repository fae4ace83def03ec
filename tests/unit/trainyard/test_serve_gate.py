"""Requests that get through to a service, and those that do not."""

import asyncio
import base64
import hashlib
import pkgutil
import re
from typing import Any

import pytest

from trainyard.errors import JobError
from trainyard.serving import deploy, gate

TOKEN = "canary-token-0123456789"


@pytest.fixture(autouse=True)
def _token(tmp_path, monkeypatch) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv(gate.TOKEN_FILE_VARIABLE, str(tmp_path / "token"))


def ask(
    path: str,
    authorization: bytes | None = None,
    kind: str = "http",
    method: str = "GET",
    accept: bytes = b"*/*",
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
    headers.append((b"accept", accept))
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


def test_a_browser_gets_the_page_and_no_application_is_asked_without_a_token():  # A46
    browser = b"text/html,application/xhtml+xml,*/*;q=0.8"
    for path in ("/first", "/first/"):
        start, body = ask(path, accept=browser)
        assert (start["status"], dict(start["headers"])[b"x-frame-options"]) == (200, b"DENY")
        for element in ("script", "style"):  # the only ones that its policy lets run
            [content] = re.findall(f"<{element}>(.*)</{element}>", body["body"].decode(), re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert f"{element}-src 'sha256-{digest}'" in body["body"].decode()
        assert ask(path, f"Bearer {TOKEN}".encode(), accept=browser) == ["through"]
        assert ask(path, b"Bearer wrong", accept=browser)[0]["status"] == 403
        assert ask(path, method="POST", accept=browser)[0]["status"] == 401
        assert ask(path)[0]["status"] == 401
    for path in ("/", "/first/predict", "/-/routes", "/first//", "/First", "/first\n"):
        assert ask(path, accept=browser)[0]["status"] == 401


@pytest.mark.parametrize("path", ["/first/x", "/first/-/healthy", "/-/healthz"])
def test_a_web_socket_without_a_token_is_closed(path):
    assert ask(path, None, "websocket")[0]["type"] == "websocket.close"
    assert ask(path, b"Bearer wrong", "websocket")[0]["type"] == "websocket.close"
    assert ask(path, f"Bearer {TOKEN}".encode(), "websocket") == ["through"]


def test_ray_serve_starts_with_the_gate_or_is_refused(monkeypatch):  # A46
    assert [each.cls for each in gate.at_proxy()] == [gate.Gate]
    told: dict[str, Any] = {}
    monkeypatch.setattr("ray.serve.start", lambda **options: told.update(options))
    monkeypatch.setattr(deploy, "_status", lambda _: 401)
    deploy._start("127.0.0.1", 8000)
    named = told["controller_options"]["runtime_env"]["env_vars"][deploy.GATE_VARIABLE]
    assert pkgutil.resolve_name(named) is gate.at_proxy
    monkeypatch.setattr(deploy, "_status", lambda _: 200)
    with pytest.raises(JobError, match="answers without a token: another job started it"):
        deploy._start("127.0.0.1", 8000)


def test_without_a_token_nothing_is_served(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("\n")
    with pytest.raises(OSError, match="is empty"):
        ask("/")
    monkeypatch.setenv(gate.TOKEN_FILE_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        ask("/")
