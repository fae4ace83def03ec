"""The Docker Engine that containers run on: reached as Docker's own client reaches it.

DOCKER_HOST says where it is, else the socket of this machine; pulumi-docker reads the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulumi

if TYPE_CHECKING:
    import docker

SOCKET = Path("/var/run/docker.sock")
MIN_API = (1, 41)  # Engine 20.10: the oldest whose answers were compared
MIN_ENGINE = "20.10"
PING_SECONDS = 10


class EngineUnavailableError(pulumi.RunError):
    """No Docker Engine that could be used; the message says what to do."""


def client(timeout: int = 60) -> docker.DockerClient:
    """Return a client of the Engine.

    Args:
        timeout: seconds that one answer may take.

    Raises:
        EngineUnavailableError: it does not answer, is too old, or may not be used.
    """
    # Not at the top: a stack of processes needs none of it, and it costs every `up` 0.1 s.
    import docker  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    try:
        found = docker.from_env(timeout=timeout)
        version = str(found.api.version()["ApiVersion"])
    except DockerException as error:
        raise EngineUnavailableError(_advice(error)) from None
    if tuple(int(part) for part in version.split(".")) < MIN_API:
        raise EngineUnavailableError(
            f"the Docker Engine at {_place()} speaks API {version}; {MIN_API[0]}.{MIN_API[1]} "
            f"(Engine {MIN_ENGINE}) or later is needed: get a newer one, or set runtime to process"
        )
    return found


def answers() -> bool:
    """Return whether an Engine is there that this user may use."""
    if not os.environ.get("DOCKER_HOST") and not os.access(SOCKET, os.R_OK | os.W_OK):
        return False
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


def _place() -> str:
    return os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"


def _advice(error: Exception) -> str:
    text = str(error)
    if "Permission denied" in text:
        return (
            f"the Docker Engine at {_place()} may not be used by this user; join the group docker "
            "(sudo usermod -aG docker $USER, then log in again), or set runtime to process"
        )
    return (
        f"no Docker Engine answers at {_place()} ({text}); start it (sudo systemctl start docker), "
        "point DOCKER_HOST at another one, or set runtime to process"
    )
