"""The program that ends a stack: its rule and its clock, then each way to end."""

import ast
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from http.client import BadStatusLine
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from node import ending, owned_processes, source_text
from node.ending import Containers, Pods, Programs, Way
from tests import web
from tests.waiting import wait_for

END = 1010.0
AT = datetime.fromtimestamp(END, UTC).isoformat()
PLACE = {"container": "jupyter", "folder": "/work space"}
LEAVE = {"container": "head", "script": "/leave.py", "arguments": ["head:6379", "*"]}


class Clock:
    """A clock that somebody sets while the timer sleeps."""

    strftime, gmtime = staticmethod(time.strftime), staticmethod(time.gmtime)

    def __init__(self, *jumps: float) -> None:
        self.now, self._jumps, self.slept = 1000.0, list(jumps), 0.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= ending.LOOK_SECONDS
        self.slept += seconds
        self.now += seconds + (self._jumps.pop(0) if self._jumps else 0)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ending, "time", clock)
    return clock


@pytest.fixture
def told(monkeypatch) -> list[str]:
    """What the program says."""
    told: list[str] = []
    monkeypatch.setattr(ending, "say", told.append)
    return told


def ended(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, *failures: Exception, leave: object = "script"
) -> list[Any]:
    """Run the timer with a drain of 5 s, which fails or hangs; return the events until the end."""
    events: list[Any] = []
    begun, over = Event(), Event()

    class Fake(Way):
        def look(self) -> None:
            assert not leave or clock.now < END - 5 or begun.wait(30)

        def drain(self, seconds: float) -> None:
            events.append(("drain", seconds))
            begun.set()
            if failures:
                raise failures[0]
            over.wait(10)
            events.append("the drain has ended")

        def end(self) -> None:
            events.append(("end", clock.now))
            over.set()

    monkeypatch.setattr(ending, "time", clock)
    monkeypatch.setattr(ending, "WAYS", {"fake": Fake})
    settings = {"ends": "fake", "end": AT, "drainSeconds": 5, "leave": leave}
    ending.main(["wait", json.dumps(settings)])
    return events[:2]


def test_a_drain_that_hangs_or_fails_puts_no_end_off(monkeypatch, told):  # F82
    for failures in ((), (subprocess.CalledProcessError(1, "python"),)):
        assert ended(monkeypatch, Clock(), *failures) == [("drain", 5), ("end", END)]
    wait_for("the reason", lambda: [each for each in told if "could not be drained" in each], 30)
    steady = (0.0,) * 6
    assert ended(monkeypatch, Clock(*steady, 600))[1:] == [("end", END - 3 + 600)]
    assert ended(monkeypatch, Clock(*steady, -600))[1:] == [("end", END)]
    # Machines without the head drain nobody.
    assert ended(monkeypatch, Clock(), leave=None) == [("end", END)]


@pytest.mark.parametrize("idle", [False, True])
def test_the_users_command_runs_before_the_end_which_comes_even_if_it_hangs(  # F82
    clock, told, idle
):
    events, over = [], Event()

    class Fake(Way):
        def look(self) -> bool:
            return idle

        def run_at_head(self, words: Any, seconds: float) -> None:
            events.append((words[-1], clock.now))
            over.wait(30)
            raise OSError("it was killed")

        def end(self) -> None:
            events.append(("end", clock.now))
            over.set()

    settings = {"end": AT, "drainSeconds": 0, "beforeEnd": {"run": "copy", "seconds": 0.2}}
    ending.wait(settings, Fake(settings))
    begins = 1000.0 if idle else pytest.approx(END - 0.2)
    assert events == [("copy", begins), ("end", 1000.0 if idle else END)]
    wait_for("the reason", lambda: "the command before the end failed: it was killed" in told, 30)


def test_a_timer_that_was_killed_goes_on_where_it_was(monkeypatch):  # F82
    for late, events in ((-2, [("drain", 2), ("end", END)]), (20, [("end", END + 20)])):
        clock = Clock()
        clock.now = END + late
        assert ended(monkeypatch, clock) == events


