"""`python -m infra.operate.find_ports`: sets a portOffset that makes all ports of a stack free.

The ports of all services count, so that each can be turned on later. Only `up` sees the ports of
other machines: a stack of `hosts` moves on by a step.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from cluster import services
from infra.operate import arguments
from infra.operate.checkout import ROOT
from infra.settings.nodes import MAX_WORKERS
from node import claims, ports
from trainyard.access import settings_file, terminal

OFFSET, STEP, LAST_PORT = "portOffset", 100, 65535


def main() -> int:
    """Run the command; return its exit code."""
    options = arguments.parser("infra.operate.find_ports", __doc__).parse_args()
    path = options.cwd / f"Pulumi.{options.stack}.yaml"
    try:
        project = settings_file.read(options.cwd / "Pulumi.yaml")["name"]
        given = (settings_file.read(path) or {}).get("config") or {}
        settings = {str(key).removeprefix(f"{project}:"): given[key] for key in given}
        found = str(offset(project, options.stack, settings))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        terminal.warn(f"error: no portOffset for {path}: {error}", options.stack)
        return 1
    terminal.say(f"{path.name}: all ports are free, or this stack's own, with {OFFSET} = {found}")
    if found == str(settings.get(OFFSET, 0)):
        return 0
    command = ["-m", "engine", "-C", options.cwd, "config", "set", "-s", options.stack]
    return subprocess.call([sys.executable, "-P", *command, OFFSET, found], cwd=ROOT)


def offset(project: str, stack: str, settings: Mapping[str, Any]) -> int:
    """Return the present offset if the stack's ports are free or its own, else the first that is.

    Raises:
        ValueError, TypeError: a port is not a number, or no offset is left.
    """
    wanted = {
        int(settings.get(key, port.default)) + number
        for key, port in services.PORTS.items()
        for number in range(MAX_WORKERS + 1 if port.each_node else 1)
    }
    first, listening = int(settings.get(OFFSET, 0)), ports.listeners()
    taken, own = {*listening}, set[int]()
    for claim in claims.every():
        whose = (claim["mark"].project, claim["mark"].stack, claim["user"])
        claimed = {number for numbers in claim["ports"].values() for number in numbers}
        if whose == (project, stack, os.getuid()):
            own |= {each for each in claimed if _may_be_of(claim, listening.get(each))}
        else:
            taken |= claimed
    if settings.get("hosts"):
        first += STEP
    for each in (first, *range(0, LAST_PORT - max(wanted) + 1, STEP)):
        if taken.isdisjoint({number + each for number in wanted} - own):
            return int(each)
    raise ValueError("none has all ports free, so set the ports that are taken")


def _may_be_of(claim: claims.Claim, pid: int | None) -> bool:
    """Return whether a listener is of the claim's stack; the Engine's tell nothing of a stack."""
    if pid is None or claim["network"]:
        return True
    with suppress(psutil.Error):
        return ports.label(psutil.Process(pid)).partition(" ")[0] == str(claim["mark"].id)
    return True  # it has just ended


if __name__ == "__main__":
    sys.exit(main())
