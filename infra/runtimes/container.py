"""What pulumi-docker has no resource for: a look at the Engine before, and a wait after.

pulumi-docker's own `wait` knows a container's health only as often as Docker asks for it, and does
not show why one is not healthy.
"""

import time
from typing import Any

import pulumi
from pulumi import dynamic

from infra.hosts import docker_engine
from infra.resource import difference, say
from infra.runtimes import ports as port_check

POLL_SECONDS = 0.2
LOG_LINES = 20
STARTS_LIMIT = 3  # a program that ended this often before it was up will not come up
STACK_LABEL = "trainyard.stack"
PROJECT_LABEL = "trainyard.project"


class NotReadyError(Exception):
    """A container did not come up; the message ends with its last log lines."""


class NamesInUseError(Exception):
    """Containers of these names are there already."""


class NodeProvider(dynamic.ResourceProvider):
    """The Engine as a stack uses it: what has to be free before, and what stays after."""

    serialize_as_secret_always = False  # captures nothing

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Another list is noted; nothing is replaced for it."""
        return difference(olds, news, replaces=[])

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Check names and ports."""
        _check(props, {}, [])
        return dynamic.CreateResult(docker_engine.info()["ID"], props)

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Check the names and ports that are new."""
        _check(news, olds["ports"], olds["names"])
        return dynamic.UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Say what is kept."""
        there = [volume.name for volume in docker_engine.client().volumes.list()]
        mine = f"{props['identity']}-"
        kept = [name for name in there if name.startswith(mine) or name in props["volumes"]]
        if names := " ".join(sorted(kept)):
            say(
                f"kept: volumes {names} (setting keepData; docker volume rm {names} "
                "when you no longer need them)"
            )


class ReadyProvider(dynamic.ResourceProvider):
    """A container that is up: it is on its network and its checks answer, or it has ended well."""

    serialize_as_secret_always = False  # captures nothing

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Another container, or one that does not run, is waited for anew."""
        found = difference(olds, news, replaces=[])
        found.changes = found.changes or not olds.get("ready", True)
        return found

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Wait."""
        _await(props)
        return dynamic.CreateResult(props["alias"], {**props, "ready": True})

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether the container runs, or has ended well."""
        return dynamic.ReadResult(id_, {**props, "ready": _runs(props)})

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Wait."""
        _await(news)
        return dynamic.UpdateResult({**news, "ready": True})


class Node(dynamic.Resource, module="docker", name="Node"):
    """What a stack needs of an Engine: names and ports that are free."""

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare a node.

        Args:
            name: of the resource.
            props: stack (its name), identity (what its volumes' names begin with), names of all
                containers, ports (numbers by setting), volumes (other names that stay).
            opts: of the resource.
        """
        super().__init__(NodeProvider(), name, props, opts)


class Ready(dynamic.Resource, module="docker", name="Ready"):
    """A container that is up.

    Attributes:
        container: its ID.
    """

    container: pulumi.Output[str]

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare a wait.

        Args:
            name: of the resource.
            props: container (its ID), network and alias that it is reached by, checks (commands),
                once (it has to end), timeout (seconds).
            opts: of the resource.
        """
        super().__init__(ReadyProvider(), name, {**props, "ready": None}, opts)


def _check(props: dict[str, Any], old_ports: dict[str, Any], old_names: list[str]) -> None:
    held = {number for numbers in old_ports.values() for number in numbers}
    port_check.refuse_held(
        {
            setting: [int(number) for number in numbers if number not in held]
            for setting, numbers in props["ports"].items()
        }
    )
    wanted = set(props["names"]) - set(old_names)
    faults = []
    for container in docker_engine.client().containers.list(all=True, ignore_removed=True):
        if container.name in wanted:
            labels = container.labels
            owner = "not made by Trainyard"
            if STACK_LABEL in labels:
                owner = f"made by stack {labels[STACK_LABEL]} of {labels.get(PROJECT_LABEL)}"
            faults.append(
                f"a container {container.name} is there already ({owner}). Remove it (docker rm -f "
                f"{container.name}), or set another prefix: pulumi config set containerPrefix "
                f"{props['stack']}-"
            )
    if faults:
        raise NamesInUseError("\n".join(faults))


def _await(props: dict[str, Any]) -> None:
    """Wait until a container is up.

    Raises:
        NotReadyError: it ended, or the time is over.
    """
    from docker.errors import APIError, NotFound  # noqa: PLC0415 (only where containers are)

    client = docker_engine.client()
    name = props["alias"]
    deadline = time.monotonic() + props["timeout"]
    try:
        container = client.containers.get(props["container"])
        if props["once"]:
            _await_end(container, name)
            return
        if not _connected(container, props["network"]):
            # pulumi-docker does not look at a container's networks again.
            client.networks.get(props["network"]).connect(container, aliases=[props["alias"]])
        waiting = list(props["checks"])
        said: str | None = None
        while True:
            state = container.attrs["State"]
            if state["Status"] in ("exited", "dead"):
                raise NotReadyError(_failure(container, name, f"ended ({state['ExitCode']})"))
            if container.attrs["RestartCount"] >= STARTS_LIMIT:
                times = container.attrs["RestartCount"]
                raise NotReadyError(_failure(container, name, f"ended {times} times"))
            if state["Running"] and not state["Restarting"]:
                while waiting and (said := _complaint(container, waiting[0])) is None:
                    del waiting[0]
            if not waiting:
                return
            if time.monotonic() > deadline:
                late = f"does not answer after {props['timeout']:g} s (setting startTimeoutSeconds)"
                late += f": {said}" if said else ""
                raise NotReadyError(_failure(container, name, late))
            time.sleep(POLL_SECONDS)
            container.reload()
    except NotFound:
        raise NotReadyError(
            f"{name}: its container was removed meanwhile; run `up` again"
        ) from None
    except APIError as error:
        raise NotReadyError(f"{name}: the Docker Engine says: {error.explanation}") from None


def _complaint(container: Any, check: list[str]) -> str | None:
    """Run a check in a container; what it says when it fails, None when it does not."""
    from docker.errors import APIError  # noqa: PLC0415

    try:
        code, output = container.exec_run(check)
    except APIError as error:  # it ended at this moment
        return str(error.explanation)
    return None if code == 0 else f"exit code {code}: {output.decode(errors='replace').strip()}"


def _await_end(container: Any, name: str) -> None:
    """Follow a container to its end; its log is the progress that the user sees."""
    for line in container.logs(stream=True, follow=True):
        say(f"{name}: {line.decode(errors='replace').rstrip()}")
    code = container.wait()["StatusCode"]
    if code:
        raise NotReadyError(_failure(container, name, f"ended with exit code {code}"))


def _runs(props: dict[str, Any]) -> bool:
    from docker.errors import NotFound  # noqa: PLC0415

    try:
        container = docker_engine.client().containers.get(props["container"])
    except NotFound:
        return False
    state = container.attrs["State"]
    if props["once"]:
        return bool(state["Status"] == "exited" and state["ExitCode"] == 0)
    return bool(state["Running"]) and _connected(container, props["network"])


def _connected(container: Any, network: str) -> bool:
    return network in container.attrs["NetworkSettings"]["Networks"]


def _failure(container: Any, name: str, what: str) -> str:
    log = container.logs(tail=LOG_LINES).decode(errors="replace").rstrip()
    return f"{name} {what}. Its last log lines (docker logs {container.name} has all):\n{log}"
