"""`train drill`."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from trainyard.access.terminal import print_json
from trainyard.client import completion
from trainyard.client.command import Json, Outputs, Stack, reach_jobs
from trainyard.client.console import print_table
from trainyard.client.drill import Fault

SECONDS = {Fault.STORE_LOSS: 10.0, Fault.PREEMPT: 20.0}


def drill(
    context: typer.Context,
    fault: Annotated[Fault, typer.Argument(help="Fault to provoke.")],
    run: Annotated[
        str, typer.Argument(help="Name of a running or queued run.", autocompletion=completion.runs)
    ],
    node: Annotated[
        bool, typer.Option("--node", help="Kill the worker's whole node, with worker-loss.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=600,
            help="Seconds of the outage (default: 10), or of preempt's notice (default: 20).",
        ),
    ] = None,
    script: Annotated[
        Path | None, typer.Option("--script", help="Script of the run, if it is your own.")
    ] = None,
    working_dir: Annotated[
        Path | None, typer.Option("--working-dir", help="Folder that the run was submitted with.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the question.")] = False,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Cause a failure during a run, and check that it still ends with the same result (exit 0)."""
    server, stack_outputs = reach_jobs(context, stack, outputs)
    from trainyard.client import scripts
    from trainyard.client.drill import procedure

    folder = None if working_dir is None else str(working_dir)
    own = None if script is None else scripts.find(str(script.resolve()), folder)
    asked = procedure.Drill(
        fault=fault, whole_node=node, seconds=seconds or SECONDS.get(fault, 0), script=own
    )
    job = procedure.check(asked, run, server, stack_outputs)
    if not yes:
        typer.confirm(
            f"This provokes a {fault} in stack {stack_outputs.stack!r}, for all that runs there "
            f"and not only for run {run!r}. Go on?",
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
