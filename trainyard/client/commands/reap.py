"""`train reap`."""

from typing import Annotated

import typer

from trainyard.client.command import Json
from trainyard.client.errors import ClientError
from trainyard.client.stack_program import options, run_here


def reap(
    names: Annotated[
        list[str] | None, typer.Argument(help="With --end: names of the orphans (default: all).")
    ] = None,
    owner: Annotated[
        str, typer.Option(help="Owner of the orphans (default: you on this machine).")
    ] = "",
    end: Annotated[bool, typer.Option("--end", help="End the orphans after a question.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    expired: Annotated[
        bool, typer.Option("--expired", help="End this project's stacks past their ttlHours.")
    ] = False,
    past_end: Annotated[
        bool, typer.Option("--past-end", help="End your machines past their end, whoever has them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List rented machines and files that no stack knows; exit with 1 if there are any."""
    if names and not end:
        raise ClientError(f"{names[0]!r} is an orphan to end: add --end, which asks first")
    flags = options(owner=owner, yes=yes, expired=expired, past_end=past_end, json=as_json)
    run_here("infra.operate.reap", *flags, *(("--end", *(names or [])) if end else ()))
