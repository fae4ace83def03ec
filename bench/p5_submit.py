"""P5: from the start of `train submit` to the first line of the job, next to `ray job submit`.

Both send the same one-file folder to the same warm cluster. Ours also reads the stack's outputs and
makes its checks of versions, resources, upload and store.
"""

import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.form import Form
from bench.measure import Ratio, failed, in_turn

ROUNDS = 10
LINE = "first line of the job"


def run(form: Form) -> list[Ratio]:
    """Return the ratio."""
    with form.stack() as stack, tempfile.TemporaryDirectory() as name:
        private, folder = Path(name), Path(name) / "job"
        folder.mkdir()
        script = folder / "hello.py"
        script.write_text(f"print({LINE!r}, flush=True)\n")
        plain, environment = stack.plain_submit(
            private, "--working-dir", str(folder), "--", "python", "hello.py"
        )
        ours, theirs = in_turn(
            form.rounds(ROUNDS),
            lambda: until_line(stack.train("submit", script), stack.environment, stack.project),
            lambda: until_line(plain, environment, folder),
        )
    return [Ratio(name="P5 submit", ours=ours, plain=theirs, unit="s", goal=1.1)]


def until_line(command: Sequence[str | Path], environment: dict[str, str], folder: Path) -> float:
    """Return the seconds from the start of a command to the job's line in its output."""
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
        raise failed(command, "did not show the job's line", "".join(said))
    return took
