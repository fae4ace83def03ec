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

    def __init__(self, *answers: dict[bytes, SimpleNamespace] | Exception) -> None:
        self.answers = list(answers)
        self.drained: list[str] = []

    def get_all_node_info(self, *, timeout: float) -> dict[bytes, SimpleNamespace]:
        assert timeout
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def drain_node(self, node: str, *_: Any) -> None:
        self.drained.append(node)


def test_a_drain_goes_on_while_the_head_is_too_busy_to_answer():
    others = {b"2": _node(is_head_node=True), b"3": _node(node_manager_address="192.0.2.8")}
    others[b"4"] = _node()  # supervisord has started it again
    client = Client({b"1": _node()}, TimeoutError(), {b"1": _node()}, others)
    begun = time.monotonic()
    ray_leave.drain(client, HERE, 20)
    assert time.monotonic() - begun < 20
    assert client.drained == [b"1".hex()]
    assert client.answers == [others]  # not before the node had ended
    everywhere = Client(others, {})
    ray_leave.drain(everywhere, ray_leave.EVERY, 60)  # of a head
    assert everywhere.drained == [b"3".hex(), b"4".hex()]


def test_a_drain_ends_with_its_time():
    begun = time.monotonic()
    ray_leave.drain(Client({b"1": _node()}), HERE, 0.3)
    assert 0.3 <= time.monotonic() - begun < 10


def test_a_head_that_is_gone_has_no_users(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        gone = f"127.0.0.1:{server.getsockname()[1]}"
    ray_leave.main([gone, "", "users"])
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize("command", [["users"], ["drain", "60"]])
def test_a_head_with_another_token_has_none_of_this_nodes_users(  # F43
    monkeypatch, capsys, command
):
    monkeypatch.setattr(
        ray._raylet,
        "GcsClient",
        Mock(side_effect=ray.exceptions.AuthenticationError("InvalidAuthToken")),
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        ray_leave.main([f"127.0.0.1:{server.getsockname()[1]}", "", *command])
    assert capsys.readouterr().out == "[]\n"


def test_a_head_that_has_just_been_started_is_asked_again(monkeypatch, capsys):
    answers = iter([RuntimeError("Timed out while waiting for GCS"), ["job (run)"]])

    def users(_: Any) -> list[str]:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    monkeypatch.setattr(ray_leave, "users", users)
    monkeypatch.setattr(ray._raylet, "GcsClient", lambda address: address)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ray_leave.main([f"127.0.0.1:{server.getsockname()[1]}", "", "users"])
    assert capsys.readouterr().out == '["job (run)"]\n'


def test_a_head_that_does_not_say_who_uses_it_may_have_users(monkeypatch, capsys):
    monkeypatch.setattr(ray_leave, "AGAIN_SECONDS", 0)
    monkeypatch.setattr(ray_leave, "users", Mock(side_effect=TimeoutError("no answer")))
    monkeypatch.setattr(ray._raylet, "GcsClient", lambda address: address)
    with socket.create_server(("127.0.0.1", 0)) as server:
        gcs = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(SystemExit, match="does not say who uses it: no answer"):
            ray_leave.main([gcs, "", "users"])
    assert capsys.readouterr().out == ""
