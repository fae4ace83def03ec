"""Does the work of the process runtime's resources: on this machine, or on another by SSH.

With a property `host`, which is that of `infra/machines/machine.py`, `agent.py` does the work
there; without one it is done here.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from pulumi import dynamic

from cluster.provider import A, Args, Given, say, seen
from infra.machines.host_provider import HostProvider
from node.life import ServiceError
from node.programs import KINDS
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import run

MARGIN_SECONDS = 60.0  # for the connection and all but the service's own start
OURS = ("host", "machine", "__provider")  # properties that the other machine does not need

Props = dict[str, Any]


class OnHostArgs(Args):
    """Arguments of what a stack has on a host; host and machine are None for this machine.

    Attributes:
        folder: the supervisord's folder, where a subclass names no other.
        mark: the stack's mark, as `StackMark.props` has it.
    """

    folder: Given[str]
    mark: Given[Mapping[str, str]]
    host: Given[Mapping[str, Any] | None] = None
    machine: Given[str | None] = None


class OnHostProvider(HostProvider[A]):
    """A resource whose work is done by one of the kinds of `programs.py`."""

    kind: str

    def create(self, props: Props) -> dynamic.CreateResult:
        return dynamic.CreateResult(*_do(self.kind, "create", props))

    def read(self, id_: str, props: Props) -> dynamic.ReadResult:
        """Look whether it is there; if its machine is gone, so is it."""
        with self.unless_gone(props.get("host", {})):
            return seen(id_, _do(self.kind, "read", id_, props))
        return seen(id_, None)

    def fault(self, id_: str, props: Props) -> str:
        """Ask on its machine; Data and Files have no health of their own."""
        if not self.health_output:
            return ""
        try:
            return str(_do(self.kind, "fault", id_, props))
        except SshError as error:
            return str(error)
        except ServiceError:  # our code there is older than this: `up` brings the new one
            return ""

    def log(self, _id: str, props: Props, lines: int) -> list[str]:
        """Read it on its machine; Data and Files have no log."""
        return [*_do(self.kind, "log", lines, props)] if self.health_output else []

    def update(self, _id: str, olds: Props, news: Props) -> dynamic.UpdateResult:
        return dynamic.UpdateResult(_do(self.kind, "update", olds, news))

    def delete(self, id_: str, props: Props) -> None:
        """Remove it; if its machine is gone, so is it."""
        note = ""
        with self.unless_gone(props.get("host", {})):
            note = _do(self.kind, "delete", id_, props)
        if note:
            say(f"{props['machine']}: {note}" if "host" in props else note)

    def act(self, method: str, *arguments: Any) -> Any:
        """Call another method of the kind; the last of its arguments are properties."""
        return _do(self.kind, method, *arguments)

    def find(self, props: Props) -> dynamic.CreateResult | None:
        """Return the leftovers of an interrupted create."""
        found = _do(self.kind, "find", props)
        return None if found is None else dynamic.CreateResult(*found)


def _do(kind: str, method: str, *arguments: Any) -> Any:
    """Call a method of a kind on the machine that its last argument, the properties, names."""
    props: Props = arguments[-1]
    if "host" not in props:
        return getattr(KINDS[kind], method)(*arguments)
    host = props["host"]
    sent = [
        {key: value for key, value in argument.items() if key not in OURS}
        if isinstance(argument, dict)
        else argument
        for argument in arguments
    ]
    answer = json.loads(
        run(
            Connection.of(host),
            f"cd {shlex.quote(host['agent'])} && exec {shlex.quote(host['python'])} -m node.agent",
            stdin=json.dumps({"kind": kind, "method": method, "arguments": sent}),
            seconds=float(props.get("startTimeout", 0))
            + float(props.get("leave", {}).get("seconds", 0))
            + MARGIN_SECONDS,
        ).splitlines()[-1]
    )
    if "error" in answer:
        raise ServiceError(f"{props['machine']}: {answer['error']}")
    return _with(answer["result"], {key: props[key] for key in OURS if key in props})


def _with(result: Any, own: Props) -> Any:
    """Return a method's result with the properties that were not sent."""
    if isinstance(result, dict):
        return {**result, **own}
    match result:
        case [str(id_), dict(outputs)]:
            return id_, {**outputs, **own}
    return result
