"""The store from the client's side: a folder, and what a bucket's faults become."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from training.client import preflight, store
from training.client.errors import ClientError
from training.client.outputs import StackOutputs


def bucket(stack: StackOutputs, endpoint: str) -> StackOutputs:
    return dataclasses.replace(
        stack,
        storage_url="s3://ray",
        object_store_endpoint=endpoint,
        bucket="ray",
        access_key="training",
    )


def test_a_folder_is_written_read_and_left_as_it_was(stack: StackOutputs) -> None:
    place = store.open_store(stack)
    store.check(place)
    folder = Path(stack.storage_url.removeprefix("file://"))
    assert list(folder.iterdir()) == []
    place.put("run/a/b.json", b"1")
    assert place.get("run/a/b.json") == b"1"
    assert place.get("run/a/c.json") is None
    assert place.folders() == ["run"]
    assert place.folders("run") == ["a"]
    assert place.folders("nothing") == []


def test_a_folder_that_is_no_folder(stack: StackOutputs, tmp_path: Path) -> None:  # F24
    (tmp_path / "file").touch()
    other = dataclasses.replace(stack, storage_url=(tmp_path / "file" / "x").as_uri())
    with pytest.raises(ClientError, match=r"cannot write .*Not a directory.*must be a folder"):
        preflight.check_bucket(other)


def test_an_unknown_kind_of_storage(stack: StackOutputs) -> None:
    with pytest.raises(ClientError, match="only s3:// and file:// are known"):
        store.open_store(dataclasses.replace(stack, storage_url="gs://b"))


def test_nobody_listens(stack: StackOutputs) -> None:  # F24
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        started = time.monotonic()
        with pytest.raises(ClientError, match=rf"bucket 'ray' at {endpoint}.*nothing answers"):
            preflight.check_bucket(bucket(stack, endpoint))
        assert time.monotonic() - started < 5


def test_somebody_listens_and_says_nothing(  # F24
    stack: StackOutputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert preflight.BUCKET_DEADLINE_S < 5
    monkeypatch.setattr(preflight, "BUCKET_DEADLINE_S", 0.4)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(ClientError, match=r"no answer within 0\.4 s"):
            preflight.check_bucket(bucket(stack, f"http://127.0.0.1:{mute.getsockname()[1]}"))


@pytest.fixture
def answering() -> Iterator[ThreadingHTTPServer]:
    """A server that refuses each request with the S3 error code in its `code`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # answers `Expect: 100-continue`

        def refuse(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code = self.server.code  # type: ignore[attr-defined]
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET = do_DELETE = refuse  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("NoSuchBucket", "does not exist"),
        ("InvalidAccessKeyId", "does not know this access key"),
        ("SignatureDoesNotMatch", "secret key is wrong"),
        ("AccessDenied", "may not do that"),
        ("RequestTimeTooSkewed", "set the clock"),
        ("SomethingElse", "look at the object store's log"),
    ],
)
def test_each_refusal_says_what_to_do(  # F24
    code: str, remedy: str, stack: StackOutputs, answering: ThreadingHTTPServer
) -> None:
    answering.code = code  # type: ignore[attr-defined]
    endpoint = f"http://127.0.0.1:{answering.server_port}"
    with pytest.raises(ClientError, match=rf"cannot put .*\({code}\): .*{remedy}") as caught:
        preflight.check_bucket(bucket(stack, endpoint))
    assert "canary" not in str(caught.value)
