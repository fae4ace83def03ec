"""One folder of logs for the nodes of a machine: what a worker does before it starts."""

import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from node import ray_logs, ray_start

SESSION = "session_2026-11-21_12-00-00_000000_1"


@pytest.fixture
def start(tmp_path, monkeypatch) -> Any:
    """What Ray calls, on a machine whose head has a session or does not answer."""
    watched = threading.Event()

    def call(session: str, *, head: bool = False) -> SimpleNamespace:
        logs = tmp_path / "head" / SESSION / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        for name, value in ray_logs.environment(str(tmp_path / "head")).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(ray_start, "session", lambda _: session)
        monkeypatch.setattr(ray_logs, "WAIT_SECONDS", 0.1)
        monkeypatch.setattr(ray_start, "_follow", lambda *_: watched.set())
        monkeypatch.setattr(ray_start, "_use_empty_environment", lambda _: None)
        monkeypatch.setattr(sys, "argv", ["ray", "start", "--address=127.0.0.2:6379"])
        parameters = SimpleNamespace(
            temp_dir=str(tmp_path / "worker"), include_log_monitor=None, autoscaling_config=None
        )
        ray_logs.share(parameters, head)
        assert watched.wait(10)  # as every node is
        return parameters

    return call


def test_a_worker_writes_where_the_heads_logs_are(start, tmp_path):
    for _ in range(2):  # a worker that ended is started again
        parameters = start(SESSION)
        logs = tmp_path / "worker" / SESSION / "logs"
        assert logs.resolve() == tmp_path / "head" / SESSION / "logs"
        assert parameters.include_log_monitor is False


def test_what_the_node_starts_is_not_asked_to(start):
    start(SESSION)
    assert not {ray_start.HOOK, ray_logs.HEAD_VARIABLE} & os.environ.keys()


@pytest.mark.parametrize(("session", "head"), [("", False), (SESSION, True)])
def test_without_a_head_to_follow_nothing_is_made(start, tmp_path, session, head):
    assert start(session, head=head).include_log_monitor is None
    assert not (tmp_path / "worker").exists()


def test_the_hook_is_found_by_its_name():
    module, _, name = ray_logs.THIS.rpartition(".")
    assert (module, name) == ("node.ray_logs", "share")
    assert callable(getattr(ray_logs, name))
