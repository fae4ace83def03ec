"""The Docker Engine that containers run on: reached as Docker's own client reaches it.

DOCKER_HOST names it, else it is the socket of this machine; pulumi-docker reads the same. The SDK
is imported when an Engine is used: that takes 0.1 s, which a stack of processes saves.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import docker

HOST = "DOCKER_HOST"
SOCKET = Path("/var/run/docker.sock")
MIN_API = (1, 41)  # Engine 20.10: the oldest whose answers were compared
MIN_ENGINE = "20.10"
# Schemes that need TLS, with both ends checked.
NETWORK_SCHEMES = ("tcp", "http", "https")


class EngineUnavailableError(Exception):
    """No Docker Engine that could be used; the message ends with what to do."""


def connect(timeout: int = 60) -> docker.DockerClient:
    """Return a client of the Engine.

    Args:
        timeout: seconds that the Engine may be silent.

    Raises:
        EngineUnavailableError: it does not answer, is too old, or may not be used.
    """
    import docker  # noqa: PLC0415
    from docker.errors import DockerException  # noqa: PLC0415

    refuse_open_host()
    try:
        client = docker.from_env(timeout=timeout, use_ssh_client=True)
    except (DockerException, OSError) as error:  # OSError: also a request without an answer
        raise EngineUnavailableError(_advice(error)) from None
    version = str(client.api.api_version)  # the Engine's own
    if tuple(int(part) for part in version.split(".")) < MIN_API:
        raise EngineUnavailableError(
            f"the Docker Engine at {place()} speaks API {version}; {MIN_API[0]}.{MIN_API[1]} "
            f"(Engine {MIN_ENGINE}) or later is needed: get a newer one"
        )
    return client


def refuse_open_host() -> None:
    """Refuse an Engine that is reached over a network unencrypted or unchecked.

    Raises:
        EngineUnavailableError: DOCKER_HOST names such an Engine.
    """
    host = os.environ.get(HOST, "")
    scheme = host.partition("://")[0] if "://" in host else "tcp"
    if not host or scheme not in NETWORK_SCHEMES or os.environ.get("DOCKER_TLS_VERIFY"):
        return
    raise EngineUnavailableError(
        f"DOCKER_HOST = {host!r} without TLS: anyone who reaches that port is root there, and "
        "secrets would pass in the clear. Use DOCKER_HOST=ssh://user@host, or set "
        "DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH"
    )


def place() -> str:
    """Return the Engine's address."""
    return os.environ.get(HOST) or f"unix://{SOCKET}"


def pull(api: docker.APIClient, reference: str) -> str:
    """Have the Engine fetch an image from its registry.

    Args:
        api: client of the Engine.
        reference: name:tag or name@digest.

    Returns:
        The error; "" when the image is there.
    """
    from docker.errors import DockerException  # noqa: PLC0415
    from docker.utils import parse_repository_tag  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    repository, tag = parse_repository_tag(reference)
    try:
        lines = api.pull(repository, tag or "latest", stream=True, decode=True)
        return next((str(line["error"]) for line in lines if "error" in line), "")
    except DockerException as error:
        return str(getattr(error, "explanation", None) or error)
    except (RequestException, HTTPError) as error:  # the second where an answer had begun
        return f"the Engine broke off: {error}"


def _advice(error: Exception) -> str:
    cause = _cause(error)
    if cause is not None and cause.errno in (errno.EACCES, errno.EPERM):
        return (
            f"the Docker Engine at {place()} may not be used by this user; join the group docker "
            "(sudo usermod -aG docker $USER, then log in again)"
        )
    return (
        f"no Docker Engine answers at {place()} ({cause.strerror if cause else error}); start it "
        "(sudo systemctl start docker) or point DOCKER_HOST at another one"
    )


def _cause(error: BaseException | None) -> OSError | None:
    """Return the system's own error: libraries wrap it several times, each in its own words."""
    if error is None or (isinstance(error, OSError) and error.strerror):
        return error
    return _cause(error.__cause__ or error.__context__)