def test_the_timer_follows_the_clock_of_its_machine(monkeypatch):  # D3
    for jumps, slept in (((), 10), ((0, 0, 7), 3), ((3600,), 1), ((0, -60), 70)):
        clock = Clock(*jumps)
        monkeypatch.setattr(ending, "time", clock)
        looks: list[int] = []
        ending.wait_until(END, lambda looks=looks: looks.append(1))
        assert clock.slept == len(looks) == slept, jumps


def test_the_timer_of_a_supervisord_that_was_killed_ends_all_but_itself(  # F82
    monkeypatch, tmp_path
):
    found = [SimpleNamespace(pid=pid) for pid in (os.getpid(), 7, 8)]
    monkeypatch.setattr(owned_processes, "of_supervisord", lambda *_: found)
    killed: list[int] = []
    monkeypatch.setattr(
        owned_processes, "end", lambda find, _: killed.extend(p.pid for p in find())
    )
    Programs({"folder": str(tmp_path), "mark": {"id": "1"}}).end()  # nobody answers
    assert killed == [7, 8]


@pytest.fixture
def containers(engine, clock) -> Containers:
    settings = {"network": "lab", "notebook": PLACE, "leave": LEAVE, "end": AT}
    return Containers({**settings, "socket": engine.path})


def test_containers_stop_whatever_the_engine_does(engine, containers, told):  # D3 F82
    for name, status in (("head", "restarting"), ("grafana", "paused")):
        engine.add(name, status)
    engine.garbage = 1
    engine.add("dataset", "exited", "no")
    engine.refuses["stop"] = [500, 404]  # one is removed meanwhile
    containers.end()
    assert sorted(engine.calls) == ["stop grafana", "stop head"]
    whys = [each for each in told if "could be stopped" in each]
    assert len(whys) == 2
    assert "answers 500 to POST /containers/" in whys[1]


def test_containers_wait_for_an_engine_that_starts(engine, monkeypatch, clock):  # F82
    containers = Containers({"network": "lab", "notebook": None, "socket": f"{engine.path}.new"})
    monkeypatch.setattr(ending, "say", lambda _: containers.settings.update(socket=engine.path))
    engine.add("head")
    containers.look()
    containers.end()
    assert engine.calls == ["stop head"]


def test_the_notebook_is_told_once_it_runs_and_the_head_drained(engine, containers):  # D3
    engine.refuses["exec"] = [404, 409]
    for _ in range(4):
        containers.look()
    (told,) = engine.calls
    assert told.startswith(
        "jupyter: sh -c cd '/work space' && rm -f reservation-ends-* && echo 'All"
    )
    assert told.endswith(">reservation-ends-1970-01-01-0016-UTC.txt")
    containers.drain(7)
    assert engine.calls[1] == "head: python3 /leave.py head:6379 * drain 7"
    fails = {**LEAVE, "arguments": ["fails"]}
    with pytest.raises(OSError, match="said"):
        Containers({**containers.settings, "leave": fails}).drain(7)


@pytest.mark.parametrize("refused", [{}, {"start": [404]}, {"start": [409]}])
def test_containers_run_again_though_others_are_removed_meanwhile(  # D3
    engine, containers, refused
):
    engine.add("gone", "exited")
    engine.add("head", "exited")
    engine.add("web")
    engine.add("dataset", "exited", "no")
    engine.refuses |= refused
    if refused:
        health = engine.containers["gone"]["State"]
        del health["Health"]
    containers.resume()
    assert engine.calls[-1] == "start head"
    assert len(engine.calls) == (1 if refused else 2)


def test_containers_that_cannot_run_again_are_told(engine, containers):
    engine.add("head", "exited")
    engine.refuses["start"] = [500]
    with pytest.raises(OSError, match=r'answers 500 to POST /containers/head/start: .*"refused"'):
        containers.resume()
    engine.refuses["start"] = [304]  # it runs, and does not get healthy
    with pytest.raises(OSError, match="head is not healthy: see docker logs head"):
        containers.resume()
    with pytest.raises(SystemExit, match="No such file"):
        ending.main(["resume", "", json.dumps({**containers.settings, "socket": "/nowhere"})])


RAY, WEB, DATA, DONE, OWN = "/ray/test", "/deployments/web", "/jobs/data", "/jobs/done", "/own"


