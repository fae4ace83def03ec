"""`train debug-dump`."""

import os
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

import typer

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
    from trainyard.client.dump.masks import Masks

    # A file with outputs, and an attached cluster, have their secrets themselves.
    name, why = contract.chosen(stack), ""
    given = outputs or os.environ.get(contract.FILE_VARIABLE) or contract.is_attached(name)
    reached = contract.read(stack, outputs) if given else None
    name = reached.stack if reached else name
    found: dict[str, Any] = {"secrets": [], "files": {}, "unread": {}}
    try:
        # Where it cannot be read, no cluster is asked: nothing could be hidden.
        found = found if reached else parts.of_state(name)
        reached = reach(context, reached or contract.read(stack))
    except (ClientError, subprocess.TimeoutExpired) as error:
        reached, why = None, str(error)
    archive = Archive(Masks(reached.secrets if reached else (), found["secrets"]))
    archive.add("versions.json", parts.versions())
    for each, text in found["files"].items():
        archive.add(each, text)
    for each, reason in (found["unread"] | ({"the cluster": why} if why else {})).items():
        archive.miss(each, reason)
    if reached is not None:
        archive.ask(parts.of_cluster(reached), SECONDS)
        try:
            archive.ask(parts.logs(reached), SECONDS)
        except DashboardError as error:
            archive.miss("logs of nodes and jobs", error)
    path = file or Path(f"debug-dump-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    size = archive.write(path, f"Stack {name}") / 1e6
    missing = f", {len(archive.unread)} parts could not be read" if archive.unread else ""
    say(f"wrote {path} ({size:.1f} MB, {len(archive.files)} files{missing}: see its index.md)")
    say(LOOK.replace("`", ""))
