"""The Docker Engine that containers run on: reached as Docker's own client reaches it.

DOCKER_HOST says where it is, else the socket of this machine; pulumi-docker reads the same.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulumi

from infra.provided import say

if TYPE_CHECKING:
    import docker

SOCKET = Path("/var/run/docker.sock")
MIN_API = (1, 41)  # Engine 20.10: the oldest whose answers were compared
MIN_ENGINE = "20.10"
LOOPBACK_IS_CLOSED = 28  # major version since which packets from outside are kept from it
PING_SECONDS = 10
# Ways to an Engine that need TLS, with both ends checked.
NETWORK_SCHEMES = ("tcp", "http", "https")


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
    # Not at the top: a stack of processes needs none of it, and it costs every `up` 0.1 s.
    import docker  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    refuse_open_host()
    try:
        found = docker.from_env(timeout=timeout, use_ssh_client=True)
        version = str(found.api.version()["ApiVersion"])
    except (DockerException, OSError) as error:  # OSError: also a request without an answer
        raise EngineUnavailableError(_advice(error)) from None
    if tuple(int(part) for part in version.split(".")) < MIN_API:
        raise EngineUnavailableError(
            f"the Docker Engine at {_place()} speaks API {version}; {MIN_API[0]}.{MIN_API[1]} "
            f"(Engine {MIN_ENGINE}) or later is needed: get a newer one, or set runtime to process"
        )
    return found


def refuse_open_host() -> None:
    """Refuse an Engine that is reached over a network unencrypted, or unchecked.

    Raises:
        EngineUnavailableError: DOCKER_HOST names such a one.
    """
    host = os.environ.get("DOCKER_HOST", "")
    scheme = host.partition("://")[0] if "://" in host else "tcp"
    if not host or scheme not in NETWORK_SCHEMES or os.environ.get("DOCKER_TLS_VERIFY"):
        return
    raise EngineUnavailableError(
        f"DOCKER_HOST = {host!r} without TLS: whoever reaches that port is root there, and secrets "
        "would pass in the clear. Use DOCKER_HOST=ssh://user@host, or set DOCKER_TLS_VERIFY=1 and "
        "DOCKER_CERT_PATH"
    )


def answers() -> bool:
    """Return whether an Engine is there that this user may use.

    Raises:
        EngineUnavailableError: the way to it is open to others.
    """
    if not os.environ.get("DOCKER_HOST") and not os.access(SOCKET, os.R_OK | os.W_OK):
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
    from docker.errors import APIError, ImageNotFound  # noqa: PLC0415
    from docker.utils import parse_repository_tag  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    try:
        found.api.inspect_image(reference)
    except ImageNotFound:
        say(f"pulling {reference}")
    else:
        return None
    repository, tag = parse_repository_tag(reference)
    try:
        lines = found.api.pull(repository, tag or "latest", stream=True, decode=True)
        return next((str(line["error"]) for line in lines if "error" in line), None)
    except APIError as error:
        return str(error.explanation)
    except (RequestException, HTTPError) as error:  # the second where an answer had begun
        return f"the Engine broke off: {error}"


def _place() -> str:
    return os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"


def _advice(error: Exception) -> str:
    cause = _cause(error)
    if cause is not None and cause.errno in (errno.EACCES, errno.EPERM):
        return (
            f"the Docker Engine at {_place()} may not be used by this user; join the group docker "
            "(sudo usermod -aG docker $USER, then log in again), or set runtime to process"
        )
    return (
        f"no Docker Engine answers at {_place()} ({cause.strerror if cause else error}); start it "
        "(sudo systemctl start docker), point DOCKER_HOST at another one, or set runtime to process"
    )


def _cause(error: BaseException | None) -> OSError | None:
    """Return what the system said: libraries wrap it several times, each in words of its own."""
    if error is None or (isinstance(error, OSError) and error.strerror):
        return error
    return _cause(error.__cause__ or error.__context__)
