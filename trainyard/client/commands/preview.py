"""`train preview`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client.command import Stack
from trainyard.client.stack_program import LAUNCH, Levels, Pack, name_of, options, run


def preview(
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Show which properties change, and files line by line."),
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="File to write the plan to; `up` does it, and `review` reads."),
    ] = None,
    policy_pack: Pack = None,
    policy_pack_config: Levels = None,
    stack: Stack = None,
) -> None:
    """Show what `up` would change."""
    given = options(
        diff=diff, plan=plan, policy_pack=policy_pack, policy_pack_config=policy_pack_config
    )
    run(LAUNCH, "preview", "-s", name_of(stack), *given)
