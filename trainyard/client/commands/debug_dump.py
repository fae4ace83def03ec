"""`train debug-dump`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard.access import typed
from trainyard.client import outputs as contract
from trainyard.client.command import Outputs, Stack, reach
from trainyard.client.console import say
from trainyard.client.errors import ClientError

SECONDS = 60.0  # for all questions to the cluster, once for its lists and once for its logs


def debug_dump(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(help="Archive to write (default: debug-dump-STACK-TIME.tar.gz here)."),
    ] = None,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Write one archive for a bug report: versions, settings, states, the ends of logs.

    It works while the stack is down, and names what it could not read. Secrets are left out.
    """
    from trainyard.client.dashboard import DashboardError
    from trainyard.client.dump import parts
    from trainyard.client.dump.archive import LOOK, Archive
    from trainyard.client.dump.masks import Masks, of_environment

    found, reached, why = _known(context, stack, outputs)
    name = reached.stack if reached else contract.chosen(stack)
    path = file or Path(f"debug-dump-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    secrets = [*of_environment(), *(reached.secrets if reached else ())]
    archive = Archive(Masks(secrets, found["secrets"]))
    archive.add("versions.json", parts.versions())
    for each, text in found["files"].items():
        archive.add(each, text)
    for each, reason in [*found["unread"].items(), *([("the cluster", why)] if why else [])]:
        archive.miss(each, reason)
    if reached is not None:
        archive.ask(parts.of_cluster(reached), SECONDS)
        try:
            archive.ask(parts.logs(reached), SECONDS)
        except DashboardError as error:
            archive.miss("logs of nodes and jobs", error)
    size = archive.write(path, f"Stack {name}")
    missing = f", {len(archive.unread)} parts could not be read" if archive.unread else ""
    say(
        f"wrote {path} ({size / 1e6:.1f} MB, {len(archive.files)} files{missing}: see its index.md)"
    )
    say(LOOK.replace("`", ""))
    say(f"look at it: tar -xOzf {typed.argument(str(path))} | less")


def _known(
    context: typer.Context, stack: str | None, file: Path | None
) -> tuple[dict[str, Any], contract.StackOutputs | None, str]:
    """What is known on this machine, the outputs of a cluster that is reached, and why it is not.

    Where secrets cannot be read, no cluster is asked: they could not be hidden.

    Raises:
        ClientError: a file with outputs is given, and cannot be read.
    """
    from trainyard.client.dump import parts

    name, found = contract.chosen(stack), dict[str, Any](secrets=[], files={}, unread={})
    given = file or os.environ.get(contract.FILE_VARIABLE)
    known = contract.read(stack, file) if given or contract.is_attached(name) else None
    if known is None:
        try:
            found = parts.of_state(name)
        except ClientError as error:
            return found, None, f"{error}; without its secrets they could not be hidden elsewhere"
    try:
        return found, reach(context, known or contract.read(stack)), ""
    except ClientError as error:
        return found, None, str(error)
