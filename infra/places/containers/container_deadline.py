"""The end of containers on another machine: a timer there, which needs no login once it waits.

The timer is `ending.py`. Nothing starts it again: if it was killed, or the machine restarted, a
refresh sees that, and the next `up` starts it.
"""

import json
import shlex
import time
from typing import Any

from pulumi import dynamic

from cluster.provider import Provider, Resource
from node import ending
from trainyard.access.docker_client import SOCKET
from trainyard.access.ssh import Connection
from trainyard.access.ssh_run import run

CALL_SECONDS = 60.0
START_SECONDS = 10.0
POLL_SECONDS = 0.5
NEVER = "never: its timer does not run"

Props = dict[str, Any]


class DeadlineError(Exception):
    """The timer does not wait."""


class DeadlineProvider(Provider):
    """Starts the timer and looks whether it waits; a changed folder means another user's timer."""

    replaces = ("folder",)

    def create(self, props: Props) -> dynamic.CreateResult:
        """Start the timer, in place of an earlier one, then containers that an earlier one ended.

        Raises:
            SshError: the machine cannot be reached, lacks what the timer needs, or a container does
                not come up again.
            DeadlineError: the timer has ended at once.
        """
        file, folder = (shlex.quote(each) for each in (_file(props), props["folder"]))
        # In one step: a timer that starts never reads half of it.
        write = f"umask 077 && mkdir -p {folder} && cat >{file}.new && mv {file}.new {file}"
        _call(props, f"{write} && python3 -I {file} start", _settings(props))
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
        seconds = CALL_SECONDS + ending.HEALTHY_SECONDS
        _call(props, "python3 -I - resume", _settings(props), seconds=seconds)
        return dynamic.CreateResult(_file(props), props)

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Look whether it waits for this end; one that does not shows as another end."""
        return dynamic.ReadResult(id_, props if _waits(props) else {**props, "at": NEVER})

    def find(self, props: Props) -> dynamic.CreateResult | None:
        """Return the timer that an interrupted create has started."""
        return dynamic.CreateResult(_file(props), props) if _waits(props) else None

    def delete(self, _id: str, props: Props) -> None:
        """End it, and remove its files."""
        _call(props, "python3 -I - stop")


class Deadline(Resource, module="docker", name="Deadline"):
    """The end of all containers of a network on another machine.

    From host (as Connection.of takes it), folder (absolute, of the timer), at (ISO 8601),
    drainSeconds, and network, leave and notebook, as `ending.Containers` takes them.
    """

    _kind = DeadlineProvider


def _settings(props: Props) -> str:
    """Return the settings of the timer: the same text for the same end."""
    told = {key: props.get(key) for key in ("network", "leave", "notebook")}  # Pulumi drops None
    times = {"end": props["at"], "drainSeconds": int(props["drainSeconds"])}
    return json.dumps(
        {"ends": "containers", "socket": str(SOCKET), **times, **told}, sort_keys=True
    )


def _waits(props: Props) -> bool:
    return bool(_call(props, "python3 -I - look", _settings(props)).strip())


def _file(props: Props) -> str:
    return f"{props['folder']}/{ending.FILE}"


def _call(props: Props, command: str, *settings: str, seconds: float = CALL_SECONDS) -> str:
    """Run a command with the timer's file and settings; its program is the standard input."""
    command = f"{command} {shlex.join([_file(props), *settings])}"
    return run(Connection.of(props["host"]), command, stdin=ending.source_text(), seconds=seconds)
