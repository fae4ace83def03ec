"""A store that serves forged requests is found out, and its new objects are removed."""

import copy
from collections.abc import Iterator

import pytest

from cluster import store_proof
from node.life import ServiceError
from tests import web


class Store:
    """Answers requests with its statuses, in turn."""

    def __init__(self, answers: list[int]) -> None:
        self.answers, self.endpoint = answers, ""
        self.seen: list[web.Request] = []

    def answer(self, asked: web.Request) -> web.Said:
        self.seen.append(copy.copy(asked))  # a connection has one object
        return self.answers[len(self.seen) - 1], b""


@pytest.fixture
def served(request) -> Iterator[Store]:
    made = Store(request.param)
    with web.serving(made.answer) as server:
        made.endpoint = server.url.removeprefix("http://")
        yield made


@pytest.mark.parametrize("served", [[403, 400]], indirect=True)
def test_a_store_that_refuses_them_is_safe(served):  # F41
    store_proof.prove(served.endpoint, "ray", "key", pytest.fail)
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
def test_a_store_that_serves_one_is_named(served, named):  # F41
    removed: list[str] = []
    with pytest.raises(ServiceError) as raised:
        store_proof.prove(served.endpoint, "ray", "key", lambda _, name: removed.append(name))
    assert f"forged signature: {named}. Anyone" in str(raised.value)
    assert "setting images" in str(raised.value)
    assert "key" not in str(raised.value).replace("keys", "")
    written = [s for s, status in zip(served.seen, served.answers, strict=True) if status == 200]
    assert len(removed) == len(written)
    for request, name in zip(written, removed, strict=True):
        assert request.path.startswith(f"/ray/{name}")
