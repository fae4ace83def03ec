"""The end of containers on another machine: a timer there, which needs no login once it waits.

The timer is `ending.py`. Nothing starts it again: if it was killed, the machine restarted, or the
cluster was idle, the next `up` sees that and starts it.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import json
import shlex
import time
from collections.abc import Mapping
from typing import Any

from pulumi import dynamic

from cluster.provider import Args, Given, Provider, Resource
from node import ending, source_text
from node.life import ServiceError
from trainyard.access.docker_client import SOCKET
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import run

CALL_SECONDS = 60.0
START_SECONDS = 10.0
POLL_SECONDS = 0.5
NEVER = "never: its timer does not run"


class DeadlineArgs(Args):
    """Arguments of the end; those without a text are told `ending.Containers`.

    Attributes:
        host: as Connection.of takes it.
        folder: absolute, of the timer.
        at: when, in ISO 8601.
        drainSeconds: that a drain before it may take.
    """

    host: Given[Mapping[str, Any]]
    folder: str
    at: str
    drainSeconds: int
    network: Given[str]
    leave: Given[Mapping[str, Any]]
    notebook: Given[Mapping[str, Any] | None] = None
    idle: Given[Mapping[str, Any] | None] = None
    beforeEnd: Mapping[str, Any] | None = None

    @property
    def file(self) -> str:
        return f"{self.folder}/{ending.FILE}"

    def told(self) -> str:
        """Return the settings of the timer: the same text for the same end."""
        told = {key: getattr(self, key) for key in ("network", "leave", "notebook")}
        told |= {"idle": self.idle} if self.idle else {}
        told |= {"beforeEnd": self.beforeEnd} if self.beforeEnd else {}
        times = {"end": self.at, "drainSeconds": self.drainSeconds}
        return json.dumps(
            {"ends": "containers", "socket": str(SOCKET), **times, **told}, sort_keys=True
        )

    def call(self, command: str, *settings: str, seconds: float = CALL_SECONDS) -> str:
        """Run a command with the timer's file and settings; its program is the standard input."""
        command = f"{command} {shlex.join([self.file, *settings])}"
        return run(
            Connection.of(self.host), command, stdin=source_text(ending.FILE), seconds=seconds
        )

    def waits(self) -> bool:
        """Return whether the timer waits for this end."""
        return bool(self.call("python3 -I - look", self.told()).strip())


class DeadlineProvider(Provider[DeadlineArgs]):
    """Starts the timer and looks whether it waits; a changed folder means another user's timer."""

    replaces = ("folder",)

    def make(self, args: DeadlineArgs) -> tuple[str, dict[str, Any]]:
        """Start the timer, in place of an earlier one, then containers that an earlier one ended.

        Raises:
            SshError: the machine cannot be reached, lacks what the timer needs, or a container does
                not come up again.
            ServiceError: the timer has ended at once.
        """
        file, folder = shlex.quote(args.file), shlex.quote(args.folder)
        # In one step: a timer that starts never reads half of it.
        write = f"umask 077 && mkdir -p {folder} && cat >{file}.new && mv {file}.new {file}"
        args.call(f"{write} && python3 -I {file} start", args.told())
        # By another login: it has to outlive the first one.
        deadline = time.monotonic() + START_SECONDS
        while not args.waits():
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{Connection.of(args.host).name}: the timer of the reservation does not "
                    f"run {START_SECONDS:g} s after its start, so nothing would end the stack at "
                    f"{args.at}. If {args.file}.log does not say why, logins there end what they "
                    f"have started: run there `sudo loginctl enable-linger {args.host['user']}`. "
                    "Then run `up` again"
                )
            time.sleep(POLL_SECONDS)
        seconds = CALL_SECONDS + ending.HEALTHY_SECONDS
        args.call("python3 -I - resume", args.told(), seconds=seconds)
        return args.file, {}

    def fault(self, _id: str, props: dict[str, Any]) -> str:
        """Return that the timer does not wait: containers that run would not end."""
        args = DeadlineArgs.of(props)
        try:
            waits = args.waits()
        except SshError as error:
            return str(error)
        return "" if waits else f"{Connection.of(args.host).name}: the reservation's timer is gone"

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether it waits for this end; one that does not shows as another end."""
        waits = DeadlineArgs.of(props).waits()
        return dynamic.ReadResult(id_, props if waits else {**props, "at": NEVER})

    def find(self, props: dict[str, Any]) -> dynamic.CreateResult | None:
        """Return the timer that an interrupted create has started."""
        args = DeadlineArgs.of(props)
        return dynamic.CreateResult(args.file, props) if args.waits() else None

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """End it, and remove its files."""
        DeadlineArgs.of(props).call("python3 -I - stop")


class Deadline(Resource[DeadlineArgs], module="docker", name="Deadline"):
    """The end of all containers of a network on another machine."""

    _kind = DeadlineProvider
