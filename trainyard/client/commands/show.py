"""`train show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard.access import terminal
from trainyard.access.terminal import clean, print_json
from trainyard.client import outputs as contract
from trainyard.client.command import Json, Outputs, RunName, Stack, reach
from trainyard.client.console import print_table, say


def show(
    context: typer.Context,
    run: RunName,
    curves: Annotated[
        Path | None,
        typer.Option("--curves", help="PNG file for the curves, also of a run that goes on."),
    ] = None,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Print a run: configuration, commit, versions, metrics, checkpoint."""
    stack_outputs = reach(context, contract.read(stack, outputs))
    from trainyard.client import history, results, store

    place = store.open_store(stack_outputs)
    record = history.read_run(place, run)
    if as_json:
        print_json(vars(record))
    else:
        say(f"run         {record.name}")
        if record.fault:
            say(f"fault       {clean(record.fault)}")
        say(f"config      {terminal.as_json(record.config)}")
        for start in record.starts:
            versions = ", ".join(f"{k} {v}" for k, v in start["packages"].items() if v)
            commit = clean(start["commit"]) or "unknown"
            say(f"started     {clean(start['time'])}, commit {commit}")
            say(f"            Python {clean(start['python'])}, {clean(versions)}")
        say(f"checkpoint  {record.checkpoint or 'none yet'}")
        if page := results.tracked_at(stack_outputs, place, record.name):
            say(f"mlflow      {page}")
        epochs = [
            {"epoch": history.epochs(record, done)}
            | {k: history.rounded(v) for k, v in epoch.items() if k != "epoch"}
            for done, epoch in enumerate(record.metrics, start=1)
        ]
        columns = tuple(dict.fromkeys(["epoch", *(key for epoch in epochs for key in epoch)]))
        print_table(
            epochs,
            columns,
            as_json=False,
            empty=f"no epoch is done yet: `train logs -f {record.name}` follows its job",
        )
    if curves is not None:
        results.save_curves(place, record, curves)
        if not as_json:
            say(f"curves      {curves}")
