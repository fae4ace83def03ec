"""A stack on Kubernetes: real pods and real Ray, with a stand-in for KubeRay's operator."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.kubernetes import Node
from tests.fakes.kubernetes.process import Process
from tests.integration.infra.kubernetes.conftest import GROUP, Lab, made

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[4]
GROW_SECONDS = 300  # a pod waits for the head with a fifth of a processor
EPOCHS = 6


@pytest.fixture(scope="module")
def lab(kubernetes: Node, kuberay: Process, make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    with made(kubernetes) as namespace:
        lab = make_lab(namespace)
        lab.stack.engine("up", "--yes")
        yield lab


@pytest.fixture(scope="module")
def outputs(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found: Path = lab.stack.write_outputs(tmp_path_factory.mktemp("outputs"))
    return found


def _train(lab: Lab, outputs: Path, *arguments: str) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}
    path = f"{lab.node.programs}:{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-m", "client", *arguments],
        cwd=ROOT,
        env={**kept, "PATH": path, "TRAINYARD_OUTPUTS": str(outputs), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def test_a_job_starts_workers_and_survives_one_that_is_killed(lab: Lab, outputs: Path) -> None:
    assert lab.pods("worker") == {}
    arguments = ("--data", "digits", "--epochs", str(EPOCHS), "--batch-size", "32")
    job = _train(lab, outputs, "submit", "pytorch_distributed_training", "--", *arguments)
    said, killed = [], ""
    try:
        for line in job.stdout:
            said.append(line)
            if "epoch" in line and "loss" in line and not killed:
                killed = next(iter(lab.pods("worker")))
                lab.kubectl("delete", "pod", killed, "--grace-period=0", "--force")
    finally:
        job.kill()
    assert job.wait() == 0, "".join(said)[-4000:]
    assert killed
    (group,) = lab.get("raycluster")["items"][0]["spec"]["workerGroupSpecs"]
    assert group["maxReplicas"] == GROUP["max"]


def test_a_head_that_is_killed_comes_back(lab: Lab, wait_for: Callable[..., Any]) -> None:
    uid = lab.pods("head")["test-ray-head"]["metadata"]["uid"]
    lab.kubectl("delete", "pod", "test-ray-head", "--grace-period=0", "--force")

    def is_another() -> bool:
        head = lab.pods("head").get("test-ray-head")
        ready = {"type": "Ready", "status": "True"}
        return bool(head) and (
            head["metadata"]["uid"] != uid
            and any(ready.items() <= each.items() for each in head["status"]["conditions"])
        )

    wait_for(is_another, GROW_SECONDS)
    lab.stack.engine("up", "--yes", "--expect-no-changes")
