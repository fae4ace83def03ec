"""The end of an idle cluster: its watch's verdict, and postponing it."""

from datetime import UTC, datetime
from typing import Any

from trainyard import json_values
from trainyard.access.outputs import IDLE_END_URL
from trainyard.client.dashboard import DashboardError, JsonServer, RefusedError
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Service, StackOutputs

TIMEOUT_S = 10
SHOWN = 2  # reasons


def watch(outputs: StackOutputs) -> Service | None:
    """Return the idle watch of a cluster; None if only the deadline ends the machines."""
    found = (each for each in outputs.services if each.output == IDLE_END_URL and each.url)
    return next(found, None)


def summary(outputs: StackOutputs) -> str:
    """Return when the machines end, or why not; outputs have addresses that answer here."""
    try:
        return described(_ask(outputs, "/verdict"))
    except ClientError as error:
        return f"not known: {error}"


def keep(outputs: StackOutputs, seconds: int) -> str:
    """Postpones the end; returns the new verdict.

    Raises:
        ClientError: the stack has no such end, its watch refuses, or does not answer.
    """
    return described(_ask(outputs, "/keep", {"seconds": seconds}))


def described(verdict: dict[str, Any]) -> str:
    """A verdict in words."""
    minutes = f"{verdict['idle_seconds'] / 60:g} idle min"
    kept = ""
    if verdict["keep_until"]:
        kept = f"; kept until {_time(verdict['keep_until'])}"
    if verdict["end"]:
        return f"now, after {minutes}"
    if verdict["ends_in"] is not None:
        left = max(0, round(verdict["ends_in"] / 60))
        return f"in {left} min: idle since {_time(verdict['idle_since'])}, {minutes} are set{kept}"
    active = verdict["active"]
    more = f" and {len(active) - SHOWN} more" if len(active) > SHOWN else ""
    return f"after {minutes}; active: {'; '.join(active[:SHOWN])}{more}{kept}"


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def _ask(outputs: StackOutputs, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
    service = watch(outputs)
    if service is None:
        raise ClientError(
            f"stack {outputs.stack!r} does not end when idle: idleEnd is not set; "
            "its machines end at their deadline, which lambdaCloud.ttlHours or reservation sets"
        )
    server = JsonServer(service.url, {"Authorization": f"Bearer {service.password}"})
    try:
        found: dict[str, Any] = (
            server.get(path, TIMEOUT_S)
            if content is None
            else server.post(path, content, TIMEOUT_S)
        )
    except RefusedError as error:
        said = json_values.parse_object(error.text.encode()) or {}
        raise ClientError(str(said.get("error") or f"the watch answers {error.status}")) from None
    except DashboardError as error:
        raise ClientError(
            f"the idle watch of stack {outputs.stack!r} does not answer ({error}): "
            "its machines end at their deadline at the latest"
        ) from None
    return found
