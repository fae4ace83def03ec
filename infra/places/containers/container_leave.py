"""Has the users of a Ray node's container leave before a change replaces or removes it.

A container depends on its Leave, which knows a digest of what the container is made from: its
update comes before the replacement. Each Leave depends on the one before, so nodes are drained one
after another; the next one also waits until the container that took the last one's place is up.
A second Leave depends on the container of a worker, so it is removed before that.
"""

import json
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from pulumi import dynamic

from cluster.provider import FORCE, Given, Provider, Resource, say
from infra.machines.docker_engine import EngineArgs
from infra.places.containers.container import explained
from infra.service import leaving
from node.life import ServiceError

POLL_SECONDS = 0.5
ANSWER_SECONDS = 60  # beyond the drain itself: Ray is imported first
PYTHON = "python3"  # of the image
# Containers drained in this `up`, which have to be replaced before the next one is drained: id and
# time of start by name. Both engines have all providers in one process.
_drained: dict[str, tuple[str, str]] = {}


class LeaveArgs(EngineArgs):
    """Arguments of a Leave; arguments and drains are those of `cluster.service.LeaveSteps`.

    Attributes:
        script: path in the container.
        seconds: that a drain may take.
        timeout: seconds until a container is up.
        version: digest of what it is made from; of the second Leave "".
    """

    container: str
    service: str
    script: str
    arguments: Given[Sequence[str]]
    drains: bool
    seconds: int
    timeout: float
    version: Given[str]


class LeaveProvider(Provider[LeaveArgs]):
    """The users of one container."""

    def make(self, args: LeaveArgs) -> tuple[str, dict[str, Any]]:
        """Do nothing: the container does not exist yet."""
        return args.container, {}

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Note that this is no `destroy`."""
        leaving.note_program()
        return super().check(olds, news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Drain the worker that is removed; nothing is left to drain where its container is."""
        args = LeaveArgs.of(props)
        if args.drains:
            drain = partial(_drain, args, args.seconds)
            leaving.leave_removed(args.service, args.seconds, partial(_users, args), drain)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Ask, and drain.

        Raises:
            ServiceError: users cannot leave, and FORCE is not set; or the node that was drained
                before is not up again.
        """
        before, after = LeaveArgs.of(olds), LeaveArgs.of(news)
        if before.version != after.version:
            _leave(before, after.seconds, after.timeout)
        return dynamic.UpdateResult(news)


class Leave(Resource[LeaveArgs], module="docker", name="Leave"):
    """Keeps users of a container from losing work to a change."""

    _kind = LeaveProvider


def _leave(args: LeaveArgs, seconds: int, timeout: float) -> None:
    users = _users(args)
    if users and args.drains:
        with explained(args.service):
            client = args.engine(ANSWER_SECONDS)
            _await_those_before(client, args.service, timeout)
            container = _find(client, args.container)
            _drained[container.name] = _start(container)
    drain = partial(_drain, args, seconds)
    leaving.leave(args.service, users, drain, drains=args.drains, seconds=seconds)


def _users(args: LeaveArgs) -> list[str]:
    """Return the users of a container; none of one that does not run."""
    with explained(args.service):
        container = _find(args.engine(ANSWER_SECONDS), args.container)
        return list(json.loads(_run(container, args, "users") or "[]")) if container else []


def _drain(args: LeaveArgs, seconds: int) -> None:
    with explained(args.service):
        container = _find(args.engine(seconds + ANSWER_SECONDS), args.container)
        _run(container, args, "drain", str(seconds))


def _run(container: Any, args: LeaveArgs, *command: str) -> str:
    """Return the output of the service's script; "" if it fails and FORCE is set."""
    words = [PYTHON, args.script, *args.arguments, *command]
    code, (out, err) = container.exec_run(words, demux=True)
    if code == 0:
        return str((out or b"").decode())
    why = f"cannot ask {args.service} for its users: {(err or b'').decode().strip()[-200:]}"
    if os.environ.get(FORCE):
        say(why)
        return ""
    raise ServiceError(
        f"{why}. It was not changed: run `up` again; `make up FORCE=1` goes on without, and its "
        "jobs may be lost"
    )


def _find(client: Any, name: str) -> Any:
    """Return a running container, None if it does not run."""
    from docker.errors import NotFound  # noqa: PLC0415 (only where containers are)

    try:
        found = client.containers.get(name)
    except NotFound:
        return None
    return found if found.attrs["State"]["Running"] else None


def _start(container: Any) -> tuple[str, str]:
    return str(container.id), str(container.attrs["State"]["StartedAt"])


def _await_those_before(client: Any, service: str, timeout: float) -> None:
    """Wait until nodes that were drained before are up again: runs need somewhere to go."""
    deadline = time.monotonic() + timeout
    for name, before in list(_drained.items()):
        while not _is_another(_find(client, name), before):
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{name} was drained, and is not up again after {timeout:g} s (setting "
                    f"startTimeoutSeconds): {service} was not changed. See docker logs {name}, "
                    "and run `up` again"
                )
            time.sleep(POLL_SECONDS)
        del _drained[name]


def _is_another(container: Any, before: tuple[str, str]) -> bool:
    if container is None or _start(container) == before:
        return False
    return bool(container.attrs["State"].get("Health", {}).get("Status", "healthy") == "healthy")
