"""A store that serves forged requests is found out, and its new objects are removed."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cluster import store_proof


class Store(HTTPServer):
    """A server that answers every PUT the same."""

    def __init__(self, answers: list[int]) -> None:
        self.answers, self.seen = answers, []
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    """Answers with the statuses of its server, in turn."""

    server: Store

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(self)
        self.send_response(self.server.answers[len(self.server.seen) - 1])
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tells nobody."""


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Store]:
    with Store(request.param) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("served", [[403, 400]], indirect=True)
def test_a_store_that_refuses_them_is_safe(served: Store) -> None:  # F41
    store_proof.prove(f"127.0.0.1:{served.server_port}", "ray", "key", pytest.fail)
    assert len(served.seen) == 2
    assert "Authorization" not in served.seen[0].headers
    assert "X-Amz-Credential=key%2F" in served.seen[0].path
    for request in served.seen:
        assert request.headers["X-Amz-Content-Sha256"] == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"


@pytest.mark.parametrize(
    ("served", "named"),
    [
        ([200, 403], "CVE-2026-40344"),
        ([403, 200], "CVE-2026-41145"),
        ([200, 200], "CVE-2026-40344 and CVE-2026-41145"),
    ],
    indirect=["served"],
)
def test_a_store_that_serves_one_is_named(served: Store, named: str) -> None:  # F41
    removed: list[str] = []
    endpoint = f"127.0.0.1:{served.server_port}"
    with pytest.raises(store_proof.UnsafeStoreError) as raised:
        store_proof.prove(endpoint, "ray", "key", lambda _, name: removed.append(name))
    assert f"forged signature: {named}. Anyone" in str(raised.value)
    assert "setting images" in str(raised.value)
    assert "key" not in str(raised.value).replace("keys", "")
    written = [s for s, status in zip(served.seen, served.answers, strict=True) if status == 200]
    assert len(removed) == len(written)
    for request, name in zip(written, removed, strict=True):
        assert request.path.startswith(f"/ray/{name}")
