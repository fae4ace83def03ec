"""The Docker Engine that containers of a stack run on, and its abilities."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi

from cluster.provider import Args, Given, say
from trainyard.access import docker_client
from trainyard.access.ssh import Connection

if TYPE_CHECKING:
    import docker

LOOPBACK_IS_CLOSED = 28  # major version since which outside packets cannot reach it
PING_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of a container that the Engine enforces; a kernel may lack support for some."""

    memory: bool
    swap: bool
    processes: bool


class EngineUnavailableError(pulumi.RunError):
    """No usable Docker Engine; the message says what to do."""


class EngineArgs(Args):
    """Arguments of a resource on an Engine.

    Attributes:
        host: the Engine's machine, as Connection.of takes it; None for this one.
    """

    host: Given[Mapping[str, Any] | None] = None

    @property
    def machine(self) -> Connection | None:
        """The machine of the Engine; None for this one."""
        return Connection.of(self.host) if self.host else None

    def engine(self, timeout: int = 60) -> "docker.DockerClient":
        return client(timeout, self.machine)


def client(timeout: int = 60, machine: Connection | None = None) -> "docker.DockerClient":
    """Return a client of the Engine here or there, which may be silent for the timeout.

    Raises:
        EngineUnavailableError: it does not answer, is too old, or may not be used.
        SshError: the other machine cannot be reached.
    """
    if machine is None:
        refuse_open_host()
    try:
        return docker_client.connect(timeout, machine)
    except docker_client.EngineUnavailableError as error:
        raise EngineUnavailableError(f"{error}, or set runtime to process") from None


def refuse_open_host() -> None:
    """Refuse an Engine that is reached over a network unencrypted, or unchecked.

    Raises:
        EngineUnavailableError: DOCKER_HOST names such an Engine.
    """
    try:
        docker_client.refuse_open_host()
    except docker_client.EngineUnavailableError as error:
        raise EngineUnavailableError(str(error)) from None


def answers() -> bool:
    """Return whether this user may use an Engine.

    Raises:
        EngineUnavailableError: the way to it is open to others.
    """
    here = docker_client.SOCKET
    if not os.environ.get(docker_client.HOST) and not os.access(here, os.R_OK | os.W_OK):
        return False
    refuse_open_host()  # not silently another runtime
    try:
        client(PING_SECONDS)
    except EngineUnavailableError:
        return False
    return True


def info(machine: Connection | None = None) -> dict[str, Any]:
    """Return the answer of the Engine's API to /info; see client.

    Raises:
        EngineUnavailableError: it cannot be used.
    """
    answer: dict[str, Any] = client(machine=machine).info()
    return answer


def bounds(answer: Mapping[str, Any]) -> Bounds:
    """Return the bounds that an Engine enforces, by its answer to /info."""
    return Bounds(
        memory=answer["MemoryLimit"], swap=answer["SwapLimit"], processes=answer["PidsLimit"]
    )


def lets_neighbours_in(version: str) -> bool:
    """Return whether others reach ports that the Engine publishes on loopback, as before 28."""
    return int(version.partition(".")[0]) < LOOPBACK_IS_CLOSED


def fetch(found: Any, reference: str) -> str | None:
    """Pull an image that the Engine's machine lacks; return the reason if it is not available."""
    from docker.errors import ImageNotFound  # noqa: PLC0415

    try:
        found.api.inspect_image(reference)
    except ImageNotFound:
        say(f"pulling {reference}")
        return docker_client.pull(found.api, reference) or None
    return None
