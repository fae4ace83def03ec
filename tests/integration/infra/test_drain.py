"""An `up` that restarts Ray nodes while a run trains: real nodes, drained one after another."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.infra import drained
from trainyard.client import outputs as contract
from trainyard.client import store
from trainyard.client.job_server import JobServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RUN = "drained"
WORKERS = ("ray-worker-0", "ray-worker-1")


@pytest.fixture(scope="module")
def stack(declare: Callable[..., Any]) -> Iterator[Any]:
    base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    stack = declare(base, workers=2, objectStore="directory")
    try:
        stack.engine("up", "--yes")
        yield stack
    finally:
        stack.kill()
        shutil.rmtree(base, ignore_errors=True)


def change(stack: Any, **values: Any) -> None:
    settings = {f"trainyard:{key}": value for key, value in (stack.settings | values).items()}
    (stack.project / "Pulumi.test.yaml").write_text(json.dumps({"config": settings}))


def test_a_run_loses_nothing_to_an_up_that_starts_its_nodes_anew(
    stack: Any,
    train: Callable[..., subprocess.Popen[str]],
    outputs_file: Path,
    wait_for: Callable[..., Any],
    tmp_path: Path,
) -> None:
    steps = tmp_path / "steps"
    submit = train(
        *("submit", drained.__file__, "--name", RUN, "--no-wait", "--", "--steps", str(steps))
    )
    said = submit.communicate(timeout=120)
    assert submit.returncode == 0, said
    outputs = contract.read(None, outputs_file)
    place, server = store.open_store(outputs), JobServer(outputs)
    wait_for(lambda: (place.get(f"{RUN}/metrics.jsonl") or b"").count(b"\n") == 1, 240)
    (job,) = [each for each in server.jobs() if each.run == RUN]

    # The head stays: its jobs would be lost.
    change(stack, head={"cpus": 1})
    refused = stack.engine("up", "--yes", check=False)
    assert refused.returncode == 1
    named = f"its jobs would be lost: {job.submission_id} ({RUN}). Wait for their end"
    assert named in refused.stdout + refused.stderr

    change(stack, worker={"cpus": 1, "resources": {"new": 1}})
    up = stack.engine("up", "--yes")
    for name in WORKERS:
        assert f"{name} is drained, for at most 60 s: {job.submission_id} ({RUN})\n" in up.stderr
    Path(f"{steps}.go").touch()
    wait_for(lambda: server.job(job.submission_id).status.ended, 240)
    log = server.log(job.submission_id)
    assert server.job(job.submission_id).status == "SUCCEEDED", log
    left = re.findall(r"Notice: .* epoch (\d+) is stored up to batch (\d+)", log)
    taken_up = re.findall(r"Restored from checkpoint \S+: (\d+) epochs and (\d+) batches", log)
    assert left  # by each drain that found the run's workers on its node
    assert [(str(int(epoch) - 1), batch) for epoch, batch in left if batch != "0"] == taken_up
    every = drained.parser.get_default("epochs") * drained.STEPS
    assert steps.read_text().split() == [str(step) for step in range(every)]
    records = place.get(f"{RUN}/metrics.jsonl")
    assert records is not None
    history = [json.loads(line) for line in records.splitlines()]
    assert history[-1]["loss"] == sum(range(every))
    assert [record["batches"] for record in history] == [drained.STEPS] * len(history)
