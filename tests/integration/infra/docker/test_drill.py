"""`train drill` on containers: their store is struck in another way, the rest as on processes."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.infra import drilled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[4]
EPOCHS = 6
GO = "/tmp/trainyard-go"
NODES = ("ray-worker-0", "ray-worker-1")


@pytest.fixture
def outputs_file(lab: Any, tmp_path: Path) -> Path:
    file: Path = lab.stack.write_outputs(tmp_path)
    return file


def test_a_run_ends_as_if_nothing_had_happened(  # F22
    lab: Any, train: Callable[..., subprocess.Popen[str]]
) -> None:
    # Faults inside of a node, such as worker-loss, are the same without containers.
    run = "drilled-store"
    started = lab.container("minio").attrs["State"]["StartedAt"]
    for node in NODES:
        lab.container(node).exec_run(["rm", "-f", GO])
    # The whole tree, whose library the script imports.
    options = ("--name", run, "--no-wait", "--working-dir", str(ROOT))
    job = ("--epochs", str(EPOCHS), "--go", GO)
    submit = train("submit", drilled.__file__, *options, "--", *job)
    said = submit.communicate(timeout=120)
    assert submit.returncode == 0, said
    try:
        own = ("--script", drilled.__file__, "--working-dir", str(ROOT))
        drill = train("drill", "store-loss", run, "--seconds", "5", *own, "--yes", "--json")
        assert drill.stderr is not None
        lines = []
        for line in drill.stderr:
            lines.append(line)
            # It is so now, and the job, which waits for it, may go on.
            if line.startswith("the object store does not answer"):
                for node in NODES:
                    lab.container(node).exec_run(["touch", GO])
        out = drill.communicate()[0]
    finally:
        train("stop", run).communicate(timeout=120)
    assert drill.returncode == 0, "".join(lines) + out
    report = json.loads(out)
    assert report["passed"] is True
    assert report["epochs"] == [EPOCHS, EPOCHS]
    assert lab.container("minio").attrs["State"]["StartedAt"] != started
