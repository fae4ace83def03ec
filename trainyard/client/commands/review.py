"""`train review`."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.client.command import Json, Stack
from trainyard.client.stack_program import Levels, Pack, name_of, options, run_here


def review(
    plan: Annotated[Path, typer.Argument(help="File that `train preview --plan` wrote.")],
    policy_pack: Pack = None,
    policy_pack_config: Levels = None,
    as_json: Json = False,
    stack: Stack = None,
) -> None:
    """Show what a plan changes, costs and opens, as a page for a pull request."""
    given = options(json=as_json, policy_pack=policy_pack, policy_pack_config=policy_pack_config)
    run_here("infra.operate.review", "-s", name_of(stack), *given, str(plan.absolute()))
