"""The end of containers on another machine: a timer there, which needs no login once it waits.

The timer is the shell program `container_ending.sh`, since that machine has Docker and nothing of
ours. Nothing starts it again: if it was killed, or the machine restarted, a refresh sees that, and
the next `up` starts it.
"""

import shlex
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from pulumi import dynamic

from cluster.provider import Provider, Resource
from infra.runtimes import notice
from infra.runtimes.container import explained
from infra.runtimes.container_ending import PYTHON, Containers
from trainyard.access.docker_client import SOCKET
from trainyard.access.ssh import Connection
from trainyard.access.ssh_run import run

PROGRAM = Path(__file__).with_name("container_ending.sh")
CALL_SECONDS = 60.0
START_SECONDS = 10.0
POLL_SECONDS = 0.5
NEVER = "never: its timer does not run"

Props = dict[str, Any]


class DeadlineError(Exception):
    """The timer does not wait, or containers that had ended do not run again."""


class DeadlineProvider(Provider):
    """The timer; another folder is that of another user there."""

    replaces = ("folder",)

    def create(self, props: Props) -> dynamic.CreateResult:
        """Start the timer, in place of an earlier one, then containers that an earlier one ended.

        Raises:
            SshError: the machine cannot be reached, or lacks what the timer needs.
            DeadlineError: the timer has ended at once, or a container does not come up again.
        """
        _call(props, "start", *_arguments(props), stdin=PROGRAM.read_text())
        # By another login: it has to outlive the first one.
        deadline = time.monotonic() + START_SECONDS
        while not _waits(props):
            if time.monotonic() > deadline:
                user, log = props["host"]["user"], f"{_file(props)}.log"
                raise DeadlineError(
                    f"{Connection.of(props['host']).name}: the timer of the reservation does not "
                    f"run {START_SECONDS:g} s after its start, so nothing would end the stack at "
                    f"{props['at']}. If {log} does not say why, logins there end what they have "
                    f"started: run there `sudo loginctl enable-linger {user}`. Then run `up` again"
                )
            time.sleep(POLL_SECONDS)
        try:
            with explained("containers that the reservation had ended"):
                Containers(props).resume()
        except OSError as error:
            raise DeadlineError(f"{error} on {Connection.of(props['host']).name}") from None
        return dynamic.CreateResult(_file(props), props)

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Look whether it waits for this end; one that does not shows as another end."""
        return dynamic.ReadResult(id_, props if _waits(props) else {**props, "at": NEVER})

    def find(self, props: Props) -> dynamic.CreateResult | None:
        """Return the timer that an interrupted create has started."""
        return dynamic.CreateResult(_file(props), props) if _waits(props) else None

    def delete(self, _id: str, props: Props) -> None:
        """End it, and remove its files."""
        _call(props, "stop")


class Deadline(Resource, module="docker", name="Deadline"):
    """The end of all containers of a network on another machine.

    From host (as Connection.of takes it), folder (absolute, of the timer), at (ISO 8601),
    drainSeconds, and network, leave and notebook, as `container_ending.Containers` takes them.
    """

    _kind = DeadlineProvider


def _arguments(props: Props) -> list[str]:
    """Return the arguments of the timer; `container_ending.sh` explains them."""
    end = datetime.fromisoformat(props["at"])
    notebook, leave = props["notebook"], props["leave"]
    told = ["", ""]
    if notebook:
        told = [notebook["container"], notice.command(notebook["folder"], end)]
    times = [str(int(each)) for each in (end.timestamp(), props["drainSeconds"])]
    command = [PYTHON, leave["script"], *leave["arguments"]]
    return [*times, props["network"], *told, leave["container"], *command]


def _waits(props: Props) -> bool:
    return bool(_call(props, "look", *_arguments(props)).strip())


def _file(props: Props) -> str:
    return f"{props['folder']}/{PROGRAM.name}"


def _call(props: Props, *words: str, stdin: str = "") -> str:
    # The Engine that the other resources use, whatever the user of that machine has chosen.
    engine = ["env", f"DOCKER_HOST=unix://{SOCKET}"]
    command = shlex.join([*engine, "sh", "-c", PROGRAM.read_text(), _file(props), *words])
    return run(Connection.of(props["host"]), command, stdin=stdin, seconds=CALL_SECONDS)
