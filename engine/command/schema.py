"""The schema of the command resources: their properties, and the refused values.

It matches the plugin pulumi-resource-command 1.2.1, so that either engine finds nothing to do in a
state of the other.
"""

import re
from collections.abc import Iterator
from typing import Any

from engine.assets import is_asset
from engine.schema import Property, Table, faults_of
from engine.values import Properties, holds_secret, reveal, secret, secret_keys, secret_strings

REMOTE = "command:remote:Command"
COPY = "command:remote:CopyToRemote"
PRIVATE = "privateKey"  # the only part of a connection that is really secret
HOST_KEY = re.compile(r"(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/]+=*( .*)?", re.DOTALL)


def host_key_fault(connection: Properties) -> str:
    """Return why the host cannot be identified; "" when it can."""
    host, key = connection.get("host"), connection.get("hostKey") or ""
    if not key:
        return (
            f"hostKey of {host} is missing, and the embedded engine only connects to a host that "
            "it can identify; give the host's public key, from its "
            "/etc/ssh/ssh_host_ed25519_key.pub"
        )
    if not HOST_KEY.fullmatch(key.strip()):
        return (
            f"hostKey {key[:40]!r} of {host} is not a public key; give it as in its "
            "/etc/ssh/ssh_host_ed25519_key.pub: ssh-ed25519 AAAA…"
        )
    return ""


def _asset_fault(value: Any) -> str:
    return "" if is_asset(value) else "must be a FileAsset"


def _matches(what: str, pattern: str) -> Property:
    def fault(value: Any) -> str:
        right = re.fullmatch(pattern, str(value))
        return "" if right else f"{value!r} is not a {what}; give one without quoting"

    return Property(required=True, fault=fault)


def _number(least: int, most: int) -> Property:
    def fault(value: Any) -> str:
        right = isinstance(value, int) and least <= value <= most
        return "" if right else f"{value!r} must be from {least} to {most}"

    return Property(required=True, fault=fault)


_CONNECTION = Property(
    required=True,
    replaces=False,
    fault=host_key_fault,
    fields={
        # An address or a name; a name of a user, also one of a domain.
        "host": _matches("host", r"[\w.:%\[\]-]+"),
        "user": _matches("user", r"[\w.@+\\-]+"),
        "port": _number(1, 65535),
        "hostKey": Property(),
        PRIVATE: Property(),
        "dialErrorLimit": _number(0, 10**6),
        "perDialTimeout": _number(1, 10**6),
    },
)
_COMMON = {"connection": _CONNECTION, "triggers": Property()}
_GIVEN = Property(required=True, replaces=False)
TABLES: dict[str, Table] = {
    REMOTE: {**_COMMON, "create": _GIVEN, "delete": Property(replaces=False)},
    COPY: {
        **_COMMON,
        "source": Property(required=True, replaces=False, fault=_asset_fault),
        "remotePath": _GIVEN,
    },
}


def check(type_: str, news: Properties) -> tuple[Properties, list[str]]:
    """The inputs in their recorded form, and a line for each fault.

    Raises:
        UnsupportedError: a property is not known.
    """
    faults = faults_of(news, TABLES[type_], type_.rpartition(":")[2])
    connection = news.get("connection")
    if isinstance(connection, dict):
        given = {key: value for key, value in connection.items() if value is not None}
        # A secret inside a secret: without this mark the plugin sees a change.
        news = news | {"connection": secret_keys(given, [PRIVATE])}
    return news, faults


def secret_outputs(type_: str, inputs: Properties) -> list[str]:
    """Outputs that may reveal a secret: all of a command with a secret input.

    The plugin leaves them in the clear. The connection, which always is a secret, is not given to
    the command.
    """
    given = ("create", "delete", "triggers")
    told = type_ == REMOTE and any(holds_secret(inputs.get(key)) for key in given)
    return ["stdout", "stderr"] if told else []


def hidden(type_: str, properties: Properties) -> Iterator[str]:
    """Texts that must not be shown. The SDK marks a whole connection; only its key is hidden."""
    told = {key: value for key, value in properties.items() if not key.startswith("__")}
    connection = reveal(told.get("connection"))
    if type_ in TABLES and isinstance(connection, dict):
        told["connection"] = secret(connection.get(PRIVATE))
    return secret_strings(told)
