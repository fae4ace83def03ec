"""What the docker resources are made of: properties, defaults, what a change of each means.

As the plugin pulumi-resource-docker has it, so that either engine finds nothing to do in a state of
the other. Only what is in these tables is known; the rest is refused by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.durations import format_duration, parse_duration
from engine.errors import UnsupportedError
from engine.values import Properties, has_unknown

DEFAULTS = "__defaults"  # names of the properties of an object that the program did not give


@dataclass(frozen=True, kw_only=True)
class Property:
    """One property of a resource, or of an object inside one.

    Attributes:
        required: the program has to give it.
        default: what it is when the program does not give it.
        computed: Docker decides what it is when the program does not give it.
        replaces: a change needs a new resource.
        ordered: the order of a list matters.
        fields: properties of the object, or of each object of the list.
        fault: what is wrong with a value; "" for nothing.
    """

    required: bool = False
    default: Any = None
    computed: bool = False
    replaces: bool = True
    ordered: bool = False
    fields: dict[str, Property] = field(default_factory=dict)
    fault: Callable[[Any], str] = lambda _: ""


Table = dict[str, Property]


def _duration_fault(text: str) -> str:
    try:
        exact = format_duration(parse_duration(text))
    except ValueError as error:
        return str(error)
    # Docker tells it so: every preview would show a change.
    return "" if exact == text else f"write {exact!r} for {text!r}"


def _upload_fault(uploads: list[Properties]) -> str:
    empty = [
        upload.get("file")
        for upload in uploads
        if bool(upload.get("content")) == bool(upload.get("contentBase64"))
    ]
    return f"{empty[0]} needs content or contentBase64, not empty, not both" if empty else ""


def _matches(pattern: str, hint: str) -> Callable[[Any], str]:
    return lambda v: "" if re.fullmatch(pattern, str(v)) else f"{v!r} must be {hint}"


_TEXT = Property()
_GIVEN = Property(required=True)
_COMPUTED = Property(computed=True)
_KEPT = Property(replaces=False)  # a change is only noted, or made in place
_DURATION = Property(default="0s", fault=_duration_fault)
_LABELS = {"label": _GIVEN, "value": _GIVEN}

NETWORK: Table = {
    "name": _GIVEN,
    "driver": _COMPUTED,
    "internal": _COMPUTED,
    "attachable": _TEXT,
    "ipv6": _TEXT,
    "ipamDriver": Property(default="default"),
    "options": _COMPUTED,
    "labels": Property(fields=_LABELS),
}

VOLUME: Table = {
    "name": _GIVEN,
    "driver": _COMPUTED,
    "driverOpts": _TEXT,
    "labels": Property(fields=_LABELS),
}

IMAGE: Table = {
    "name": _GIVEN,
    "keepLocally": _KEPT,
    "forceRemove": _KEPT,
    "triggers": _TEXT,
    "build": Property(
        fields={
            "context": _GIVEN,
            "dockerfile": Property(default="Dockerfile"),
            "buildArgs": _TEXT,
            "label": _TEXT,
            "tags": _TEXT,
            "target": _TEXT,
            "networkMode": _TEXT,
            "noCache": _TEXT,
            "pullParent": _TEXT,
            "forceRemove": _TEXT,
            "remove": Property(default=True),
            "useLegacyBuilder": _TEXT,
        }
    ),
}

CONTAINER: Table = {
    "name": _GIVEN,
    "image": _GIVEN,
    "command": Property(computed=True, ordered=True),
    "entrypoints": Property(computed=True, ordered=True),
    "envs": _COMPUTED,
    "user": _COMPUTED,
    "workingDir": _COMPUTED,
    "hostname": _COMPUTED,
    "labels": Property(computed=True, fields=_LABELS),
    "init": Property(computed=True, replaces=False),
    "readOnly": _TEXT,
    "tmpfs": _KEPT,
    "networkMode": Property(default="bridge"),
    "networksAdvanced": Property(fields={"name": _GIVEN, "aliases": _TEXT}),
    "ports": Property(
        fields={
            "internal": _GIVEN,
            "external": _GIVEN,
            "ip": Property(default="0.0.0.0"),  # noqa: S104 the plugin's default, as it is recorded
            "protocol": Property(default="tcp"),
        }
    ),
    "hosts": Property(fields={"host": _GIVEN, "ip": _GIVEN}),
    "dns": _TEXT,
    "volumes": Property(
        fields={"volumeName": _TEXT, "hostPath": _TEXT, "containerPath": _GIVEN, "readOnly": _TEXT}
    ),
    "mounts": Property(
        fields={"type": _GIVEN, "target": _GIVEN, "source": _TEXT, "readOnly": _TEXT}
    ),
    "uploads": Property(
        fault=_upload_fault,
        fields={
            "file": _GIVEN,
            "content": _TEXT,
            "contentBase64": _TEXT,
            "executable": _TEXT,
            "permissions": Property(fault=_matches("0[0-7]{3}", "four octal digits, as 0644")),
        },
    ),
    "devices": Property(
        fields={
            "hostPath": _GIVEN,
            "containerPath": _TEXT,
            "permissions": Property(default="rwm"),
        }
    ),
    # A list of devices ("device=0,2") means something else to the plugin.
    "gpus": Property(fault=_matches("all|device=[^,]+", "'all' or 'device=<one index or UUID>'")),
    "groupAdds": _TEXT,
    "ulimits": Property(fields={"name": _GIVEN, "soft": _GIVEN, "hard": _GIVEN}),
    "capabilities": Property(fields={"adds": _TEXT, "drops": _TEXT}),
    "securityOpts": _COMPUTED,
    "shmSize": _COMPUTED,
    "memory": _KEPT,
    "memoryReservation": _KEPT,
    "memorySwap": _KEPT,
    "cpuShares": _KEPT,
    "cpuSet": _KEPT,
    "logDriver": _COMPUTED,
    "logOpts": _TEXT,
    "healthcheck": Property(
        computed=True,
        replaces=False,
        ordered=True,
        fields={
            "tests": _TEXT,
            "interval": _DURATION,
            "timeout": _DURATION,
            "startPeriod": _DURATION,
            "startInterval": _DURATION,
            "retries": _TEXT,
        },
    ),
    "restart": Property(
        default="no",
        replaces=False,
        fault=_matches(
            "no|on-failure|always|unless-stopped", "no, on-failure, always or unless-stopped"
        ),
    ),
    "maxRetryCount": _KEPT,
    "stopSignal": _COMPUTED,
    "stopTimeout": _COMPUTED,
    "mustRun": Property(default=True, replaces=False),
    "start": Property(default=True, replaces=False),
    "wait": _KEPT,
    "waitTimeout": Property(default=60, replaces=False),
    "attach": _KEPT,
    "logs": _KEPT,
    "destroyGraceSeconds": _KEPT,
    "removeVolumes": Property(default=True, replaces=False),
    "containerReadRefreshTimeoutMilliseconds": Property(default=15000, replaces=False),
}


def fill(values: Properties, table: Table, where: str, faults: list[str]) -> Properties:
    """The inputs with defaults, recorded as the plugin records them.

    Args:
        values: what the program gives.
        table: what there is.
        where: the type, and the path to an object inside.
        faults: a line is appended for each one found.

    Raises:
        UnsupportedError: a property is not in the table.
    """
    # What the program ignores changes of comes from the state, with its notes.
    given = {k: v for k, v in values.items() if v is not None and k != DEFAULTS}
    if unknown := sorted(given.keys() - table.keys()):
        raise UnsupportedError(f"{where}.{unknown[0]}")
    for key, known in table.items():
        path = f"{where}.{key}"
        value: Any = given.get(key)
        if value in (None, "") and known.required:
            faults.append(f"{path} has to be given")
        elif value is None or has_unknown(value):
            continue
        elif fault := known.fault(value):
            faults.append(f"{path}: {fault}")
        if known.fields and isinstance(value, list):
            given[key] = [fill(item, known.fields, path, faults) for item in value]
        elif known.fields:
            given[key] = fill(value, known.fields, path, faults)
    # As the plugin: a default that is the zero of its type is not recorded.
    defaults = {
        key: known.default
        for key, known in table.items()
        if known.default is not None and key not in given
    }
    return given | defaults | {DEFAULTS: sorted(defaults)}


def differing(table: Table, olds: Properties, news: Properties) -> list[str]:
    """Properties of the program that are not as they are recorded or found."""
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
    """Inputs as outputs have them: without the names of the defaults in them."""
    if isinstance(value, dict):
        return {key: without_notes(item) for key, item in value.items() if key != DEFAULTS}
    return [without_notes(item) for item in value] if isinstance(value, list) else value


def canonical(value: Any, *, ordered: bool = False) -> Any:
    """A value in the form in which it is compared: no zeros or empty collections, sets sorted."""
    if isinstance(value, dict):
        fields = {k: canonical(v, ordered=ordered) for k, v in value.items() if k != DEFAULTS}
        return {k: v for k, v in fields.items() if v is not None} or None
    if isinstance(value, list):
        items = [canonical(item, ordered=ordered) for item in value]
        return (
            items if ordered else sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
        ) or None
    return value or None
