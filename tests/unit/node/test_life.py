"""The life of a service by the driver of each place, which is told the same of its service."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from cluster.provider import FORCE
from infra.machines import docker_engine
from infra.machines.process import ProgramProvider
from infra.places.containers import container
from infra.places.containers.container import ReadyProvider
from infra.places.kubernetes import ready
from infra.service import leaving
from infra.service.cancellation import CanceledError
from node import life, owned_processes, process_health
from node.life import ServiceError
from node.supervisor import Supervisor
from tests.fakes.docker_engine import NOW, RESTARTING, RUNNING, FakeContainer, FakeEngine
from tests.web_program import web_program

LOG = ["starting", "OSError: [Errno 98] Address already in use", "bye"]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A service as one look finds it.

    Attributes:
        runs: whether its program runs.
        answers: whether it can be used.
        start: number of its present start.
        ends: how often it ended in the last minutes.
        up: seconds for which it has run.
    """

    runs: bool = True
    answers: bool = True
    start: int = 0
    ends: int = 0
    up: int = 3600


SILENT = Moment(answers=False)
STARTS = [Moment(runs=False, start=each, ends=each, up=0) for each in range(9)]
LOOPS = Moment(ends=3, up=30)


@dataclass(frozen=True, kw_only=True)
class Place:
    """One place.

    Attributes:
        provider: of its services.
        props: of the service.
        tell: says what the looks find, the last of it forever; nothing for a service that is gone.
        whole_log: how messages name all of its log.
    """

    provider: Any
    props: dict[str, Any]
    tell: Callable[..., None]
    whole_log: str

    def create(self, timeout: float = 30, **more: Any) -> Any:
        return self.provider.create(self.props | {self.timeout: timeout} | more)

    @property
    def timeout(self) -> str:
        return "startTimeout" if "startTimeout" in self.props else "timeout"


def _programs(folder: Path, patch: pytest.MonkeyPatch) -> Place:
    (folder / "web").mkdir()
    (folder / "web" / "log").write_text("\n".join(LOG))
    patch.setattr(owned_processes, "of_supervisord", lambda *_: [])
    patch.setattr(process_health, "POLL_SECONDS", 0)
    for name, answer in (("distrust", ""), ("alive", True), ("running", True), ("matches", True)):
        patch.setattr(Supervisor, name, lambda *_, answer=answer: answer)
    patch.setattr(Supervisor, "remove", lambda *_: None)

    def tell(*moments: Moment) -> None:
        left, now = list(moments), int(time.time())

        def state(*_: Any) -> dict[str, Any] | None:
            if not left:
                return None
            seen = left.pop(0) if len(left) > 1 else left[0]
            patch.setattr(process_health, "answers", lambda *_: seen.answers)
            patch.setattr(process_health, "endings", lambda *_: ["exit status 3"] * seen.ends)
            start = now - seen.up + seen.start
            name = "RUNNING" if seen.runs else "BACKOFF"
            return {"statename": name, "start": start, "now": start + seen.up, "pid": 0}

        patch.setattr(Supervisor, "state", state)

    props = web_program(str(folder), 80, {"id": "1"}, healthy=True)
    return Place(provider=ProgramProvider(), props=props, tell=tell, whole_log="")


class Container(FakeContainer):
    def exec_run(self, _check: list[str]) -> tuple[int, bytes]:
        return (0, b"") if self.attrs["State"]["Answers"] else (7, b"refused")


def _containers(_folder: Path, patch: pytest.MonkeyPatch) -> Place:
    engine = FakeEngine()
    patch.setattr(docker_engine, "client", lambda *_: engine)
    patch.setattr(container.ContainerDriver, "poll_seconds", 0)

    def state(seen: Moment) -> dict[str, Any]:
        begun = datetime.fromisoformat(NOW) - timedelta(seconds=seen.up)
        more = {"RestartCount": seen.start, "Ends": seen.ends, "Answers": seen.answers}
        return (RUNNING if seen.runs else RESTARTING) | more | {"StartedAt": begun.isoformat()}

    def tell(*moments: Moment) -> None:
        if moments:
            engine.container = Container(*map(state, [moments[0], *moments]))
            engine.container.log = "\n".join(LOG).encode()

    props = {"container": "id", "network": "net", "alias": "web", "checks": [["curl"]]}
    props |= {"once": False, "processes": 0, "timeout": 0, "ready": True}
    whole = " (docker logs lab-web has all)"
    return Place(provider=ReadyProvider(), props=props, tell=tell, whole_log=whole)


