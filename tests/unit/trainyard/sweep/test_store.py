"""The store of a point's result: a bucket that is unavailable or refuses, and other places."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trainyard import objects
from trainyard.sweep import store

REFUSED = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"


class Bucket(BaseHTTPRequestHandler):
    """A bucket that first gives the listed answers, and then accepts everything."""

    due: list[int]
    kept: dict[str, bytes]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = self.due.pop(0) if self.due else 200
        if status == 200:
            assert "Credential=user/" in self.headers["Authorization"]
            assert "/eu-1/s3/" in self.headers["Authorization"]
            self.kept[self.path] = body
        said = b"" if status == 200 else REFUSED
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def bucket() -> type[Bucket]:
    return type("Fresh", (Bucket,), {"due": [], "kept": {}})


@pytest.fixture
def environment(bucket: type[Bucket], tmp_path: Path) -> Iterator[dict[str, str]]:
    keys = tmp_path / "credentials"
    keys.write_text("[default]\naws_access_key_id = user\naws_secret_access_key = canary\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), bucket)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_SHARED_CREDENTIALS_FILE": str(keys),
        "AWS_REGION": "eu-1",
    }
    server.shutdown()
    server.server_close()


def test_a_busy_store_is_asked_until_it_takes_the_result(  # F22
    bucket: type[Bucket], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "FIRST_PAUSE_S", 0.01)
    bucket.due = [503, 503, 500]
    store.open_url("s3://ray/prefix", environment).write("a b/1.json", b"{}")
    assert bucket.kept == {"/ray/prefix/a%20b/1.json": b"{}"}


def test_a_refusal_is_told_at_once(bucket: type[Bucket], environment: dict[str, str]) -> None:
    bucket.due = [403]
    with pytest.raises(
        objects.StorageError, match=r"s3://ray/1: AccessDenied no; .*repair the store"
    ):
        store.open_url("s3://ray", environment).write("1", b"")


def test_a_store_that_stays_away_ends_the_patience(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "0")
    gone = environment | {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    with pytest.raises(objects.StorageError, match="did not do it within 0 s"):
        store.open_url("s3://ray", gone).write("1", b"")


def test_a_folder_needs_no_keys(tmp_path: Path) -> None:
    store.open_url(tmp_path.as_uri(), {}).write("a/1", b"x")
    assert (tmp_path / "a" / "1").read_bytes() == b"x"


def test_what_names_no_keys_is_left_to_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "open_url", lambda url: url)
    assert store.open_url("s3://ray", {}) == "s3://ray"  # a profile, or a machine's role
