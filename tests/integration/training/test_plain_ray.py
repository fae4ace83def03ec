"""Plain Ray tasks as jobs, and training on chips that are counted."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ran

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]


def test_tasks_and_totals(cluster: Any) -> None:
    tasks = cluster.train("submit", "cpu_example", "--", "4")  # B8
    assert tasks.returncode == 0, tasks.stderr
    assert "[0, 1, 2, 3]" in tasks.stdout.splitlines()
    totals = cluster.train("submit", "inspect_cluster", "--runtime-env", "cpu")  # B11 B12
    assert totals.returncode == 0, totals.stderr
    assert {"CPUs       2", "TPU chips  0"} <= set(totals.stdout.splitlines())
    none = cluster.train("submit", "tpu_example", "--", "1")
    assert none.returncode == 1
    assert "error: the cluster has 0 TPU chips and a run needs 4 on one node" in none.stdout


def test_chips_are_counted(cluster: Any, tmp_path: Path) -> None:
    tpu = {"name": "tpu", "cpus": 1, "resources": {"TPU": 4}}
    nodes = [*cluster.outputs["nodes"], cluster.outputs["nodes"][0] | tpu]
    env = cluster.env | {
        "TRAINYARD_OUTPUTS": str(cluster.write_outputs("tpu.json", nodes=nodes)),
        "PATH": os.environ["PATH"],
    }
    with cluster.add_node("--num-cpus=1", '--resources={"TPU": 4}'):
        runs = cluster.train("submit", "tpu_example", "--runtime-env", "tpu", "--", "2")
        assert runs.returncode == 0, runs.stderr  # B13 B14
        assert [line[:5] for line in runs.stdout.splitlines() if " sum 2" in line] == [
            "run 0",
            "run 1",
        ]
        few = ["data.limit=32", "train.epochs=1", "accelerator=tpu"]
        for job, devices in (("train_model", 1), ("train_lightning", 2)):  # B20 B21
            command = [sys.executable, "-m", f"trainyard.jobs.{job}", "-m", "hydra/launcher=ray"]
            out = ran.output([*command, *few, f"devices={devices}"], cwd=tmp_path, env=env)
            assert "this node counts TPUs" in out
            assert "valid_acc" in out
