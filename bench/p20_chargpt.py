"""P20: tokens per second of the job chargpt with one worker, beside the plain loop.

Both train nanoGPT's small size on the same text, in one thread, and must have the same losses. The
first epoch is not counted.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence

from bench.measure import Ratio, in_turn
from bench.scratch import ROOT, scratch_stack

ROUNDS = 4
LOOP = ROOT / "bench" / "gpt_loop.py"
SETTINGS = ("--text", "python", "--epochs", "3", "--steps-per-epoch", "100")
TOLERANCE = 1e-6  # of an epoch's mean loss, which is about 2.5


def run() -> list[Ratio]:
    """The ratio."""
    with scratch_stack() as stack:
        stack.engine("up", "--yes")
        train = [str(ROOT / ".venv" / "bin" / "train")]
        chosen = ("-s", stack.name)
        data = {"TRAINYARD_DATA_DIR": str(stack.project / "texts")}
        environment = stack.project / "env.json"  # JSON is YAML
        environment.write_text(json.dumps({"env_vars": data}))
        one_thread = os.environ | data | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        losses: list[list[float]] = []
        runs = 0

        def ours() -> float:
            nonlocal runs
            runs += 1
            name = f"gpt-{runs}"
            options = ("--name", name, "--runtime-env", str(environment))
            out = _output(
                [*train, "submit", "chargpt", *chosen, *options, "--", *SETTINGS],
                stack.environment,
                str(stack.project),
            )
            shown = _output(
                [*train, "show", name, "--json", *chosen], stack.environment, str(stack.project)
            )
            metrics = json.loads(shown)["metrics"]
            losses.append([each[key] for key in ("loss", "valid_loss") for each in metrics])
            found = re.findall(r"([\d,]+) tokens/s", out)
            return statistics.median(float(each.replace(",", "")) for each in found[1:])

        def plain() -> float:
            out = _output([sys.executable, str(LOOP), *SETTINGS], one_thread, str(ROOT))
            record = json.loads(out)
            losses.append(record["losses"] + record["valid_losses"])
            return float(statistics.median(record["figures"][1:]))

        figures = in_turn(ROUNDS, ours, plain)
    _check(losses)
    return [
        Ratio(
            name="P20 chargpt",
            ours=figures[0],
            plain=figures[1],
            unit="tokens/s",
            goal=0.97,
            at_most=False,
        )
    ]


def _check(losses: Sequence[Sequence[float]]) -> None:
    for found in zip(*losses, strict=True):
        if max(found) - min(found) > TOLERANCE:
            raise RuntimeError(f"losses of an epoch differ by more than {TOLERANCE}: {found}")


def _output(command: list[str], environment: dict[str, str], folder: str) -> str:
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
