"""Ends all services of a supervisord at a time; runs as one of its programs.

    python -P -m infra.runtimes.ending SETTINGS

Where services are containers, it stops these. First it has the runs on the cluster store a
checkpoint and leave, for at most `drainSeconds`. It asks the machine's clock each second, so it
follows a clock that is set right. supervisord restarts it if it is killed. If supervisord itself
was killed, this program still ends what that has started. After a reboot no program of a
supervisord runs, and so no timer.
"""

import contextlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

from infra.runtimes import owned_processes
from infra.runtimes.folders import FolderMark
from infra.runtimes.supervisor import Definition, Supervisor

NAME = "reservation-end"
SETTINGS = "settings.json"
ROOT = Path(__file__).resolve().parents[2]
LOOK_SECONDS = 1.0

Props = dict[str, Any]


class Processes:
    """The programs of a supervisord.

    Args:
        daemon: the supervisord.
        leave: the script that drains the workers, as `service`, `file` and `arguments`; None on
            machines without the head.
    """

    def __init__(self, daemon: Supervisor, leave: Props | None) -> None:
        self._daemon, self._leave = daemon, leave

    def look(self) -> None:
        """Nothing is to be done before the end."""

    def resume(self) -> None:
        """Nothing is to be done: a supervisord that has ended is replaced."""

    def drain(self, seconds: float) -> None:
        """Run the script as its service would, with its Python, which has Ray."""
        if self._leave is None:
            return
        service = self._daemon.folder / self._leave["service"]
        variables, _, command = (service / "run").read_text().rpartition("\nexec ")
        python = Path(shlex.split(command)[0]).with_name("python")
        script = service / "files" / self._leave["file"]
        words = [str(python), str(script), *self._leave["arguments"], "drain", f"{seconds:g}"]
        subprocess.run(
            ["/bin/sh", "-c", f"{variables}\nexec {shlex.join(words)}"],
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            check=True,
        )

    def end(self) -> None:
        """Nothing more than the supervisord is to be ended."""


def services(daemon: Supervisor, reservation: Props) -> Any:
    """Return the services that a reservation ends."""
    if "network" in reservation:
        from infra.runtimes.container_ending import Containers  # noqa: PLC0415 - only here

        return Containers(reservation)
    return Processes(daemon, reservation.get("leave"))


def tell(daemon: Supervisor, reservation: Props | None, mark: Props) -> None:
    """Have a supervisord end at another time, or never.

    Args:
        daemon: the supervisord.
        reservation: `end` (ISO 8601), `drainSeconds` and `leave`, see Processes; or what
            `container_ending.Containers` needs.
        mark: the stack's mark, which its folders have.
    """
    if not reservation:
        daemon.remove(NAME)
        return
    services(daemon, reservation).resume()
    settings = {**reservation, "folder": str(daemon.folder), "mark": mark}
    docker = {name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}
    daemon.add(
        Definition(
            name=NAME,
            command=[sys.executable, "-P", "-m", __name__, _settings(daemon.folder)],
            environment={"PYTHONPATH": str(ROOT), **(docker if "network" in reservation else {})},
            files={SETTINGS: json.dumps(settings)},
            folders=[],
            stop_seconds=0,
        )
    )


def _settings(folder: Path) -> str:
    return str(folder / NAME / "files" / SETTINGS)


def main(settings: Props) -> None:
    """Wait for the end, then end all."""
    end = datetime.fromisoformat(settings["end"])
    daemon = Supervisor(folder=Path(settings["folder"]), mark=FolderMark.of(settings["mark"]))
    ending, seconds = services(daemon, settings), float(settings["drainSeconds"])
    say(f"the services of this machine end at {end.astimezone(UTC).isoformat()}")
    wait_until(end.timestamp() - seconds, ending.look)
    if (left := min(seconds, end.timestamp() - time.time())) > 0:
        say(f"runs store a checkpoint and leave, for at most {left:.0f} s")
        # Whatever becomes of it, and wherever the clock is set meanwhile, the end comes.
        Thread(target=_drain, args=(ending, left), daemon=True).start()
    wait_until(end.timestamp(), ending.look)
    say("the reservation is over: all services end")
    ending.end()
    end_all(daemon)


def _drain(ending: Any, seconds: float) -> None:
    try:
        ending.drain(seconds)
    except Exception as error:  # its type depends on the service
        say(f"the workers could not be drained ({error}): runs have their last checkpoints")


def wait_until(moment: float, look: Callable[[], None]) -> None:
    """Wait until the clock has reached a time, in seconds since 1970; call `look` each second."""
    while (left := moment - time.time()) > 0:
        look()
        time.sleep(min(left, LOOK_SECONDS))


def end_all(daemon: Supervisor) -> None:
    """End all programs, then supervisord, which ends this one; files and logs stay."""
    try:
        daemon.finish(NAME)
    except OSError:  # it was killed: its programs have no parent
        own = os.getpid()
        owned_processes.end(
            lambda: [
                process
                for process in owned_processes.supervised(daemon.url, daemon.mark)
                if process.pid != own
            ],
            daemon.folder,
        )


def say(text: str) -> None:
    """Write a line to this program's log, which a killed supervisord no longer reads."""
    with contextlib.suppress(OSError):
        print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC {text}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
