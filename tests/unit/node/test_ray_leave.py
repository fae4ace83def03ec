"""The users of a cluster are known, or they are not: a busy head may have jobs."""

import socket
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import ray

from node import ray_leave

HERE = "192.0.2.7"


def _node(**changes: Any) -> SimpleNamespace:
    known = {"node_manager_address": HERE, "is_head_node": False, "state": 0, "ALIVE": 0}
    return SimpleNamespace(**known | changes)


class Client:
    """A GCS that answers with each of these in turn, the last again and again."""

    def __init__(self, *answers: dict[bytes, SimpleNamespace] | Exception, at: str = "") -> None:
        self.answers, self.address = list(answers), at
        self.drained: list[str] = []

    def get_all_node_info(self, *, timeout: float) -> dict[bytes, SimpleNamespace]:
        assert timeout
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def drain_node(self, node: str, *_: Any) -> None:
        self.drained.append(node)


@pytest.fixture
def listening():
    """The address of a head that listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def gone():
    """The address of a head that has ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_drain_goes_on_while_the_head_is_too_busy_to_answer(listening):
    others = {b"2": _node(is_head_node=True), b"3": _node(node_manager_address="192.0.2.8")}
    others[b"4"] = _node()  # supervisord has started it again
    client = Client({b"1": _node()}, TimeoutError(), {b"1": _node()}, others, at=listening)
    begun = time.monotonic()
    ray_leave.drain(client, HERE, 20)
    assert time.monotonic() - begun < 20
    assert client.drained == [b"1".hex()]
    assert client.answers == [others]  # not before the node had ended
    everywhere = Client(others, {})
    ray_leave.drain(everywhere, ray_leave.EVERY, 60)  # of a head
    assert everywhere.drained == [b"3".hex(), b"4".hex()]


def test_a_drain_ends_with_its_time_or_the_head(gone):
    begun = time.monotonic()
    ray_leave.drain(Client({b"1": _node()}), HERE, 0.3)
    assert 0.3 <= time.monotonic() - begun < 10
    # As a stack on Kubernetes ends: all pods at once.
    ray_leave.drain(Client({b"1": _node()}, TimeoutError(), at=gone), HERE, 600)
    assert time.monotonic() - begun < 60


def test_a_head_that_is_gone_has_no_users(gone, capsys):
    ray_leave.main([gone, "", "users"])
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize("command", [["users"], ["drain", "60"]])
def test_a_head_with_another_token_has_none_of_this_nodes_users(  # F43
    monkeypatch, capsys, command, listening
):
    monkeypatch.setattr(
        ray._raylet,
        "GcsClient",
        Mock(side_effect=ray.exceptions.AuthenticationError("InvalidAuthToken")),
    )
    ray_leave.main([listening, "", *command])
    assert capsys.readouterr().out == "[]\n"


def test_a_head_that_has_just_been_started_is_asked_again(monkeypatch, capsys, listening):
    answers = iter([RuntimeError("Timed out while waiting for GCS"), ["job (run)"]])

    def users(_: Any) -> list[str]:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray_leave, "users", users)
    monkeypatch.setattr(ray._raylet, "GcsClient", lambda address: address)
    ray_leave.main([listening, "", "users"])
    assert capsys.readouterr().out == '["job (run)"]\n'


def test_a_head_that_does_not_say_who_uses_it_may_have_users(monkeypatch, capsys, listening):
    monkeypatch.setattr(ray_leave, "AGAIN_SECONDS", 0)
    monkeypatch.setattr(ray_leave, "users", Mock(side_effect=TimeoutError("no answer")))
    monkeypatch.setattr(ray._raylet, "GcsClient", lambda address: address)
    with pytest.raises(SystemExit, match="does not say who uses it: no answer"):
        ray_leave.main([listening, "", "users"])
    assert capsys.readouterr().out == ""