def refusal(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("https://api", code, "no", Message(), None)


def test_all_that_makes_pods_is_deleted_and_its_own_at_last_whatever_the_api_does(  # D3
    monkeypatch, clock, told
):
    troubles = {
        RAY: [OSError("away"), refusal(500), BadStatusLine("")],
        WEB: [refusal(403)],
        "/gone": [refusal(404)],
    }
    deleted: list[str] = []

    def asked(method: str, path: str) -> dict[str, Any]:
        if troubles.get(path):
            raise troubles[path].pop(0)
        if method == "GET":
            times = {"completionTime": "2026-12-01T13:00:00Z"} if path == DONE else {}
            return {"status": times}
        deleted.append(path)
        return {}

    monkeypatch.setattr(Pods, "_ask", lambda _, *words: asked(*words))
    Pods({"objects": [RAY, WEB, "/gone", DATA, DONE, OWN]}).end()
    assert deleted == [RAY, DATA, OWN]
    assert clock.slept == 3  # not after what the Role refuses
    assert "/deployments/web stays, because this pod has no right to end it" in told[-1]


def test_the_timers_pod_runs_the_script_itself(tmp_path):  # D3
    leave, seen = tmp_path / "leave.py", tmp_path / "seen"
    leave.write_text(f"import sys; open({str(seen)!r}, 'w').write(repr(sys.argv[1:]))")
    Pods({"leave": [str(leave), "head:1", "*"]}).drain(7)
    assert seen.read_text() == "['head:1', '*', 'drain', '7']"
    leave.write_text("import sys; sys.exit(1)")
    with pytest.raises(subprocess.CalledProcessError):
        Pods({"leave": [str(leave)]}).drain(7)


class Api:
    """The cloud's API, which takes requests to end machines, and the idle watch.

    Attributes:
        verdict: None where the idle watch does not answer.
    """

    def __init__(self) -> None:
        self.url, self.status, self.verdict = "", 200, None
        self.requests: list[Any] = []

    def answer(self, asked: web.Request) -> web.Said:
        if asked.command == "POST":
            self.requests.append((asked.path, dict(asked.headers), json.loads(asked.body)))
            return self.status, b"{}"
        allowed = asked.headers["Authorization"] == "Bearer canary-idle"
        known = asked.path == "/verdict" and allowed and self.verdict is not None
        if self.verdict == NO_HTTP:
            asked.wfile.write(NO_HTTP)
            return None
        body = self.verdict
        return 200 if known else 401, body if isinstance(body, bytes) else json.dumps(body).encode()


NO_HTTP = b"garbage\r\n"


@pytest.fixture
def api() -> Iterator[Any]:
    made = Api()
    with web.serving(made.answer) as server:
        made.url = server.url
        yield made


class Machine:
    """A rented machine with its timer.

    Attributes:
        said: the warnings to logged-in users.
        log: its file.
    """

    def __init__(self, folder: Path, api: Any, clock: Clock, patch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self.log = folder / "LOG"
        for name in ("MACHINE", "LOG", "WARNED", "ENDING", "IDLE_WARNED"):
            patch.setattr(ending, name, folder / name)
        patch.setattr(subprocess, "run", lambda words, check: self.said.append(words[1]))
        self._settings, self._api, self._clock = folder / "MACHINE", api, clock

    def tick(self, minutes: float, **idle: object) -> None:
        """Run one minute of cron, so long before the end."""
        url = self._api.url
        settings = {"end": AT, "apiUrl": url, "apiKey": "canary", "instanceId": "i-1"}
        if idle:
            settings["idle"] = {"url": f"{url}/verdict", "token": "canary-idle", **idle}
        self._settings.write_text(json.dumps(settings))
        self._clock.now = END - 60 * minutes
        ending.main([])


@pytest.fixture
def machine(tmp_path, api, clock, monkeypatch) -> Machine:
    return Machine(tmp_path, api, clock, monkeypatch)


def test_each_bound_is_warned_of_once_and_again_after_a_later_end(machine, api):
    ending.main([])  # before anybody told it
    bounds = ((90, 0), (59.5, 1), (58, 1), (29.5, 2), (9.5, 3), (4.5, 4), (3, 4), (90, 4), (3, 5))
    for minutes, warnings in bounds:
        machine.tick(minutes)
        assert len(machine.said) == warnings, minutes
    said = "this machine ends in 30 minutes: train pull RUN saves a run; or set a later end"
    assert machine.said[1] == said
    assert api.requests == []
    lines = machine.log.read_text().splitlines()
    assert len(lines) == 5
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\d [\d:]{{8}} UTC {re.escape(said)}", lines[1])


def test_at_its_end_the_machine_is_terminated(machine, api):
    machine.tick(-1)
    ((path, headers, body),) = api.requests
    assert path == "/api/v1/instance-operations/terminate"
    assert headers["Authorization"] == "Bearer canary"
    assert (headers["Content-Type"], headers["User-Agent"]) == ("application/json", "trainyard")
    assert body == {"instance_ids": ["i-1"]}
    assert machine.said == ["the time of this machine is over: terminating it"]


@pytest.mark.parametrize("status", [401, 429, 500, 0])
def test_a_refused_end_is_tried_again(machine, api, status):
    url, api.status = api.url, status
    if not status:
        api.url = "http://127.0.0.1:1"  # it is away
    for _ in range(2):
        machine.tick(-1)
        assert "this machine cannot be terminated (" in machine.said[-1]
        assert machine.said[-1].endswith("); trying again in a minute")
        assert "canary" not in machine.said[-1] + machine.log.read_text()  # F35
    api.status, api.url = 200, url
    machine.tick(-1)
    assert len(api.requests) == (3 if status else 1)


def test_without_a_way_to_tell_anybody_it_goes_on(machine, api, monkeypatch):  # F16
    monkeypatch.setattr(subprocess, "run", Mock(side_effect=FileNotFoundError))
    monkeypatch.setattr(ending, "LOG", Path("/dev/full"))  # even root cannot write there
    for ends_in in (-60, 100):
        api.verdict = {"end": ends_in < 0, "end_head": False, "ends_in": ends_in}
        machine.tick(90, last=False)
    machine.tick(-1)
    assert len(api.requests) == 2


@pytest.mark.parametrize(
    ("verdict", "last", "ends"),
    [
        ({"end": True, "end_head": False, "ends_in": -60}, False, True),
        ({"end": True, "end_head": False, "ends_in": -60}, True, False),
        ({"end": True, "end_head": True, "ends_in": -240}, True, True),
        ({"end": False, "end_head": False, "ends_in": 0}, False, False),
        # An unreadable answer counts as active.
        (None, False, False),
        ({}, False, False),
        ({"end": "yes", "end_head": "yes", "ends_in": None}, False, False),
        ([], False, False),
        ({"end": True, "end_head": True, "ends_in": "soon"}, False, False),
        (b"[" * 1_000_000, False, False),
        (NO_HTTP, False, False),
        ({"end": True, "end_head": True, "ends_in": -60, "active": "x" * 2**23}, False, False),
    ],
)
def test_an_idle_clusters_machines_end_the_heads_last(machine, api, verdict, last, ends):  # B27
    api.verdict = verdict
    machine.tick(90, last=last)
    assert len(api.requests) == ends
    if ends:
        assert machine.said[-1] == "the cluster is idle: terminating it"


def test_a_refused_end_of_an_idle_cluster_is_tried_again_until_somebody_works(machine, api):
    over = {"end": True, "end_head": True, "ends_in": -60}
    busy = {"end": False, "end_head": False, "ends_in": None}
    # Nobody knows any more: the watch may have ended.
    for verdict, status, requests in (
        *((over, 500, 1), (None, 200, 2), (over, 401, 3), (busy, 200, 3), (None, 200, 3)),
    ):
        api.verdict, api.status = verdict, status
        machine.tick(90, last=False)
        assert len(api.requests) == requests


@pytest.mark.parametrize(
    ("verdict", "last", "ends"),
    [
        (None, False, False),
        (NO_HTTP, False, False),
        ({"end": False, "end_head": False, "ends_in": 9}, False, False),
        ({"end": True, "end_head": False, "ends_in": -1}, False, True),
        ({"end": True, "end_head": False, "ends_in": -1}, True, False),
        ({"end": True, "end_head": True, "ends_in": -1}, True, True),
    ],
)
def test_programs_of_an_idle_cluster_end_before_their_time(  # B27
    api, tmp_path, monkeypatch, told, verdict, last, ends
):
    api.verdict, state = verdict, tmp_path / "state.json"
    state.touch()
    idle = {"url": f"{api.url}/verdict", "token": "canary-idle", "last": last, "file": str(state)}
    way = Programs({"folder": str(tmp_path), "mark": {"id": "1"}, "idle": idle, "end": AT})
    assert way.look() is ends
    assert state.exists() is not ends  # or the next `up` would end at once
    assert way.look() is False  # it is asked now and then
    over: list[str] = []
    monkeypatch.setattr(way, "_asks", 0.0)
    monkeypatch.setattr(way, "end", lambda: over.append(told[-1]))
    monkeypatch.setattr(ending, "wait_until", lambda *_: ends)
    ending.wait({"end": AT, "drainSeconds": 5, "leave": {}}, way)
    assert over == [f"the {'cluster is idle' if ends else 'reservation is over'}: all services end"]


@pytest.mark.parametrize(
    ("output", "file", "refused", "ends"),
    [
        ({"ending": 9.5}, "/state", {}, True),
        ({"ending": 0.0}, "/state", {}, False),
        # What cannot be read, or forgotten, counts as use.
        ({"ending": 9.5}, "fails", {}, False),
        ({"ending": 9.5}, "/state", {"exec": [404]}, False),
        ([], "/state", {}, False),
        ({}, "/state", {}, False),
    ],
)
def test_containers_of_an_idle_cluster_end_before_their_time(  # B27
    engine, containers, output, file, refused, ends
):
    engine.output, idle = output, {"container": "watch", "file": file}
    engine.refuses |= refused
    way = Containers({**containers.settings, "notebook": None, "idle": idle})
    assert way.look() is ends
    # Or the next `up` would end at once: it starts the same container.
    asked = [] if refused else ["watch: cat " + file]
    assert engine.calls == asked + ["watch: rm " + file] * ends
    assert way.look() is False  # it is asked now and then
    assert len(engine.calls) == len(asked) + ends


def test_an_idle_clusters_end_is_said_once_and_again_after_work(machine, api):
    for ends_in, warnings in ((400, 0), (290, 1), (230, 1), (None, 1), (250, 2)):
        api.verdict = {"end": False, "end_head": False, "ends_in": ends_in}
        machine.tick(90, last=False)
        assert len(machine.said) == warnings, ends_in
    said = "the cluster is idle and ends in 5 minutes: train keep 2h puts it off"
    assert machine.said[0] == said
    assert api.requests == []


# On machines whose Python is older than 3.11, datetime has no UTC.
OLDER = """
import datetime, pathlib, runpy, sys
del datetime.UTC
names = runpy.run_path(sys.argv[1])["main"].__globals__
for name in ("MACHINE", "LOG", "WARNED", "ENDING", "IDLE_WARNED"):
    names[name] = pathlib.Path(sys.argv[2], name)
names["main"]([])
"""


def test_an_older_python_ends_its_machine(api, tmp_path):  # D3 F82
    settings = {"end": AT, "apiUrl": api.url, "apiKey": "canary", "instanceId": "i-1"}
    (tmp_path / "MACHINE").write_text(json.dumps(settings))
    done = subprocess.run(
        [sys.executable, "-I", "-c", OLDER, ending.__file__, str(tmp_path)],
        env={"PATH": str(tmp_path)},  # nobody here is told
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    ((path, _, body),) = api.requests
    assert path == "/api/v1/instance-operations/terminate"
    assert body == {"instance_ids": ["i-1"]}
    assert "the time of this machine is over: terminating it" in done.stdout


def test_it_runs_on_the_pythons_of_other_machines():
    """Their Python is 3.8 at least, and has the standard library only."""
    tree = ast.parse(source_text(ending.FILE), feature_version=(3, 8))
    modules = set()
    for node in tree.body:  # imports in functions are of ways that have this project
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module).partition(".")[0])
    assert modules <= sys.stdlib_module_names
