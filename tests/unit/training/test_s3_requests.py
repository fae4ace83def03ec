"""Requests to a bucket that are sent again."""

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.credentials import Credentials

from training import s3_requests
from training.objects import PASSING_CODE
from training.s3_requests import PASSING_TRIES, Requests

REFUSED = f"<Error><Code>{PASSING_CODE}</Code><Message>m</Message></Error>".encode()


@pytest.mark.parametrize(("refusals", "status"), [(2, 200), (PASSING_TRIES, 409)])
def test_a_put_whose_folder_is_being_emptied_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, refusals: int, status: int
) -> None:
    monkeypatch.setattr(s3_requests, "PASSING_PAUSE_S", 0)
    answers = [SimpleNamespace(status=409, data=REFUSED)] * refusals
    answers.append(SimpleNamespace(status=200, data=b""))
    bodies: list[bytes] = []

    def request(*_: Any, body: bytes, **__: Any) -> Any:
        bodies.append(body)
        return answers.pop(0)

    requests = Requests("http://127.0.0.1:9", "ray", Credentials("key", "secret"))
    monkeypatch.setattr(requests._pool, "request", request)
    assert requests.send("PUT", "a/b", b"content", timeout=1).status == status
    assert set(bodies) == {b"content"}
    assert len(bodies) == min(refusals + 1, PASSING_TRIES)
