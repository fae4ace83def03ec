"""How a Docker Engine is reached, and what its resources have in common."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.utils import parse_repository_tag, version_lt
from requests import RequestException

from engine.errors import EngineError
from engine.providers import Say
from engine.values import Properties

NETWORK_SCHEMES = ("tcp", "http", "https")  # they need TLS, with both ends checked
OLDEST_API = "1.41"  # Docker Engine 20.10


@functools.cache
def connect() -> Any:
    """A client of the Docker Engine that DOCKER_HOST names, else of this machine's.

    Raises:
        EngineError: it is absent, too old, or closed to this user.
    """
    settings = docker.utils.kwargs_from_env()
    host = settings.setdefault("base_url", "unix:///var/run/docker.sock")
    scheme = host.partition("://")[0] if "://" in host else "tcp"
    if scheme in NETWORK_SCHEMES and not os.environ.get("DOCKER_TLS_VERIFY"):
        raise EngineError(
            f"DOCKER_HOST = {os.environ['DOCKER_HOST']!r} without TLS: whoever reaches that port "
            "is root there; use DOCKER_HOST=ssh://user@host, or set DOCKER_TLS_VERIFY=1 and "
            "DOCKER_CERT_PATH"
        )
    try:
        client = docker.APIClient(**settings, use_ssh_client=True)
    except DockerException as error:
        if "Permission denied" in str(error):
            raise EngineError(
                f"no permission for the Docker Engine at {host}; join the group docker (sudo "
                "usermod -aG docker $USER) and log in again"
            ) from None
        raise EngineError(
            f"no Docker Engine answers at {host} ({error}); start it, or set DOCKER_HOST to one"
        ) from None
    if version_lt(client.api_version, OLDEST_API):
        raise EngineError(
            f"the Docker Engine at {host} has API {client.api_version}; at least {OLDEST_API} "
            "(Docker Engine 20.10) is needed: upgrade it"
        )
    return client


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn what Docker says went wrong into one message about `what`."""
    try:
        yield
    except (DockerException, RequestException) as error:
        reason = error.explanation if isinstance(error, APIError) else None
        raise EngineError(f"{what}: {reason or error}") from None


def to_labels(labels: list[Properties]) -> dict[str, str]:
    """Docker's form of labels."""
    return {label["label"]: label["value"] for label in labels}


def from_labels(labels: dict[str, str] | None) -> list[Properties]:
    """The plugin's form of labels."""
    return [{"label": key, "value": value} for key, value in sorted((labels or {}).items())]


def fetch_image(client: Any, name: str, say: Say) -> Properties:
    """The image, pulled when this machine lacks it.

    Raises:
        EngineError: it cannot be had.
    """
    found: dict[str, Any]
    try:
        found = client.inspect_image(name)
    except NotFound:
        pass
    else:
        return found
    say("info", f"pulling the image {name}")
    repository, tag = parse_repository_tag(name)
    try:
        for line in client.pull(repository, tag or "latest", stream=True, decode=True):
            if "error" in line:
                raise DockerException(line["error"])
        found = client.inspect_image(name)
    except (DockerException, RequestException) as error:
        reason = getattr(error, "explanation", None) or error
        raise EngineError(
            f"the image {name} is not on this machine and cannot be pulled ({reason}); load it "
            "(docker load), tag it so, or name another one"
        ) from None
    return found
