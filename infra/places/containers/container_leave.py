"""Has the users of a Ray node's container leave before a change replaces it.

A container depends on its Leave, which knows a digest of what the container is made from: its
update comes before the replacement. Each Leave depends on the one before, so nodes are drained one
after another; the next one also waits until the container that took the last one's place is up.
"""

import json
import os
import time
from functools import partial
from typing import Any

from pulumi import dynamic

from cluster.provider import FORCE, Provider, Resource, say
from infra.machines import docker_engine
from infra.places.containers.container import explained
from infra.service import leaving
from node.life import ServiceError

POLL_SECONDS = 0.5
ANSWER_SECONDS = 60  # beyond the drain itself: Ray is imported first
PYTHON = "python3"  # of the image
# Containers drained in this `up`, which have to be replaced before the next one is drained: id and
# time of start by name. Both engines have all providers in one process.
_drained: dict[str, tuple[str, str]] = {}


class LeaveProvider(Provider):
    """The users of one container."""

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Do nothing: the container does not exist yet."""
        return dynamic.CreateResult(str(props["container"]), props)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Ask, and drain.

        Raises:
            ServiceError: users cannot leave, and FORCE is not set; or the node that was drained
                before is not up again.
        """
        if olds["version"] != news["version"]:
            _leave(olds, int(news["seconds"]), float(news["timeout"]))
        return dynamic.UpdateResult(news)


class Leave(Resource, module="docker", name="Leave"):
    """Keeps users of a container from losing work to a change.

    From container (its name), service, script (path in the container) and arguments, as
    `cluster.service.LeaveSteps` has them, drains, seconds (that a drain may take), timeout (seconds
    until a container is up) and version (digest of what it is made from).
    """

    _kind = LeaveProvider


def _leave(props: dict[str, Any], seconds: int, timeout: float) -> None:
    service = props["service"]
    with explained(service):
        client = docker_engine.of(props, seconds + ANSWER_SECONDS)
        container = _find(client, props["container"])
        users = json.loads(_run(container, props, "users") or "[]") if container else []
        if users and props["drains"]:
            _await_those_before(client, service, timeout)
            _drained[container.name] = _start(container)
        drain = partial(_run, container, props, "drain", str(seconds))
        leaving.leave(service, users, drain, drains=props["drains"], seconds=seconds)


def _run(container: Any, props: dict[str, Any], *command: str) -> str:
    """Return the output of the service's script; "" if it fails and FORCE is set.

    Raises:
        ServiceError: it fails without FORCE: there may be users.
    """
    words = [PYTHON, props["script"], *props["arguments"], *command]
    code, (out, err) = container.exec_run(words, demux=True)
    if code == 0:
        return str((out or b"").decode())
    why = f"cannot ask {props['service']} for its users: {(err or b'').decode().strip()[-200:]}"
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
    """Wait until nodes that were drained before are up again: runs need somewhere to go.

    Raises:
        ServiceError: one is not up in time.
    """
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
