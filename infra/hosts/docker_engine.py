"""The Docker Engine that containers of a stack run on, and what it can do."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pulumi

from access import docker_client
from infra.provided import say

if TYPE_CHECKING:
    import docker

LOOPBACK_IS_CLOSED = 28  # major version since which packets from outside are kept from it
PING_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Which bounds of a container the Engine keeps; a kernel may lack what it takes."""

    memory: bool
    swap: bool
    processes: bool


class EngineUnavailableError(pulumi.RunError):
    """No Docker Engine that could be used; the message says what to do."""


def client(timeout: int = 60) -> docker.DockerClient:
    """Return a client of the Engine.

    Args:
        timeout: seconds that the Engine may be silent.

    Raises:
        EngineUnavailableError: it does not answer, is too old, or may not be used.
    """
    refuse_open_host()
    try:
        return docker_client.connect(timeout)
    except docker_client.EngineUnavailableError as error:
        raise EngineUnavailableError(f"{error}, or set runtime to process") from None


def refuse_open_host() -> None:
    """Refuse an Engine that is reached over a network unencrypted, or unchecked.

    Raises:
        EngineUnavailableError: DOCKER_HOST names such a one.
    """
    try:
        docker_client.refuse_open_host()
    except docker_client.EngineUnavailableError as error:
        raise EngineUnavailableError(str(error)) from None


def answers() -> bool:
    """Return whether an Engine is there that this user may use.

    Raises:
        EngineUnavailableError: the way to it is open to others.
    """
    here = docker_client.SOCKET
    if not os.environ.get(docker_client.HOST) and not os.access(here, os.R_OK | os.W_OK):
        return False
    refuse_open_host()  # not another runtime without a word
    try:
        client(PING_SECONDS)
    except EngineUnavailableError:
        return False
    return True


def info() -> dict[str, Any]:
    """Return what the Engine says of itself (the answer of its API's /info).

    Raises:
        EngineUnavailableError: it cannot be used.
    """
    answer: dict[str, Any] = client().info()
    return answer


def bounds(answer: dict[str, Any]) -> Bounds:
    """Return which bounds an Engine keeps, by what it says of itself."""
    return Bounds(
        memory=answer["MemoryLimit"], swap=answer["SwapLimit"], processes=answer["PidsLimit"]
    )


def lets_neighbours_in(version: str) -> bool:
    """Return whether others reach what this Engine publishes on loopback, as before version 28."""
    return int(version.partition(".")[0]) < LOOPBACK_IS_CLOSED


def fetch(found: Any, reference: str) -> str | None:
    """Have an image on the Engine's machine: pull it if it is not there.

    Args:
        found: the Engine.
        reference: name:tag or name@digest.

    Returns:
        What is wrong if it cannot be had.
    """
    from docker.errors import ImageNotFound  # noqa: PLC0415

    try:
        found.api.inspect_image(reference)
    except ImageNotFound:
        say(f"pulling {reference}")
        return docker_client.pull(found.api, reference) or None
    return None
