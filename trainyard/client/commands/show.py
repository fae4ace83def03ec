"""`train show`."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.access import terminal
from trainyard.access.terminal import clean, print_json
from trainyard.client.command import Json, Outputs, RunName, Stack, reach
from trainyard.client.console import print_table, say

MOST_JOBS = 5  # of one run
MOST_COLUMNS = 50
NOT_USED = "no use is recorded: the jobs of this run ended within seconds"


def show(
    context: typer.Context,
    run: RunName,
    curves: Annotated[
        Path | None,
        typer.Option("--curves", help="PNG file for the curves, also of a run that goes on."),
    ] = None,
    used: Annotated[
        bool, typer.Option("--usage", help="Processors, memory, GPUs, disk and network over time.")
    ] = False,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Print a run: configuration, commit, versions, metrics, checkpoint."""
    from trainyard.client import costs, history, left_results, results, store

    stack_outputs = reach(context, left_results.read(stack, outputs))

    place = store.open_store(stack_outputs)
    record = costs.of_run(stack_outputs, history.read_run(place, run))
    if as_json:
        print_json(vars(record))
    else:
        say(f"run         {record.name}")
        if record.fault:
            say(f"fault       {clean(record.fault)}")
        for job in record.jobs[-MOST_JOBS:]:
            say(f"job         {history.told(job)}")
        if record.config or not record.jobs:
            say(f"config      {terminal.as_json(record.config)}")
        for start in record.starts:
            versions = ", ".join(f"{k} {v}" for k, v in start["packages"].items() if v)
            commit = clean(start["commit"]) or "unknown"
            say(f"started     {clean(start['time'])}, commit {commit}")
            say(f"            Python {clean(start['python'])}, {clean(versions)}")
        if record.checkpoint or not record.jobs:
            say(f"checkpoint  {record.checkpoint or 'none yet'}")
        use = results.used(record)
        peaks = results.peaks(use)
        for what, told in (
            ("best", results.best(record)),
            ("cost", record.cost and f"{record.cost:.2f} $"),
            ("used", peaks and f"at most {peaks}"),
            ("mlflow", results.tracked_at(stack_outputs, place, record.name)),
            *(("hang", clean(file)) for file in record.hangs[-MOST_JOBS:]),
        ):
            if told:
                say(f"{what:<12}{told}")
        empty = f"no figures yet: `train logs -f {record.name}` follows its job"
        print_table(*results.table(record, MOST_COLUMNS), as_json=False, empty=empty)
        if used:
            print_table(use, results.USED, as_json=False, empty=NOT_USED)
    if curves is not None:
        results.save_curves(place, record, curves)
        if not as_json:
            say(f"curves      {curves}")
