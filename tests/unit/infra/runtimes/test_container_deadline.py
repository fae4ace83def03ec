"""The timer of containers on another machine: the program itself, with a clock of the tests.

SSH is a shell of this machine, and `docker` notes its calls.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from infra.hosts import docker_engine
from infra.runtimes import container_deadline
from infra.runtimes.container_deadline import NEVER, DeadlineError, DeadlineProvider
from tests.waiting import wait_for
from trainyard.access.ssh_run import CommandError

DOCKER = """\
echo "$DOCKER_HOST $*" >>calls
case "$1 $2" in
"exec head") while [ -e hangs ]; do sleep 0.1; done ;;
"exec jupyter") [ -e notebook ] && echo told >>notebook ;;
"network inspect") [ -e network ] || { echo "no such network" >&2; exit 1; } ;;
"ps --quiet") cat running ;;
stop*) : >running ;;
esac
"""
END = 1796126400  # 2026-12-01T12:00:00Z


class Machine:
    """Another machine.

    Attributes:
        folder: holds `clock` (seconds since 1970), `running` (containers), `calls` (of docker), and
            `network` and `notebook`, if these are there.
        props: what a Deadline there is made from.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.put("docker", DOCKER)
        self.put("date", "case $* in +%s) echo >>looks; cat clock ;; *) echo now ;; esac")
        (folder / "running").write_text("a\nb\n")
        (folder / "network").touch()
        self.set_clock(END - 100)
        self.props: dict[str, Any] = {
            "host": {
                "host": "192.0.2.4",
                "user": "ada",
                "port": 22,
                "hostKey": "",
                "privateKey": "",
            },
            "folder": str(folder / "home" / ".trainyard" / "lab"),
            "at": "2026-12-01T12:00:00+00:00",
            "drainSeconds": 20.0,  # as engines pass numbers on
            "network": "lab",
            "leave": {"container": "head", "script": "/leave.py", "arguments": ["head:6379", "*"]},
            "notebook": {"container": "jupyter", "folder": "/work space"},
        }

    @property
    def number(self) -> Path:
        return Path(self.props["folder"]) / "container_ending.sh.pid"

    def waiting(self) -> psutil.Process:
        return psutil.Process(int(self.number.read_text()))

    def put(self, program: str, text: str) -> None:
        path = self.programs / program
        path.write_text(f"#!/bin/sh\ncd {self.folder}\n{text}\n")
        path.chmod(0o755)

    def set_clock(self, seconds: int) -> None:
        (self.folder / "clock.new").write_text(f"{seconds}\n")
        (self.folder / "clock.new").rename(self.folder / "clock")

    def run(self, _connection: Any, command: str, *, stdin: str, seconds: float) -> str:
        path = f"{self.programs}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", command],
            input=stdin,
            env={"PATH": path},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise CommandError(done.stderr)
        return done.stdout

    def looks(self) -> int:
        """How often it asked the clock."""
        return (self.folder / "looks").read_text().count("\n")

    def calls(self, *of: str) -> list[str]:
        """What docker was called with, where that begins with one of some words."""
        lines = (self.folder / "calls").read_text().splitlines()
        assert {line.split()[0] for line in lines} == {"unix:///var/run/docker.sock"}
        words = [line.partition(" ")[2] for line in lines]
        return [each for each in words if each.startswith(of)]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(tmp_path)
    nothing = SimpleNamespace(containers=SimpleNamespace(list=lambda **_: []))
    monkeypatch.setattr(docker_engine, "of", lambda _: nothing)
    monkeypatch.setattr(container_deadline, "run", made.run)
    yield made
    (tmp_path / "hangs").unlink(missing_ok=True)
    monkeypatch.undo()
    monkeypatch.setattr(container_deadline, "run", made.run)
    DeadlineProvider().delete("", made.props)


def found(machine: Machine, **changes: str) -> str:
    return str(DeadlineProvider().read("", machine.props | changes).outs["at"])


