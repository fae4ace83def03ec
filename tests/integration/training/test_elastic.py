"""A number of workers that follows the cluster, under a real Ray Train."""

import json

import pytest

from tests.integration.training import elastic
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

DEADLINE_S = 150


def test_a_run_goes_on_with_fewer_workers_and_grows_again(cluster, tmp_path):  # F21
    network, optimizer = elastic.untrained()
    alone = [elastic.learn(network, optimizer, epoch, 0, 1).item() for epoch in range(3)]
    options = ("--epochs", "3", "--workers", "2:3", "--go", str(tmp_path))
    job = cluster.popen("submit", elastic.__file__, "--name", "elastic", "--", *options)

    def train(epoch: int, workers: int) -> None:
        wait_for(f"{workers} workers", (tmp_path / f"at-{epoch}-{workers}").exists, DEADLINE_S)
        (tmp_path / f"go-{epoch}").touch()

    try:
        with cluster.add_node("--num-cpus=1"):
            train(0, 3)
            wait_for("the next epoch", (tmp_path / "at-1-3").exists, DEADLINE_S)
        train(1, 2)
        with cluster.add_node("--num-cpus=1"):
            train(2, 3)
            out, err = job.communicate(timeout=DEADLINE_S)
    finally:
        job.kill()
        job.communicate()
    assert job.returncode == 0, out + err
    found = [*map(json.loads, cluster.read("elastic/metrics.jsonl").splitlines())]
    assert [record["workers"] for record in found] == [3, 2, 3]
    assert [record["loss"] for record in found] == pytest.approx(alone, rel=1e-5)
