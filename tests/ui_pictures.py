"""The pictures of docs/ui.md: `python -m tests.ui_pictures`, as `make docs` runs it.

The page shows a stack in memory, whose figures are the same each time.
"""

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import browser, ui_stack

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RUNS = 9
SWEEP = "multirun/2026-11-20/10-00-00"
WIDE, LOW = (1200, 860), (1200, 560)
PHONE = (390, 640)  # without the time that is left


def main() -> None:
    if browser.PROGRAM is None:
        sys.stderr.write("the pictures of docs/ui.md stay as they are: chromium is not on PATH\n")
        return
    with tempfile.TemporaryDirectory(prefix="ty-pictures-") as name:
        folder = Path(name)
        for number in range(1, RUNS + 1):
            rate = (0.001, 0.003, 0.01, 0.03)[number % 4]
            ui_stack.write_run(folder / "store", f"run-{number:04}", epochs=20, lr=rate)
        _write_logged(folder / "store/run-0003")
        ui_stack.write_sweep(folder / SWEEP, points=24)
        jobs = [ui_stack.job(number) for number in range(1, RUNS + 1)]
        head = ui_stack.Head([*jobs, ui_stack.job(RUNS + 1, "PENDING", start_time=0)])
        with ui_stack.serving(head) as address:
            file = ui_stack.write_outputs(folder / "outputs.json", address, folder / "store")
            _take(file, folder)


def _write_logged(run: Path) -> None:
    """Writes what a program has logged, and what it has left."""
    (run / "logged").mkdir()
    rows = (
        {"step": step, "time": step / 2, "grad_norm": 1 + math.sin(step / 40) + math.cos(step) / 4}
        for step in range(600)
    )
    (run / "logged/1.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (run / "output").mkdir()
    (run / "output/confusion.csv").write_text("0,1\n" * 200)


def _take(file: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "trainyard.client", "ui", "--no-open", "--port", "0"]
    served = subprocess.Popen(
        [*command, "--outputs", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        # The pictures show `train` without its folder.
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )
    try:
        assert served.stdout is not None
        address = served.stdout.readline().split()[1]
        with browser.page() as page:
            page.size(*WIDE)
            page.go(address)
            page.wait_text("gpu-1")
            show(page, "runs/run-0001,run-0002,run-0003", "Settings that differ")
            page.picture(DOCS / "ui-runs.png")
            show(page, "run/run-0003", "confusion.csv")
            page.picture(DOCS / "ui-run.png")
            page.size(*LOW)
            show(page, f"sweeps/hydra%3A{SWEEP.replace('/', '%2F')}", "Points")
            page.picture(DOCS / "ui-sweep.png")
            page.scheme("dark")
            page.size(*PHONE)
            show(page, "overview", "gpu-1")
            page.picture(DOCS / "ui-phone.png")
    finally:
        served.send_signal(signal.SIGINT)
        served.wait(browser.DEADLINE_S)


def show(page: browser.Page, view: str, text: str) -> None:
    """Shows a view, and waits for a text and its charts."""
    page.value(f"location.hash = '#/dev/{view}'")
    page.wait_text(text)
    # A frame after the last change is drawn.
    page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


if __name__ == "__main__":
    main()
