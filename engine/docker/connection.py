"""The connection to a Docker Engine, and helpers for all its resources."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from docker.errors import APIError, DockerException, NotFound
from requests import RequestException

from engine.errors import EngineError
from engine.providers import Say
from engine.values import Properties
from trainyard.access import docker_client
from trainyard.access.ssh import Connection

T = TypeVar("T")


@functools.cache
def connect(machine: Connection | None) -> Any:
    """A client of a Docker Engine: another machine's, else DOCKER_HOST's, else this machine's.

    Raises:
        EngineError: it is absent, too old, or closed to this user.
        SshError: the machine cannot be reached.
    """
    try:
        return docker_client.connect(machine=machine).api
    except docker_client.EngineUnavailableError as error:
        raise EngineError(str(error)) from None


class Resources:
    """Resources of one type on a Docker Engine. See `Actions` for the methods of each class."""

    def __init__(self, client: Any, say: Say) -> None:
        self._client = client
        self._say = say

    def update(self, _id: str, olds: Properties, _news: Properties) -> Properties:
        """Return the same outputs: Docker changes neither networks nor volumes."""
        return olds


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an error of Docker's into one message about `what`."""
    try:
        yield
    except (DockerException, RequestException) as error:
        reason = error.explanation if isinstance(error, APIError) else None
        raise EngineError(f"{what}: {reason or error}") from None


def look(what: str, ask: Callable[[], T]) -> T | None:
    """Docker's answer about `what`; None if it does not exist."""
    with explained(what), suppress(NotFound):
        return ask()
    return None


def to_labels(labels: list[Properties]) -> dict[str, str]:
    """Docker's form of labels."""
    return {label["label"]: label["value"] for label in labels}


def from_labels(labels: dict[str, str] | None) -> list[Properties]:
    """The plugin's form of labels."""
    return [{"label": key, "value": value} for key, value in sorted((labels or {}).items())]


def fetch_image(client: Any, name: str, say: Say) -> Properties:
    """The image, pulled when this machine lacks it.

    Raises:
        EngineError: it cannot be pulled.
    """
    found: Properties | None = look(f"image {name}", lambda: client.inspect_image(name))
    if found is not None:
        return found
    say("info", f"pulling the image {name}")
    if reason := docker_client.pull(client, name):
        raise EngineError(
            f"the image {name} is not on this machine and cannot be pulled ({reason}); load it "
            "(docker load), tag one with this name, or name another one"
        )
    pulled: Properties = client.inspect_image(name)
    return pulled
