"""P18: commands of `train`, whose time is mostly that of Python and of what they import.

A test says what each command may import (tests/unit/trainyard/client/test_imports.py). Here its
time is only reported, next to a Python that imports the heaviest package that the command needs.
"""

from __future__ import annotations

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
START = {"time": "2026-01-01T00:00:00+00:00", "commit": "", "python": "", "packages": {}}
STARTED_MS = 1767225600000
HTTP, S3 = "urllib3", "botocore.auth"


def run(form: Form) -> list[Ratio]:
    """Return the ratios."""
    count = form.pick(RUNS, 20)
    with form.stack() as stack, tempfile.TemporaryDirectory() as name:
        script = Path(name) / "hello.py"
        script.write_text("print('hello', flush=True)\n")
        _train(stack, "submit", script, "--name", RUN)
        [job] = [
            row["job"] for row in json.loads(_train(stack, "list", "--json")) if row["run"] == RUN
        ]
        runs = store_runs(open_store(outputs.read(None, stack.outputs_file(Path(name)))), count)
        if len(json.loads(_train(stack, "runs", "--json"))) < count:
            raise FailedError(f"`train runs` did not list all of {count} runs")
        commands: dict[str, tuple[Sequence[str], str]] = {
            "list": (("list",), HTTP),
            "logs": (("logs", job), HTTP),
            "info": (("info",), "json"),
            "show": (("show", runs[0]), S3),
            f"runs, {count:,} runs": (("runs",), S3),
        }
        return [
            _ratio(form, stack, f"P18 train {label}", command, needed)
            for label, (command, needed) in commands.items()
        ]


def _ratio(
    form: Form, stack: ScratchStack, name: str, command: Sequence[str], needed: str
) -> Ratio:
    ours, plain = in_turn(
        form.rounds(ROUNDS),
        lambda: (
            measure.run(stack.train(*command), env=stack.environment, cwd=stack.project).seconds
        ),
        lambda: measure.run([sys.executable, "-c", f"import {needed}"]).seconds,
    )
    note = f"compared with a Python that imports {needed}"
    return Ratio(name=name, ours=ours, plain=plain, unit="s", goal=None, note=note)


def _train(stack: ScratchStack, *arguments: str | Path) -> str:
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
        summary = run_folder.summary(name, {"epochs": EPOCHS}, STARTED_MS, history, "")
        store.write(f"{run_folder.SUMMARIES}/{name}", summary)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(put, names))
    return names
