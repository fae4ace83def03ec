"""Requests that no node can hold, or not now, as Ray and `train status` show them."""

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.integration.training.conftest import ray_command, service
from tests.ports import free_ports
from tests.waiting import wait_for
from trainyard.queue import low_use
from trainyard.queue.head import SUPERVISOR, Head

pytestmark = pytest.mark.integration

NODE = {"cpus": 1, "memoryMib": 1024, "objectStoreMib": 100, "resources": {}}
TWO_GPUS = ["--entrypoint-num-gpus", "2"]
# Ray Train does this before it starts workers.
RESERVING = """
import ray
from ray.util.placement_group import placement_group

ray.init()
ray.get(placement_group([{"GPU": 1}]).ready())
"""


@pytest.fixture(scope="module")
def gpus(cluster) -> Iterator[Path]:
    """Two nodes with one GPU each, as far as Ray is told; the outputs that declare them."""
    with ExitStack() as nodes:
        for _ in range(2):
            node = ("--num-cpus=1", "--num-gpus=1", "--object-store-memory=100000000")
            nodes.enter_context(cluster.add_node(*node))
        wait_for("nodes", lambda: _usage(cluster)["GPU"][1] == 2)
        declared = [node | {"gpus": 0} for node in cluster.outputs["nodes"]]
        declared += [NODE | {"name": f"worker-{i}", "gpus": 1} for i in (1, 2)]
        yield cluster.write_outputs("gpus.json", nodes=declared)


@pytest.fixture
def script(tmp_path) -> str:
    (tmp_path / "job.py").write_text("print('ran')")
    return str(tmp_path / "job.py")


def _usage(cluster: Any) -> dict[str, list[float]]:
    status = cluster.api("/api/cluster_status")["data"]["clusterStatus"]
    usage: dict[str, list[float]] = status["loadMetricsReport"]["usage"] if status else {}
    return {"GPU": [0, 0]} | usage


def _demands(cluster: Any) -> str:
    """The text under Demands in the dashboard's Overview."""
    text: str = cluster.api("/api/cluster_status?format=1")["data"]["clusterStatus"]
    return text.partition("Pending Demands:")[2]


def _given(cluster: Any) -> dict[str, set[int]]:
    """The numbers of GPUs by job, as the queue reads them."""

    async def nodes() -> list[tuple[str, float, Any]]:
        head = Head(cluster.outputs["dashboardUrl"], cluster.outputs["rayToken"])
        try:
            return await head.gpus()
        finally:
            await head.close()

    found = (each for *_, detail in asyncio.run(nodes()) for each in low_use._workers(detail))
    return {name.removeprefix(SUPERVISOR): gpus for name, gpus in found if gpus}


def _status(cluster: Any, job: str, outputs: Path) -> dict[str, Any]:
    said = cluster.done("status", job, "--json", "--outputs", str(outputs))
    status: dict[str, Any] = json.loads(said)
    return status


@pytest.mark.timeout(300)
def test_two_gpus_on_nodes_with_one_wait_and_say_why(cluster, gpus, script):  # D36 D37 D38
    refused = cluster.train("submit", script, *TWO_GPUS, "--outputs", str(gpus))
    assert refused.returncode == 1  # F29
    assert "asks for GPU 2 on one node, which no node has; the largest, worker-1" in refused.stderr

    process = cluster.popen(
        *("submit", script, *TWO_GPUS, "--force", "--name", "two-gpus", "--outputs", str(gpus))
    )
    try:
        for line in process.stdout:
            if " is PENDING: " in line:
                break
        assert "the largest, worker-1, has CPU 1, GPU 1" in line
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(30) == 130, rest
    finally:
        process.kill()
        process.wait()
    status = _status(cluster, "two-gpus", gpus)
    assert status["status"] == "PENDING"
    assert status["demand"] == "GPU 2"
    assert (
        "set worker.gpus to 2 in the stack's settings, or add a host that has GPU 2"
        in (status["waits"])
    )
    assert re.match(r"Ray fails it at \d\d:\d\d:\d\d unless it has started", status["ends"])
    wait_for("demand", lambda: "{'GPU': 2.0}: 1+ pending tasks/actors" in _demands(cluster))
    assert _usage(cluster)["GPU"][0] == 0
    assert _usage(cluster)["CPU"][0] == 0

    asked = [*TWO_GPUS, "--force", "--no-wait", "--name", "queued", "--outputs", str(gpus)]
    [queued] = re.findall(
        r"Job '(\S+)' submitted successfully", cluster.train("submit", script, *asked).stdout
    )
    stopped = cluster.done("stop", "queued")
    assert f"job {queued} is queued: Ray stops it when it is about to start" in stopped

    with cluster.add_node("--num-cpus=0", "--num-gpus=2"):
        log = cluster.done("logs", "-f", "two-gpus")
        wait_for("its end", lambda: cluster.jobs()[queued]["status"] == "STOPPED")
    assert "ran" in log.splitlines()


@pytest.mark.usefixtures("stopping")
def test_workers_that_wait_for_another_job_name_it(cluster, gpus, tmp_path):
    (tmp_path / "late.py").write_text(RESERVING)
    holders = ["first", "second"]
    for name in holders:
        job = {"entrypoint": "sleep 600", "entrypoint_num_gpus": 1, "metadata": {"run": name}}
        cluster.post("/api/jobs/", json=job)
    wait_for("holders", lambda: _usage(cluster)["GPU"][0] == 2)
    path = str(tmp_path / "late.py")
    cluster.done("submit", path, "--name", "late", "--no-wait", "--outputs", str(gpus))
    wait_for("demand", lambda: "pending placement groups" in _demands(cluster))

    def waits() -> dict[str, Any] | None:
        found = _status(cluster, "late", gpus)
        return found if found["demand"] == "GPU 1" else None

    status: dict[str, Any] = wait_for("demand", waits)
    assert status["status"] == "RUNNING"
    assert re.match(r"waits for a free GPU: 2 of \d GPUs are in use by run ", status["waits"])
    for name in holders:
        assert f"run {name}" in status["waits"]
    assert status["ends"] == ""
    held = {name for name, job in cluster.jobs().items() if job["metadata"].get("run") in holders}
    wait_for("GPUs of jobs", lambda: _given(cluster) == {key: {0} for key in held})


def test_a_job_that_never_starts_fails_at_the_start_timeout(cluster, tmp_path):  # F29
    gcs, dashboard, client = free_ports(3)
    url = f"http://127.0.0.1:{dashboard}"
    head = ray_command(
        *("--head", "--num-cpus=0", f"--port={gcs}", f"--dashboard-port={dashboard}"),
        *(f"--ray-client-server-port={client}", f"--temp-dir={cluster.folder / 'h'}"),
        "--include-log-monitor=False",
    )
    env = cluster.ray_env | {"RAY_JOB_START_TIMEOUT_SECONDS": "2"}
    bearer = {"Authorization": f"Bearer {cluster.outputs['rayToken']}"}
    (tmp_path / "job.py").write_text("print('ran')")
    with service(head, env, cluster.folder / "h.log"):
        wait_for("head", lambda: requests.get(f"{url}/api/version", headers=bearer, timeout=1).ok)
        outputs = str(cluster.write_outputs("timeout.json", dashboardUrl=url))
        result = cluster.train(
            *("submit", str(tmp_path / "job.py"), *TWO_GPUS, "--force", "--outputs", outputs)
        )
    assert result.returncode == 1, result.stdout
    assert "ran" not in result.stdout.splitlines()
    assert re.search("error: Job supervisor actor failed to start within 2", result.stderr), (
        result.stderr
    )
