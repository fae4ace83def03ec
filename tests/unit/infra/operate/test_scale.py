"""How `infra.operate.scale` meets a request; test_groups.py has a real cluster."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from infra.operate import scale
from infra.operate.requested import AS_IT_IS, VARIABLE
from infra.operate.scale import Scaler, steps
from tests import ran, web
from tests.waiting import wait_for
from trainyard.access.ssh import UnreachableError
from trainyard.access.ssh_run import CommandError

SSH = {"host": "192.0.2.7", "port": 22, "user": "trainyard", "hostKey": "k", "privateKey": "p"}
A, B, C = "ray-worker-1", "ray-worker-2", "ray-worker-3"


@pytest.mark.parametrize(
    ("launched", "requested", "left", "targets"),
    [
        ([], [], {}, []),
        ([A], [A], {}, []),
        ([], [A, B], {}, [[A, B]]),
        ([A, B], [B], {}, [[B]]),
        ([A, B], [B, C], {}, [[B], [B, C]]),  # B's neighbour makes room before C is launched
        # The leftovers of an interrupted `up` are cleaned up in any case.
        ([], [A], {"whole": False}, [[A]]),
        ([], [], {"whole": False}, [[]]),
        ([A], [B], {"whole": False}, [[], [B]]),
        # A machine that cannot be finished ends first, together with those without a request.
        ([A], [B], {"whole": False, "broken": True}, [[], [B]]),
        ([], [A], {"whole": False, "broken": True}, [[], [A]]),
        ([A], [A], {"whole": False, "broken": True}, [[A]]),
    ],
)
def test_what_ends_goes_before_what_is_launched(launched, requested, left, targets):
    assert steps(launched, requested, **left) == targets


class Stack:
    """A stack as the command sees it: outputs, a head to ask, and `up`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launched: list[str] = []
        self.refreshed = 0
        self.requested: Any = []
        self.known: dict[str, Any] = {}
        self.told: list[list[str]] = []
        self.ups: list[list[str] | None] = []
        self.failing: list[list[str] | None] = []  # last lines of the next `up`s; None: it works
        self.ends: bool | None = None  # None: nobody watches whether it is idle
        monkeypatch.setattr(scale, "run", self._ask)
        monkeypatch.setattr(Scaler, "_engine", lambda _, command, env: self._up(command, env))
        monkeypatch.setattr(Scaler, "_outputs", lambda _: self.known)
        self.scaler = Scaler(Path(), "test")

    def _ask(
        self, connection: Any, command: str, *, stdin: str = "", seconds: float, most: int
    ) -> str:
        assert most == 64 * 1024  # F39
        assert connection.host == SSH["host"]
        assert seconds > 0
        if isinstance(self.requested, Exception):
            raise self.requested
        if command == "cat /var/tmp/ty/requests/requested.json":
            return self.requested if isinstance(self.requested, str) else json.dumps(self.requested)
        if command.startswith("python3 -c"):
            assert json.loads(stdin) == {"url": "http://127.0.0.1:8300", "token": "i"}
            return json.dumps(self.ends)
        self.told.append(json.loads(stdin))
        return ""

    def _up(self, command: str, environment: dict[str, str]) -> list[str] | None:
        if command == "refresh":
            self.refreshed += 1
            return None
        asked = environment.get(VARIABLE)
        assert asked is not None  # a user's own `up` may recreate a head
        names = None if asked == AS_IT_IS else [name for name in asked.split(",") if name]
        self.ups.append(names)
        if self.failing and (said := self.failing.pop(0)):
            return said
        self.launched = self.launched if names is None else names
        self.up()
        return None

    def up(self) -> None:
        nodes: list[dict[str, Any]] = [{"name": "ray-head", "onDemand": False}]
        for name in (A, B, C):
            launched = {"launched": name in self.launched, "hourlyCost": 0.75}
            nodes.append({"name": name, "onDemand": True, **launched})
        self.known = {"requestsFolder": "/var/tmp/ty/requests", "ssh": SSH, "nodes": nodes}
        if self.ends is not None:
            self.known |= {"idleEndUrl": "http://127.0.0.1:8300", "idleEndToken": "i"}


@pytest.fixture
def stack(monkeypatch) -> Stack:
    found = Stack(monkeypatch)
    found.up()
    return found


def test_a_request_is_met_once(stack, capsys):
    assert stack.scaler.meet()
    assert stack.ups == [[]]  # the first look finishes the work of a killed one
    stack.requested = [A, B]
    assert stack.scaler.meet()
    assert stack.scaler.meet()
    assert stack.ups == [[], [A, B]]
    said = capsys.readouterr().out
    assert "launching ray-worker-1, ray-worker-2: then 2 of at most 3 machines, 1.50 $/h" in said
    stack.requested = [B, C]
    assert stack.scaler.meet()
    assert stack.ups[2:] == [[B], [B, C]]
    # Ray hears of launches before they happen, and of ends afterwards.
    assert stack.told == [[], [A, B], [B], [B, C]]


def test_what_failed_keeps_no_other_machine_from_being_finished(stack):
    assert stack.scaler.meet()
    stack.requested = [A, B]
    stack.failing = [["error: not enough capacity"]]
    assert not stack.scaler.meet()
    assert stack.refreshed == 1  # a machine that came too late is ended, and in the state
    assert stack.ups[1:] == [[A, B], None]  # as it is: that launches nothing
    assert stack.scaler.meet()
    assert stack.ups[3:] == [[A, B]]


def test_what_could_not_be_launched_is_free_again_once_nobody_waits_for_it(stack):
    assert stack.scaler.meet()
    stack.requested = [A]
    stack.failing = [["error: not enough capacity"]]
    assert not stack.scaler.meet()
    assert stack.told[-1] == [A]
    stack.requested = []  # Ray gives up after an hour
    assert stack.scaler.meet()
    assert stack.told[-1] == []


