"""`train preview`."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Stack
from trainyard.client.console import say
from trainyard.client.stack_program import LAUNCH, Levels, Pack, name_of, options, run
from trainyard.tracking.run_folder import DIRTY


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
    name = name_of(stack)
    from trainyard.client import losses, submission

    if (commit := submission.commit(contract.checkout())).endswith(DIRTY):
        say(f"the checkout has changes since its commit {commit[:7]}, and so has this preview")
    found = losses.find(name, runs=False)
    run(LAUNCH, "preview", "-s", name, *given, variables=found.variables)
    if found.month:
        say(f"cost so far this month: {found.month}")
    if found.jobs:
        say(
            f"now: {', '.join(found.jobs)}. A run resumes after a restart from its last checkpoint."
        )
