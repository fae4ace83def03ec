"""Users of a Ray node's container leave before it is replaced, of one node after another."""

from threading import Event
from types import SimpleNamespace

import pytest
from docker.errors import NotFound

from cluster.provider import FORCE
from infra.machines import docker_engine
from infra.places.containers import container_leave
from infra.places.containers.container_leave import LeaveProvider
from infra.service import leaving
from node.life import ServiceError

OLDS = {
    "container": "lab-ray-worker-0",
    "service": "ray-worker-0",
    "script": "/etc/trainyard/ray_leave.py",
    "arguments": ["ray-head:6379", ""],
    "drains": True,
    "seconds": 60,
    "timeout": 0.05,
    "version": "one",
}
HEAD = OLDS | {"service": "ray-head", "container": "lab-ray-head", "drains": False}


class Engine:
    """Containers by name; each has the users that the script would print."""

    def __init__(self):
        self.users, self.commands, self.ids, self.states = '["job_1 (night)"]', [], {}, {}
        self.code = 0
        self.containers = SimpleNamespace(get=self.get)

    def get(self, name):
        if name not in self.ids:
            raise NotFound("none")
        state = {"Running": True, "StartedAt": "then", "Health": {"Status": "healthy"}}
        return SimpleNamespace(
            id=self.ids[name],
            name=name,
            attrs={"State": state | self.states.get(name, {})},
            exec_run=lambda words, demux: self.exec(name, words, demux=demux),
        )

    def exec(self, name, words, *, demux):
        assert demux
        self.commands.append((name, *words[len(OLDS["arguments"]) + 2 :]))
        return self.code, (self.users.encode(), b"no such file")


@pytest.fixture
def engine(monkeypatch):
    found = Engine()
    found.ids = {"lab-ray-worker-0": "a", "lab-ray-worker-1": "b", "lab-ray-head": "c"}
    monkeypatch.setattr(docker_engine, "client", lambda *_: found)
    monkeypatch.setattr(container_leave, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(container_leave, "_drained", {})
    monkeypatch.delenv(FORCE, raising=False)
    return found


def _change(olds, **changes):
    return LeaveProvider().update("", olds, olds | {"version": "other"} | changes)


def test_a_worker_with_users_is_drained(engine, capfd):
    _change(OLDS, seconds=5)
    name = OLDS["container"]
    assert engine.commands == [(name, "users"), (name, "drain", "5")]
    assert "ray-worker-0 is drained, for at most 5 s: job_1 (night)" in capfd.readouterr().err


def test_nobody_leaves_without_users_or_a_change_or_a_container_that_runs(engine):
    engine.users = "[]"
    _change(OLDS)
    engine.users = '["job_1"]'
    LeaveProvider().update("", OLDS, OLDS | {"seconds": 5})  # it is not made from that
    engine.states[OLDS["container"]] = {"Running": False}
    _change(OLDS)
    del engine.ids[OLDS["container"]]
    _change(OLDS)
    assert engine.commands == [(OLDS["container"], "users")]


def test_a_worker_that_a_change_removes_is_drained_and_a_destroy_waits_for_nobody(
    engine, monkeypatch, capfd
):
    monkeypatch.setattr(leaving, "_declares", Event())
    LeaveProvider().delete("", OLDS)
    assert engine.commands == []
    LeaveProvider().check({}, HEAD)
    name = OLDS["container"]
    for props in (OLDS, HEAD):
        LeaveProvider().delete("", props)
    assert engine.commands == [(name, "users"), (name, "drain", "60")]
    assert not container_leave._drained  # nobody waits until it is up again
    engine.code = 1
    LeaveProvider().delete("", OLDS)
    said = "ray-worker-0 is removed without a drain: cannot ask ray-worker-0 for its users"
    assert said in capfd.readouterr().err


def test_a_head_with_jobs_is_refused_unless_it_is_forced(engine, monkeypatch):
    with pytest.raises(ServiceError, match=r"its jobs would be lost: job_1 \(night\)\. Wait"):
        _change(HEAD)
    monkeypatch.setenv(FORCE, "1")
    _change(HEAD)
    name = HEAD["container"]
    assert engine.commands == [*[(name, "users")] * 2, (name, "drain", "60")]


def test_who_cannot_be_asked_is_left_as_it_is_unless_it_is_forced(engine, monkeypatch, capfd):
    engine.code = 1
    with pytest.raises(ServiceError, match="cannot ask ray-head for its users: no such file"):
        _change(HEAD)
    monkeypatch.setenv(FORCE, "1")
    _change(HEAD)
    assert "cannot ask ray-head for its users: no such file" in capfd.readouterr().err


def test_the_next_one_waits_until_the_one_before_is_another_container_that_is_up(engine):
    second = OLDS | {"service": "ray-worker-1", "container": "lab-ray-worker-1"}
    _change(OLDS)
    for unfinished in ({}, {"StartedAt": "now", "Health": {"Status": "starting"}}):
        engine.states[OLDS["container"]] = unfinished
        with pytest.raises(ServiceError, match="lab-ray-worker-0 was drained, and is not up again"):
            _change(second)
    assert (second["container"], "drain", "60") not in engine.commands
    engine.ids[OLDS["container"]] = "d"
    engine.states = {}
    _change(second)
    assert engine.commands[-1] == (second["container"], "drain", "60")
