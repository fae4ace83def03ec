"""The schema of the docker resources: properties, defaults, and the effect of changing each.

It matches the plugin pulumi-resource-docker, so that either engine finds nothing to do in a state
of the other.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from engine.durations import format_duration, parse_duration
from engine.schema import Property, Table
from engine.values import Properties, has_unknown

DEFAULTS = "__defaults"  # names of the properties of an object that the program did not give
PREFIX = "docker:index/"


def _duration_fault(text: str) -> str:
    try:
        exact = format_duration(parse_duration(text))
    except ValueError as error:
        return str(error)
    # Docker reports it in this form: every preview would show a change.
    return "" if exact == text else f"write {exact!r} for {text!r}"


def _matches(pattern: str, hint: str) -> Callable[[Any], str]:
    return lambda v: "" if re.fullmatch(pattern, str(v)) else f"{v!r} must be {hint}"


_TEXT = Property()
_GIVEN = Property(required=True)
_COMPUTED = Property(computed=True)
_KEPT = Property(replaces=False)  # a change is only noted, or made in place
_DURATION = Property(required=True, fault=_duration_fault)
_LABELS = {"label": _GIVEN, "value": _GIVEN}

NETWORK: Table = {
    "name": _GIVEN,
    "driver": _COMPUTED,
    "ipamDriver": Property(default="default"),
    "labels": Property(fields=_LABELS),
}

VOLUME: Table = {"name": _GIVEN, "driverOpts": _TEXT, "labels": Property(fields=_LABELS)}

IMAGE: Table = {
    "name": _GIVEN,
    # Images are the cache of the next `up`: none is ever removed.
    "keepLocally": Property(required=True, replaces=False, default=True),
    "build": Property(
        fields={
            "context": _GIVEN,
            "dockerfile": Property(default="Dockerfile"),
            "buildArgs": _TEXT,
            "forceRemove": _TEXT,
            "remove": Property(default=True),
        }
    ),
}

CONTAINER: Table = {
    "name": _GIVEN,
    "image": _GIVEN,
    "command": Property(computed=True, ordered=True),
    "entrypoints": Property(computed=True, ordered=True),
    "envs": _COMPUTED,
    "labels": Property(computed=True, fields=_LABELS),
    "init": _COMPUTED,
    "networkMode": Property(default="bridge"),
    "networksAdvanced": Property(fields={"name": _GIVEN, "aliases": _TEXT}),
    "ports": Property(
        fields={
            "internal": _GIVEN,
            "external": _GIVEN,
            "ip": _GIVEN,
            "protocol": Property(default="tcp"),
        }
    ),
    "volumes": Property(
        fields={"volumeName": _TEXT, "hostPath": _TEXT, "containerPath": _GIVEN, "readOnly": _TEXT}
    ),
    "uploads": Property(
        fields={
            "file": _GIVEN,
            "content": _GIVEN,
            "permissions": Property(
                required=True, fault=_matches("0[0-7]{3}", "four octal digits, as 0644")
            ),
        },
    ),
    "devices": Property(fields={"hostPath": _GIVEN, "permissions": Property(default="rwm")}),
    # A list of devices ("device=0,2") means something else to the plugin.
    "gpus": Property(fault=_matches("device=[^,]+", "'device=<one index or UUID>'")),
    "groupAdds": _TEXT,
    "capabilities": Property(fields={"drops": _TEXT}),
    "securityOpts": _COMPUTED,
    "shmSize": _COMPUTED,
    "memory": _KEPT,
    "memorySwap": _KEPT,
    "logDriver": _COMPUTED,
    "logOpts": _TEXT,
    "healthcheck": Property(
        computed=True,
        ordered=True,
        fields={
            "tests": _GIVEN,
            "interval": _DURATION,
            "timeout": _DURATION,
            "startPeriod": _DURATION,
            "startInterval": Property(default="0s"),
            "retries": _GIVEN,
        },
    ),
    "restart": Property(
        required=True,
        replaces=False,
        fault=_matches(
            "no|on-failure|always|unless-stopped", "no, on-failure, always or unless-stopped"
        ),
    ),
    "stopTimeout": _COMPUTED,
    "mustRun": Property(required=True, replaces=False),
    "start": Property(default=True, replaces=False),
    "waitTimeout": Property(default=60, replaces=False),
    "destroyGraceSeconds": _KEPT,
    "removeVolumes": Property(default=True, replaces=False),
    "containerReadRefreshTimeoutMilliseconds": Property(default=15000, replaces=False),
}

TABLES = {
    f"{PREFIX}network:Network": NETWORK,
    f"{PREFIX}volume:Volume": VOLUME,
    f"{PREFIX}remoteImage:RemoteImage": IMAGE,
    f"{PREFIX}container:Container": CONTAINER,
}


def fill(value: Any, table: Table) -> Any:
    """Return the inputs of an object, or of a list of objects, with the plugin's defaults."""
    if isinstance(value, list):
        return [fill(item, table) for item in value]
    if not isinstance(value, dict):
        return value  # not known yet
    given = {
        key: fill(item, table[key].fields) if table[key].fields else item
        for key, item in value.items()
        if item is not None
    }
    defaults = {
        key: known.default
        for key, known in table.items()
        if known.default is not None and key not in given
    }
    return given | defaults | {DEFAULTS: sorted(defaults)}


def differing(table: Table, olds: Properties, news: Properties) -> list[str]:
    """Properties of the program that differ from the recorded or real ones."""
    return [
        key
        for key, known in table.items()
        if (key in news or not known.computed)
        and (
            has_unknown(news.get(key))
            or canonical(olds.get(key), ordered=known.ordered)
            != canonical(news.get(key), ordered=known.ordered)
        )
    ]


def without_notes(value: Any) -> Any:
    """Inputs in the form of outputs: without the names of the defaults in them."""
    if isinstance(value, dict):
        return {key: without_notes(item) for key, item in value.items() if key != DEFAULTS}
    return [without_notes(item) for item in value] if isinstance(value, list) else value


def canonical(value: Any, *, ordered: bool = False) -> Any:
    """A value's form for comparisons: without zeros and empty collections, sets sorted."""
    if isinstance(value, dict):
        fields = {k: canonical(v, ordered=ordered) for k, v in value.items() if k != DEFAULTS}
        return {k: v for k, v in fields.items() if v is not None} or None
    if isinstance(value, list):
        items = [canonical(item, ordered=ordered) for item in value]
        return (
            items if ordered else sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
        ) or None
    return value or None