def has_ended(process: psutil.Process) -> bool:
    """Whether it has, also where nobody asks how it ended."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_it_drains_then_stops_all_and_leaves_nothing(machine: Machine) -> None:  # D3
    assert DeadlineProvider().find(machine.props) is None
    made = DeadlineProvider().create(machine.props)
    assert found(machine) == machine.props["at"]
    again = DeadlineProvider().find(machine.props)  # after a kill of `up`
    assert again is not None
    assert (again.id, again.outs) == (made.id, machine.props)
    # The notebook is told once it runs.
    wait_for("a try", lambda: machine.calls("exec jupyter"), 30)
    (machine.folder / "notebook").touch()
    told = (
        "exec jupyter sh -c cd '/work space' && rm -f reservation-ends-* && echo 'All services end "
        "at 2026-12-01 12:00 UTC. Files in this folder are kept.' "
        ">reservation-ends-2026-12-01-1200-UTC.txt"
    )
    assert {*machine.calls("exec")} == {told}
    notebook = machine.folder / "notebook"
    wait_for("the notice", notebook.read_text, 30)
    seen = machine.looks()
    wait_for("two more looks", lambda: machine.looks() > seen + 2, 30)
    assert notebook.read_text() == "told\n"
    (machine.folder / "hangs").touch()  # F82: the drain, which puts no end off
    machine.set_clock(END - 7)  # set right, after the drain should have begun
    wait_for("the drain", lambda: machine.calls("exec head"), 30)
    assert machine.calls("exec head") == ["exec head python3 /leave.py head:6379 * drain 7"]
    machine.set_clock(END - 1)
    assert machine.calls("stop") == []
    machine.set_clock(END)
    wait_for("the end", lambda: found(machine) == NEVER, 30)
    assert machine.calls("ps", "stop") == [
        "ps --quiet --filter network=lab",
        "stop a b",
        "ps --quiet --filter network=lab",
    ]
    DeadlineProvider().delete(made.id, machine.props)
    assert [*(machine.folder / "home").iterdir()] == []


def test_one_that_was_killed_shows_and_an_extension_replaces_one_that_waits(  # D3
    machine: Machine,
) -> None:
    provider, later = DeadlineProvider(), machine.props | {"at": "2026-12-01T13:00:00+00:00"}
    provider.create(machine.props)
    first = machine.waiting()
    assert provider.diff("", machine.props, later).changes
    assert not provider.diff("", machine.props, machine.props).changes
    provider.update("", machine.props, later)
    assert (found(machine), found(machine, at=later["at"])) == (NEVER, later["at"])
    wait_for("the end of the earlier one", lambda: has_ended(first), 30)
    os.kill(machine.waiting().pid, signal.SIGKILL)
    wait_for("its end", lambda: found(machine, at=later["at"]) == NEVER, 30)
    read = provider.read("", later).outs
    assert provider.diff("", read, later).changes
    provider.update("", read, later)
    third = machine.waiting()
    provider.delete("", later)
    wait_for("its end with the stack", lambda: has_ended(third), 30)
    assert machine.calls("stop") == []


def test_a_process_that_got_its_number_is_left_alone(machine: Machine) -> None:
    DeadlineProvider().create(machine.props)
    ours = machine.waiting()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        machine.number.write_text(f"{other.pid}\n")
        assert found(machine) == NEVER
        DeadlineProvider().delete("", machine.props)
        assert other.poll() is None
        other.kill()
    os.killpg(ours.pid, signal.SIGKILL)


def test_what_the_machine_lacks_is_told_with_what_to_do(  # D3
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.folder / "network").unlink()
    with pytest.raises(
        CommandError, match=r"no such network\n.* cannot use the Engine, .*: repair"
    ):
        DeadlineProvider().create(machine.props)
    (machine.folder / "network").touch()
    machine.put("setsid", "exit 0")
    monkeypatch.setattr(container_deadline, "START_SECONDS", 0)
    said = r"ada@192.0.2.4: the timer .* at 2026-12-01T12:00:00\+00:00. .* `sudo loginctl enable-l"
    with pytest.raises(DeadlineError, match=said):
        DeadlineProvider().create(machine.props)
    (machine.programs / "setsid").unlink()
    monkeypatch.setenv("PATH", str(machine.folder))
    (machine.folder / "sh").symlink_to("/bin/sh")
    (machine.folder / "env").symlink_to("/usr/bin/env")
    with pytest.raises(CommandError, match=r"the program setsid is not on PATH, .*: install it"):
        DeadlineProvider().create(machine.props)