class Api:
    """An API that knows one object and its pod."""

    def __init__(self, *moments: Moment) -> None:
        self.cluster = SimpleNamespace(context="lab", namespace="team")
        self._left, self._seen = list(moments), Moment()

    def get(self, kind: str, name: str) -> Any:
        if not self._left:
            return None
        self._seen = seen = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), 1)
        counts["readyReplicas"] = int(seen.runs and seen.answers)
        metadata = {"name": name, "uid": "u", "generation": 1}
        status = counts | {"observedGeneration": 1}
        return {"kind": kind, "metadata": metadata, "spec": {}, "status": status}

    def pods(self, _labels: Any) -> Any:
        seen, now = self._seen, datetime.now(UTC)
        since, before = (now - timedelta(seconds=each) for each in (seen.up, seen.up + 10))
        ended = {"exitCode": 3, "startedAt": before.isoformat(), "finishedAt": since.isoformat()}
        running = {"running": {"startedAt": since.isoformat()}}
        waits = {"waiting": {"reason": "CrashLoopBackOff"}}
        status = {
            "name": "main",
            "state": running if seen.runs else waits,
            "restartCount": seen.ends,
            "ready": seen.runs and seen.answers,
            "lastState": {"terminated": ended} if seen.ends else {},
        }
        spec = {"containers": [{"name": "main"}]}
        metadata, phases = {"name": "web-0"}, {"phase": "Running", "containerStatuses": [status]}
        return [{"metadata": metadata, "spec": spec, "status": phases}]

    def log(self, *_: Any, lines: int) -> list[str]:
        return LOG[-lines:]

    def warning(self, _live: Any) -> str:
        return ""


def _pods(_folder: Path, patch: pytest.MonkeyPatch) -> Place:
    patch.setattr(ready, "GRACE_SECONDS", 0)
    patch.setattr(ready.PodsDriver, "poll_seconds", 0)

    def tell(*moments: Moment) -> None:
        api = Api(*moments)
        patch.setattr(ready, "_api", lambda _: api)

    provider = ready.ReadyProvider()
    provider.configure(SimpleNamespace(config={}))
    props = {"kind": "StatefulSet", "name": "web", "pods": {}, "once": False, "timeout": 0}
    props |= {"cluster": {}, "version": ""}
    whole = " (kubectl --context lab -n team logs web-0 -c main has all)"
    return Place(provider=provider, props=props | {"ready": True}, tell=tell, whole_log=whole)


STARTED_AGAIN = (_programs, _containers)  # by their place, which Kubernetes hides


@pytest.fixture(params=[*STARTED_AGAIN, _pods], ids=["programs", "containers", "pods"])
def place(request, tmp_path, monkeypatch) -> Place:
    made: Place = request.param(tmp_path, monkeypatch)
    return made


def _refusal(place: Place, **options: Any) -> list[str]:
    with pytest.raises(ServiceError) as raised:
        place.create(**options)
    return str(raised.value).splitlines()


def test_it_is_waited_for_until_it_runs_and_answers(place):
    place.tell(Moment(runs=False, ends=1), SILENT, Moment())
    outs = place.create().outs
    assert outs[place.provider.health_output] is True
    assert place.provider.read("web", outs).outs == outs


def test_one_that_ends_again_and_again_is_not_waited_for(place):  # F31
    place.tell(*STARTS)
    *why, whole, _, _, _ = said = _refusal(place)
    assert "ended 3 times" in "".join(why)
    assert why[0].startswith("web ")
    assert [whole, *said[-3:]] == [f"Its last log lines{place.whole_log}:", *LOG]


