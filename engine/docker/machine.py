"""The machine of a Docker Engine, as a provider that a program declares names it."""

import json

from engine.errors import EngineError
from engine.values import UNKNOWN, Properties
from trainyard.access import docker_client
from trainyard.access.ssh import Connection

KNOWN = ("host", "sshOpts")


def settings_fault(given: Properties) -> str:
    """Return the fault of the settings that a program gives a provider, "" without one."""
    if unknown := sorted(given.keys() - {*KNOWN}):
        return f"a docker provider with {', '.join(unknown)}, not {' and '.join(KNOWN)} only"
    if UNKNOWN in given.values():
        return ""
    try:
        connection_of(given)
    except EngineError as error:
        return str(error)
    return ""


def connection_of(settings: Properties) -> Connection | None:
    """Return the connection to the machine of a provider's settings; None for this machine.

    Raises:
        EngineError: they are not of a kind that this engine knows.
        NoKeyError: the private key's file cannot be used.
    """
    if "host" not in settings:
        return None
    try:
        return docker_client.ssh_connection(settings["host"], json.loads(settings["sshOpts"]))
    except (KeyError, ValueError) as error:
        raise EngineError(
            f"a docker provider with host and sshOpts as this engine does not know them ({error}): "
            "`docker_client` makes both"
        ) from None
