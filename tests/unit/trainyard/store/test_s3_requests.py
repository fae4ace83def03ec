"""Requests to a bucket that are sent again."""

import io
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from botocore.credentials import Credentials
from urllib3 import HTTPResponse

from trainyard.store import s3_requests
from trainyard.store.objects import MOST_BYTES, BucketStore, Keys, StorageError
from trainyard.store.s3_requests import PASSING_CODE, PASSING_TRIES, Requests

LARGE = bytes(range(256)) * 2**15  # 8 MiB
REFUSED = f"<Error><Code>{PASSING_CODE}</Code><Message>m</Message></Error>".encode()


@pytest.mark.parametrize(("refusals", "status"), [(2, 200), (PASSING_TRIES, 409)])
def test_a_put_whose_folder_is_being_emptied_is_sent_again(monkeypatch, refusals, status):
    monkeypatch.setattr(s3_requests, "PASSING_PAUSE_S", 0)
    answers = [
        HTTPResponse(io.BytesIO(REFUSED), status=409, preload_content=False)
        for _ in range(refusals)
    ]
    answers.append(HTTPResponse(io.BytesIO(), status=200, preload_content=False))
    bodies: list[bytes] = []

    def request(*_: Any, body: bytes, **__: Any) -> Any:
        bodies.append(body)
        return answers.pop(0)

    requests = Requests("http://127.0.0.1:9", "ray", Credentials("key", "secret"))
    monkeypatch.setattr(requests._pool, "request", request)
    assert requests.send("PUT", "a/b", b"content", timeout=1, most=2**20).status == status
    assert set(bodies) == {b"content"}
    assert len(bodies) == min(refusals + 1, PASSING_TRIES)


def test_an_object_is_read_no_further_than_its_bound():  # F69
    sent = 0

    def give(server: socket.socket) -> None:
        nonlocal sent
        link, _ = server.accept()
        with link, suppress(ConnectionError):
            link.recv(4096)
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % 2**30)
            while sent < 2**30:
                sent += link.send(bytes(2**18))

    with socket.create_server(("127.0.0.1", 0)) as server:
        store = threading.Thread(target=give, args=(server,), daemon=True)
        store.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        bucket = BucketStore("ray", endpoint=address, keys=Keys("key", "secret"))
        with pytest.raises(StorageError, match=r"ray/a/b has more than 16 MiB, which are not read"):
            bucket.get("a/b")
        store.join()
    assert sent < 4 * MOST_BYTES


def test_a_large_object_may_be_taken_slowly(monkeypatch):  # F22
    """Longer than a connection may take to be made, as 256 MiB of a sweep's point do."""
    monkeypatch.setattr(s3_requests, "CONNECT_TIMEOUT_S", 0.3)
    taken = []

    def take(server: socket.socket) -> None:
        link, _ = server.accept()
        with link:
            head = link.recv(4096, socket.MSG_PEEK).partition(b"\r\n\r\n")[0]
            assert b"content-length: %d" % len(LARGE) in head.lower()
            left = len(head) + 4 + len(LARGE)
            while left > 0:
                piece = link.recv(2**18)
                left -= len(piece)
                taken.append(piece)
                time.sleep(0.02)  # 0.6 s of them
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        store = threading.Thread(target=take, args=(server,))
        store.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        requests = Requests(address, "ray", Credentials("key", "secret"))
        assert requests.send("PUT", "a/b", LARGE, timeout=30, most=2**20).good
        store.join()
    assert b"".join(taken).endswith(LARGE)
