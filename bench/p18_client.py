"""P18: commands of `train`, whose time is mostly that of Python and of what they import.

A test says what each command may import (tests/unit/trainyard/client/test_imports.py). Here its
time is compared with a Python that imports the heaviest package that the command needs, and with
what a person does not notice.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import measure
from bench.form import Form
from bench.measure import FailedError, Ratio, in_turn
from bench.scratch import ScratchStack
from trainyard.client import outputs
from trainyard.client.store import open_store
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

ROUNDS = 5
RUNS = 5000
EPOCHS = 10  # of each
AT_ONCE = 8
RUN = "hello"
AS_LONG = 3.0  # as the Python beside it
COMMAND_S, HELP_S = 0.25, 0.15
COMPLETION = {"_TRAIN_COMPLETE": "complete_bash", "COMP_WORDS": "train li", "COMP_CWORD": "1"}
START = {"time": "2026-01-01T00:00:00+00:00", "commit": "", "python": "", "packages": {}}
HTTP, S3, HELP = "urllib3", "botocore.auth", "typer"


def run(form: Form) -> list[Ratio]:
    """Return the ratios."""
    count = form.pick(RUNS, 20)
    with form.stack() as stack, tempfile.TemporaryDirectory() as name:
        script = Path(name) / "hello.py"
        script.write_text("print('hello', flush=True)\n")
        train(stack, "submit", script, "--name", RUN)
        [job] = [
            row["job"] for row in json.loads(train(stack, "list", "--json")) if row["run"] == RUN
        ]
        runs = store_runs(open_store(outputs.read(None, stack.outputs_file(Path(name)))), count)
        if len(json.loads(train(stack, "runs", "--json"))) < count:
            raise FailedError(f"`train runs` did not list all of {count} runs")
        listed = stack.train("list")
        # The command line of each, what it needs, and how long it may take.
        commands: dict[str, tuple[Sequence[str | Path], str, float | None]] = {
            "train list": (listed, HTTP, COMMAND_S),
            "train status": (stack.train("status", job), HTTP, COMMAND_S),
            "train logs": (stack.train("logs", job), HTTP, COMMAND_S),
            "train info": (stack.train("info"), HTTP, COMMAND_S),
            "train show": (stack.train("show", runs[0]), S3, COMMAND_S),
            "train --help": ([listed[0], "--help"], HELP, HELP_S),
            "completion": ([listed[0]], HELP, HELP_S),
            f"train runs, {count:,} runs": (stack.train("runs"), S3, None),
        }
        return [
            ratio
            for label, (command, needed, bound) in commands.items()
            for ratio in _ratios(form, stack, f"P18 {label}", command, needed, bound)
        ]


def _ratios(
    form: Form,
    stack: ScratchStack,
    name: str,
    command: Sequence[str | Path],
    needed: str,
    bound: float | None,
) -> list[Ratio]:
    """Return the time beside a Python's, and beside its bound; without words it completes some."""
    variables = stack.environment | (COMPLETION if len(command) == 1 else {})
    ours, plain = in_turn(
        form.rounds(ROUNDS),
        lambda: measure.run(command, env=variables, cwd=stack.project).seconds,
        lambda: measure.run([sys.executable, "-c", f"import {needed}"]).seconds,
    )
    note = f"compared with a Python that imports {needed}"
    goal = AS_LONG if bound else None
    found = [Ratio(name=name, ours=ours, plain=plain, unit="s", goal=goal, note=note)]
    if bound:
        short = f"{name}, {bound:g} s"
        found.append(Ratio(name=short, ours=ours, plain=[bound], unit="s", goal=1.0))
    return found


def train(stack: ScratchStack, *arguments: str | Path) -> str:
    """Return what a command of `train` prints."""
    command = stack.train(str(arguments[0]), *arguments[1:])
    return measure.run(command, env=stack.environment, cwd=stack.project).stdout


def store_runs(store: Store, count: int) -> list[str]:
    """Store runs as their jobs write them; return their names."""
    history = [{"epoch": epoch, "loss": 1 / (epoch + 1)} for epoch in range(EPOCHS)]
    files = {
        run_folder.CONFIG: json.dumps({"epochs": EPOCHS}),
        run_folder.STARTS: json.dumps(START) + "\n",
        run_folder.METRICS: "".join(json.dumps(epoch) + "\n" for epoch in history),
    }
    names = [f"many-{index:05d}" for index in range(count)]

    def put(name: str) -> None:
        for file, content in files.items():
            store.write(f"{name}/{file}", content.encode())
        if summary := run_folder.sum_up(store, name):
            store.write(f"{run_folder.SUMMARIES}/{name}", summary)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(put, names))
    return names
