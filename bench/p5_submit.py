"""P5: from the start of `train submit` to the first line of the job, beside `ray job submit`.

Both send the same one-file folder to the same warm cluster. Ours also reads the stack's outputs and
makes its checks of versions, resources, upload and store.
"""

from __future__ import annotations

import json
import os
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
    with scratch_stack() as stack, tempfile.TemporaryDirectory() as folder:
        stack.engine("up", "--yes")
        script = Path(folder) / "hello.py"
        script.write_text(f"print({LINE!r}, flush=True)\n")
        output = stack.command("output", "--json", "--show-secrets")
        outputs = json.loads(
            subprocess.run(output, env=stack.environment, capture_output=True, check=True).stdout
        )
        token = Path(folder) / "token"
        token.touch(mode=0o600)
        token.write_text(outputs["rayToken"])
        ray_environment = os.environ | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
        bin_ = ROOT / ".venv" / "bin"
        ours = [str(bin_ / "train"), "submit", str(script), "-s", stack.name]
        plain = [str(bin_ / "ray"), "job", "submit", "--address", outputs["dashboardUrl"]]
        plain += ["--working-dir", folder, "--", "python", "hello.py"]
        token_free = Path(folder) / ".gitignore"
        token_free.write_text("token\n")
        figures = in_turn(
            ROUNDS,
            lambda: until_line(ours, stack.environment, stack.project),
            lambda: until_line(plain, ray_environment, Path(folder)),
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
