"""`train drill`."""

# ruff: noqa: PLC0415 - a command imports what it needs, for most of it is slow

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from client.command import Json, Outputs, Stack, reach_jobs
from client.console import print_json, print_table
from client.drill.fault import Fault

SECONDS = {Fault.STORE_LOSS: 10.0, Fault.PREEMPT: 20.0}
app = typer.Typer()


@app.command()
def drill(
    context: typer.Context,
    fault: Annotated[Fault, typer.Argument(help="What is lost.")],
    run: Annotated[str, typer.Argument(help="Name of a run that trains, or is queued.")],
    node: Annotated[
        bool, typer.Option("--node", help="Of worker-loss: its whole node is lost.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=600,
            help="Of store-loss: how long it does not answer (10). Of preempt: the notice (20).",
        ),
    ] = None,
    script: Annotated[
        Path | None, typer.Option("--script", help="The run's script, if it is one of your own.")
    ] = None,
    working_dir: Annotated[
        Path | None, typer.Option("--working-dir", help="Its folder, as it was submitted with.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Provoke a fault while a run trains; exits with 0 when it ends as if there was none."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from client import repeat
    from client.drill import procedure

    own = None if script is None else repeat.own_script(script, working_dir)
    asked = procedure.Drill(
        fault=fault, whole_node=node, seconds=seconds or SECONDS.get(fault, 0), script=own
    )
    job = procedure.check(asked, run, server, stack_outputs)
    if not yes:
        typer.confirm(
            f"This provokes a {fault} in stack {stack_outputs.stack!r}, for all that runs there "
            f"and not for run {run!r} alone. Go on?",
            abort=True,
            err=True,
        )
    with contextlib.redirect_stdout(sys.stderr):  # standard output is the report alone
        report = procedure.carry_out(asked, job, server, stack_outputs)
    if as_json:
        print_json(report.record())
    else:
        print_table(report.rows(), ("what", "value"), as_json=False)
    raise typer.Exit(0 if report.passed else 1)
