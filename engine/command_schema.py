"""What the command resources are made of: properties, defaults, what is refused.

As the plugin pulumi-resource-command 1.2.1 has it, so that either engine finds nothing to do in a
state of the other. What is not in these tables is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.assets import is_asset
from engine.errors import UnsupportedError
from engine.values import (
    UNKNOWN,
    Properties,
    holds_secret,
    reveal,
    secret,
    secret_keys,
    secret_strings,
)

LOCAL = "command:local:Command"
REMOTE = "command:remote:Command"
COPY = "command:remote:CopyToRemote"

_COMMAND = {
    "create",
    "update",
    "delete",
    "triggers",
    "stdin",
    "environment",
    "logging",
    "addPreviousOutputInEnv",
}
PROPERTIES = {
    LOCAL: _COMMAND | {"dir", "interpreter"},
    REMOTE: _COMMAND | {"connection"},
    COPY: {"connection", "source", "remotePath", "triggers"},
}
REQUIRED = {LOCAL: [], REMOTE: ["connection"], COPY: ["connection", "source", "remotePath"]}
CONNECTION_DEFAULTS = {"user": "root", "port": 22, "dialErrorLimit": 10, "perDialTimeout": 15}
CONNECTION_SECRETS = ("privateKey", "privateKeyPassword", "password")
CONNECTION = {"host", "hostKey", "agentSocketPath", *CONNECTION_SECRETS, *CONNECTION_DEFAULTS}
LOGGING = ("stdoutAndStderr", "stdout", "stderr", "none")
# An address or a name; a name of a user, also one of a domain.
HOST = re.compile(r"[\w.:%\[\]-]+")
USER = re.compile(r"[\w.@+\\-]+")
HOST_KEY = re.compile(r"(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/]+=*( .*)?", re.DOTALL)


def check(type_: str, news: Properties) -> tuple[Properties, list[str]]:
    """The inputs with the plugin's defaults, and a line for each fault.

    Raises:
        UnsupportedError: a property is not known.
    """
    where = type_.rpartition(":")[2]
    _refuse_unknown(where, news, PROPERTIES[type_])
    faults = [f"{where}.{key} has to be given" for key in REQUIRED[type_] if key not in news]
    if news.get("logging", UNKNOWN) not in (*LOGGING, UNKNOWN):
        faults.append(f"logging {news['logging']!r} must be one of {', '.join(LOGGING)}")
    source = news.get("source", UNKNOWN)
    if source != UNKNOWN and not is_asset(source):
        faults.append("source must be a FileAsset, a StringAsset or a FileArchive")
    connection = news.get("connection")
    if not isinstance(connection, dict):
        return news, faults
    _refuse_unknown(f"{where}.connection", connection, CONNECTION)
    connection = CONNECTION_DEFAULTS | {k: v for k, v in connection.items() if v is not None}
    # Secrets in what is a secret already: where the plugin misses the marks it sees a change.
    marked = secret_keys(connection, CONNECTION_SECRETS)
    return news | {"connection": marked}, faults + _connection_faults(connection)


def secret_outputs(type_: str, inputs: Properties) -> list[str]:
    """Outputs that may tell a secret: what a command prints that was given one.

    The plugin leaves them in the clear. The connection, which always is a secret, is no part of
    what a command is given.
    """
    if type_ not in (LOCAL, REMOTE):
        return []
    given = _COMMAND | {"interpreter"}
    return ["stdout", "stderr"] if any(holds_secret(inputs.get(key)) for key in given) else []


def hidden(type_: str, properties: Properties) -> Iterator[str]:
    """Texts that are not to be shown: of a connection, all of which the SDK marks, only some."""
    told = {key: value for key, value in properties.items() if not key.startswith("__")}
    connection = reveal(told.get("connection"))
    if type_ in (REMOTE, COPY) and isinstance(connection, dict):
        told["connection"] = [secret(connection[k]) for k in CONNECTION_SECRETS if k in connection]
    return secret_strings(told)


def host_key_fault(connection: Properties) -> str:
    """Why the host cannot be known for sure; "" when it can."""
    host, key = connection.get("host"), connection.get("hostKey", "")
    if not key:
        return (
            f"connection.hostKey of {host} is missing, and the embedded engine talks to no host "
            "that it cannot tell from another; give the host's public key, as "
            "/etc/ssh/ssh_host_ed25519_key.pub there has it"
        )
    if key != UNKNOWN and not HOST_KEY.fullmatch(key.strip()):
        return (
            f"connection.hostKey {key[:40]!r} of {host} is no public key; give it as "
            "/etc/ssh/ssh_host_ed25519_key.pub there has it: ssh-ed25519 AAAA…"
        )
    return ""


def _connection_faults(connection: Properties) -> list[str]:
    faults = [host_key_fault(connection)]
    for key, pattern in (("host", HOST), ("user", USER)):
        value = connection.get(key, "")
        if not pattern.fullmatch(str(value)):
            faults.append(f"connection.{key} {value!r} is no {key}; give one without quoting")
    for key, least, most in (
        ("port", 1, 65535),
        ("dialErrorLimit", -1, 10**6),
        ("perDialTimeout", 0, 10**6),
    ):
        value = connection[key]
        if value != UNKNOWN and not (isinstance(value, int) and least <= value <= most):
            faults.append(f"connection.{key} {value!r} must be from {least} to {most}")
    return [fault for fault in faults if fault]


def _refuse_unknown(where: str, given: Properties, known: set[str]) -> None:
    if unknown := sorted(given.keys() - known):
        raise UnsupportedError(f"{where}.{unknown[0]}")
