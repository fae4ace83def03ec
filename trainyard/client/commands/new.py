"""`train new`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client.console import say


def new(
    name: Annotated[str, typer.Argument(help="Name of the job, such as my_job.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Where to write it (default: training/ in the checkout, else here)."
        ),
    ] = None,
) -> None:
    """Write a first job: as it is, it learns handwritten digits."""
    from trainyard.client import new_job

    path, command = new_job.write(name, folder)
    say(f"wrote {path}")
    say(f"submit it: {command}")
