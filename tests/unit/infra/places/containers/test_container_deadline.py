"""The timer of containers on another machine: SSH is a shell of this one, and the Engine a fake.

The program itself has its own tests (test_ending.py).
"""

import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.places.containers import container_deadline
from infra.places.containers.container_deadline import NEVER, DeadlineProvider
from node.life import ServiceError
from tests import ran
from tests.waiting import wait_for
from trainyard.access.ssh_run import CommandError

PATH = f"{Path(sys.executable).parent}:{os.defpath}"


class Machine:
    """Another machine.

    Attributes:
        props: what a Deadline there is made from.
        path: its PATH.
    """

    def __init__(self, folder: Path) -> None:
        self.path = PATH
        host = {"host": "192.0.2.4", "user": "ada", "port": 22, "hostKey": "", "privateKey": ""}
        self.props: dict[str, Any] = {
            "host": host,
            "folder": str(folder / "home" / ".trainyard" / "my lab"),
            "at": "2126-12-01T12:00:00+00:00",
            "drainSeconds": 20.0,  # as engines pass numbers on
            "network": "lab",
            "leave": {"container": "head", "script": "/leave.py", "arguments": ["head:6379", "*"]},
        }

    def run(self, _connection: Any, command: str, *, stdin: str, seconds: float) -> str:
        done = ran.run(
            ["/bin/sh", "-c", command], input=stdin, env={"PATH": self.path}, timeout=seconds
        )
        if done.returncode:
            raise CommandError(done.stderr)
        return done.stdout

    def waiting(self) -> list[psutil.Process]:
        file = f"{self.props['folder']}/ending.py"
        return [p for p in psutil.process_iter(["cmdline"]) if file in (p.info["cmdline"] or ())]


@pytest.fixture
def machine(tmp_path, monkeypatch, engine) -> Iterator[Machine]:
    made = Machine(tmp_path)
    monkeypatch.setattr(container_deadline, "run", made.run)
    monkeypatch.setattr(container_deadline, "SOCKET", engine.path)
    yield made
    made.path = PATH
    DeadlineProvider().delete("", made.props)


def found(machine: Machine, **changes: str) -> str:
    return str(DeadlineProvider().read("", machine.props | changes).outs["at"])


def test_it_waits_drains_stops_all_and_leaves_nothing(machine, engine):  # D3
    engine.add("head", "exited")  # by an earlier timer
    assert DeadlineProvider().find(machine.props) is None
    made = DeadlineProvider().create(machine.props)
    assert found(machine) == machine.props["at"]
    assert engine.calls == ["start head"]
    again = DeadlineProvider().find(machine.props)  # after a kill of `up`
    assert again is not None
    assert (again.id, again.outs) == (made.id, machine.props)
    engine.hangs.clear()  # F82: the drain, which puts no end off
    for seconds in (2, 8, 20):  # on a slow machine the timer may start when nothing is left
        engine.add("head")
        engine.calls.clear()
        near = machine.props | {"at": (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}
        words = f'python3 -I "{made.id}" start', container_deadline.DeadlineArgs.of(near).told()
        container_deadline.DeadlineArgs.of(near).call(*words)
        # Before the drain gives up, which is 60 s after its start.
        wait_for(
            "the end", lambda: not machine.waiting() and "stop head" in engine.calls, seconds + 30
        )
        if engine.calls != ["stop head"]:
            break
    called = [call.rpartition(" ")[0] for call in engine.calls]
    assert called == ["head: python3 /leave.py head:6379 * drain", "stop"]
    assert (found(machine), found(machine, at=near["at"])) == (NEVER, NEVER)
    assert "all containers have ended" in Path(f"{made.id}.log").read_text()
    DeadlineProvider().delete(made.id, machine.props)
    home = Path(machine.props["folder"]).parents[1]
    assert [*home.iterdir()] == []


def test_one_that_was_killed_shows_and_an_extension_replaces_one_that_waits(  # D3 F82
    machine, engine
):
    provider, later = DeadlineProvider(), machine.props | {"at": "2126-12-01T13:00:00+00:00"}
    provider.create(machine.props)
    (first,) = machine.waiting()
    assert first.terminal() is None
    assert os.getsid(first.pid) == first.pid, "it outlives the login"
    assert provider.diff("", machine.props, later).changes
    assert not provider.diff("", machine.props, machine.props).changes
    provider.update("", machine.props, later)
    assert (found(machine), found(machine, at=later["at"])) == (NEVER, later["at"])
    wait_for("the end of the earlier one", lambda: first not in machine.waiting(), 30)
    (second,) = machine.waiting()
    second.send_signal(signal.SIGKILL)
    wait_for("its end", lambda: found(machine, at=later["at"]) == NEVER, 30)
    assert provider.fault("", later) == "ada@192.0.2.4: the reservation's timer is gone"
    assert provider.diff("", later, later).changes, "`up` alone starts it"
    machine.path = "/nowhere"
    assert "python3" in provider.fault("", later)
    machine.path = PATH
    read = provider.read("", later).outs
    assert provider.diff("", read, later).changes
    provider.update("", read, later)
    # One of another stack is not ended.
    other = machine.props | {"folder": f"{machine.props['folder']} too"}
    provider.create(other)
    provider.delete("", later)
    wait_for("its end with the stack", lambda: not machine.waiting(), 30)
    assert found(machine, **other) == machine.props["at"]
    provider.delete("", other)
    assert engine.calls == []


def test_what_the_machine_lacks_is_told_with_what_to_do(  # D3
    machine, engine, monkeypatch, tmp_path
):
    engine.add("head", "exited")
    engine.refuses["start"] = [500]
    with pytest.raises(CommandError, match="Docker's Engine answers 500"):
        DeadlineProvider().create(machine.props)
    DeadlineProvider().delete("", machine.props)
    # A login whose end ends all that it has started.
    monkeypatch.setattr(container_deadline.DeadlineArgs, "waits", lambda _: False)
    monkeypatch.setattr(container_deadline, "START_SECONDS", 0)
    said = r"ada@192.0.2.4: the timer .* at 2126-12-01T12:00:00\+00:00. .* `sudo loginctl enable-l"
    with pytest.raises(ServiceError, match=said):
        DeadlineProvider().create(machine.props)
    machine.path = str(tmp_path)
    for program in ("mkdir", "cat", "mv"):
        (tmp_path / program).symlink_to(f"/bin/{program}")
    with pytest.raises(CommandError, match=r"python3: .*not found"):
        DeadlineProvider().create(machine.props)
