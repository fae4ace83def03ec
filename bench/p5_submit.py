"""P5: from the start of `train submit` to the first line of the job, beside `ray job submit`.

Both send the same one-file folder to the same warm cluster. Ours also reads the stack's outputs and
makes its checks of versions, resources, upload and store.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import Ratio, in_turn
from bench.scratch import ROOT, scratch_stack

ROUNDS = 10
LINE = "first line of the job"


def run() -> list[Ratio]:
    """The ratio."""
    with scratch_stack() as stack, tempfile.TemporaryDirectory() as name:
        stack.engine("up", "--yes")
        private, folder = Path(name), Path(name) / "job"
        folder.mkdir()
        script = folder / "hello.py"
        script.write_text(f"print({LINE!r}, flush=True)\n")
        ours = [str(ROOT / ".venv/bin/train"), "submit", str(script), "-s", stack.name]
        plain, environment = stack.plain_submit(
            private, "--working-dir", str(folder), "--", "python", "hello.py"
        )
        figures = in_turn(
            ROUNDS,
            lambda: until_line(ours, stack.environment, stack.project),
            lambda: until_line(plain, environment, folder),
        )
    return [Ratio(name="P5 submit", ours=figures[0], plain=figures[1], unit="s", goal=1.1)]


def until_line(command: list[str], environment: dict[str, str], folder: Path) -> float:
    """Seconds from the start of a command to the job's line in its output."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=environment | {"PYTHONUNBUFFERED": "1"},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 Popen was given PIPE
    took = None
    said = []
    for line in process.stdout:
        said.append(line)
        if took is None and line.strip() == LINE:
            took = time.perf_counter() - begun
    if process.wait() != 0 or took is None:
        sys.stderr.writelines(said)
        raise RuntimeError(f"{command[0]} did not show the job's line")
    return took