def test_another_head_is_told_what_is_there(stack):
    assert stack.scaler.meet()
    stack.requested = UnreachableError("192.0.2.7 does not answer")
    assert not stack.scaler.meet()
    stack.told, stack.requested = [], []
    assert stack.scaler.meet()
    assert stack.told == [[]]


def test_a_machine_that_cannot_be_finished_keeps_no_idle_one(stack):
    stack.launched = [A]
    stack.up()
    stack.requested = [A]
    assert stack.scaler.meet()
    stack.requested = [A, B]
    stack.failing = [["error: B has no GPU"], ["error: B has no GPU"]]
    assert not stack.scaler.meet()
    stack.requested = [B]
    stack.failing = []
    assert stack.scaler.meet()
    assert stack.ups == [[A], [A, B], None, [], [B]]


def test_nothing_is_launched_into_a_cluster_that_ends_itself(stack, capsys):
    stack.ends = False
    stack.up()
    assert stack.scaler.meet()
    stack.requested, stack.ends = [A], True
    assert not stack.scaler.meet()
    assert stack.ups == [[]]
    assert "its machines end themselves" in capsys.readouterr().out
    stack.ends = False
    assert stack.scaler.meet()
    assert stack.ups == [[], [A]]


def test_where_there_is_no_room_what_is_requested_no_more_goes_all_the_same(stack):
    stack.launched = [A]
    stack.up()
    stack.requested = [B]
    stack.failing = [None, ["error: not enough capacity"]]
    assert not stack.scaler.meet()
    assert stack.launched == []
    assert stack.scaler.meet()
    assert stack.ups == [[], [B], None, [B]]


def test_a_stack_that_another_operation_holds_is_left_alone(stack):
    stack.requested = [A]
    stack.failing = [["error: the stack is locked by ada@lab (pid 7)"]]
    assert not stack.scaler.meet()
    assert stack.ups == [[A]]


@pytest.mark.parametrize(
    ("requested", "said"),
    [
        (UnreachableError("192.0.2.7 does not answer"), "192.0.2.7 does not answer"),
        (CommandError("cat: no such file"), "the head has not written down a request yet"),
        ("{", "holds no request"),
        ("7", "holds no request"),
        ("[" * 100_000, "holds no request"),
        (["ray-worker-77"], "ray-worker-77: in no group that the outputs name"),
        (list("abcde"), "a, b, c and 2 more: in no group"),
        (["\x1b]0;had\x07"], r"\x1b]0;had\x07: in no group"),  # F39
        (["x" * 1000], f" {'x' * 63}: in no group"),
    ],
)
def test_without_a_request_nothing_changes(stack, capsys, requested, said):
    stack.launched = [A]
    stack.up()
    stack.requested = requested
    assert not stack.scaler.meet()
    assert not stack.scaler.meet()
    assert stack.ups == []
    assert capsys.readouterr().out.count(said) == 1  # not again and again


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "is not up: run `make up STACK=test` first"),
        ({"requestsFolder": ""}, "no group of stack"),
    ],
)
def test_a_stack_that_cannot_grow_ends_it(stack, capsys, known, said):
    stack.known = known
    assert scale.main(["-s", "test", "--once"]) == 1
    assert said in capsys.readouterr().err
    assert stack.ups == []


def test_a_stack_that_never_was_up_ends_it(tmp_path, capsys, monkeypatch):
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without the CLI
    assert scale.main(["-C", str(tmp_path), "-s", "test"]) == 1
    assert "stack 'test' is not up: run `make up STACK=test` first" in capsys.readouterr().err


ENGINE = """\
import os, signal, sys, time
begun = []
signal.signal(signal.SIGINT, lambda *_: begun.append(1))
print("Launching instance", flush=True)
open(sys.argv[1], "w").close()
while not begun:
    time.sleep(0.05)
print("finished the steps in hand", os.environ["TRAINYARD_REQUESTED"])
sys.exit(1)
"""


def test_an_up_in_hand_finishes_its_steps_before_the_command_ends(tmp_path, monkeypatch):
    (tmp_path / "engine.py").write_text(ENGINE)
    begun = tmp_path / "begun"
    real = subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        assert command[1:5] == ["-P", "-m", "engine.launch", "up"]
        return real([sys.executable, str(tmp_path / "engine.py"), str(begun)], **options)

    monkeypatch.setattr(subprocess, "Popen", start)
    scaler = Scaler(tmp_path, "test")
    found: list[Any] = []
    environment = {**os.environ, VARIABLE: A}
    thread = threading.Thread(target=lambda: found.append(scaler._engine("up", environment)))
    thread.start()
    wait_for("the engine", begun.exists, 20)
    scaler.stop()
    thread.join(20)
    assert found == [["Launching instance", f"finished the steps in hand {A}"]]


def test_ctrl_c_ends_the_wait_for_the_next_request(stack):
    stack.scaler.meet()
    begun = time.monotonic()
    with scale._stop_on_signal(stack.scaler):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        stack.scaler.run()
    assert time.monotonic() - begun < scale.POLL_SECONDS


@pytest.mark.parametrize(("running", "said"), [(100_000, "true\n"), (5 * 2**20, "")])
def test_the_answer_of_the_watch_is_bounded(running, said, tmp_path):  # F39
    (tmp_path / "verdict").write_text(json.dumps({"active": "x" * running, "end": True}))
    with web.serving(web.files(tmp_path)) as server:
        asked = {"url": server.url, "token": "i"}
        done = ran.run([sys.executable, "-c", scale.ASK], input=json.dumps(asked))
    assert (done.stdout, done.returncode) == (said, int(not said)), done.stderr