def test_when_the_time_is_over_its_log_is_shown(place):  # F31
    place.tell(SILENT)
    first, why, *said = _refusal(place, timeout=0)
    assert first == "web is not up after 0 s (setting startTimeoutSeconds)"
    assert why.startswith("  ")
    assert said == [f"Its last log lines{place.whole_log}:", *LOG]


@pytest.mark.parametrize("place", STARTED_AGAIN, indirect=True)
@pytest.mark.parametrize("moment", [LOOPS, Moment(up=4)])
def test_one_that_answers_has_to_stay_up(place, moment):  # F63
    place.tell(moment)
    why = _refusal(place, timeout=0, steadySeconds=5)[1]
    expected = ("ended 3 times in the last 10 min (", "has run for 4 of 5 s")
    assert why.strip().startswith(expected)
    place.tell(Moment(up=5))
    place.create(steadySeconds=5)


@pytest.mark.parametrize("place", STARTED_AGAIN, indirect=True)
def test_what_answered_before_its_program_ended_is_asked_again(place):
    place.tell(Moment(up=1), Moment(up=60, start=1, answers=False))
    assert _refusal(place, timeout=0.2, steadySeconds=60)[0].startswith("web is not up after 0.2 s")


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (Moment(), ""),
        (Moment(ends=2, up=30), ""),
        (Moment(ends=3, up=90), ""),  # it has stayed up since
        (LOOPS, "ended 3 times"),
        (STARTS[4], "ended 4 times"),
    ],
)
def test_one_that_keeps_ending_is_told_and_differs(place, moment, said):  # F63
    place.tell(moment)
    told = place.provider.fault("web", place.props)
    assert said in told
    assert bool(told) is bool(said)
    assert not told or told.endswith(f"; its log says: {LOG[1]}")
    assert place.provider.read("web", place.props).outs[place.provider.health_output] is not bool(
        said
    )
    assert place.provider.diff("web", place.props, place.props).changes is bool(said)


def test_one_that_is_gone_is_told_and_not_waited_for(place):
    place.tell()
    assert "gone" in place.provider.fault("web", place.props)
    assert place.provider.diff("web", place.props, place.props).changes
    assert "gone" in _refusal(place)[0]


def test_what_another_answered_that_held_the_port_is_asked_again():
    """Ray's head starts without its dashboard where another program has the port."""
    held, answers = [["port 8265 is held"], []], ["", "does not answer", ""]
    service: Any = SimpleNamespace(
        checks=["url"],
        look=lambda: life.Look(runs=True),
        poll_seconds=0,
        lately=lambda: (0, "", 100.0),
        steady_seconds=0,
        ask=lambda _: answers.pop(0),
        amiss=lambda **_: held.pop(0),
    )
    life.await_up(service, 30, lambda _: None)
    assert (held, answers) == ([], [])


def test_a_wait_can_be_ended():
    service: Any = SimpleNamespace(checks=[], look=lambda: life.Look(runs=False), poll_seconds=0)
    with pytest.raises(CanceledError):
        life.await_up(service, 3600, Mock(side_effect=CanceledError))


@pytest.mark.parametrize("drains", [True, False])
@pytest.mark.parametrize("forced", [True, False])
def test_users_leave_unless_their_work_would_be_lost(drains, forced, monkeypatch, capsys):
    monkeypatch.setenv(FORCE, "1" if forced else "")
    drained: list[str] = []

    def leave(*users: str) -> None:
        leaving.leave("web", users, lambda: drained.append("web"), drains=drains, seconds=5)

    leave()
    assert drained == []
    if drains or forced:
        leave("job-1", "job-2")
        assert drained == ["web"]
        assert capsys.readouterr().err == "web is drained, for at most 5 s: job-1, job-2\n"
        return
    with pytest.raises(ServiceError, match=r"web is .* lost: job-1, job-2\. .*FORCE=1"):
        leave("job-1", "job-2")
    assert drained == []
