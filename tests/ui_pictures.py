"""The pictures of docs/ui.md: `python -m tests.ui_pictures`, as `make docs` runs it.

The page shows a stack in memory, whose figures are the same each time.
"""

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
        ui_stack.write_sweep(folder / SWEEP, points=24)
        head = ui_stack.Head([ui_stack.job(number) for number in range(1, RUNS + 1)])
        with ui_stack.serving(head) as address:
            file = ui_stack.write_outputs(folder / "outputs.json", address, folder / "store")
            _take(file, folder)


def _take(file: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "trainyard.client", "ui", "--no-open", "--port", "0"]
    served = subprocess.Popen(
        [*command, "--outputs", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
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
            page.size(*LOW)
            show(page, f"sweeps/hydra%3A{SWEEP.replace('/', '%2F')}", "the largest")
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
