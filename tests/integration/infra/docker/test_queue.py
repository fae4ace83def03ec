"""The queue of a lab: it is a container, and outlives the head's."""

import json
import os
import signal

import pytest

from tests import status
from tests.integration.infra import queued
from trainyard.client import outputs as contract
from trainyard.client.history import read_run
from trainyard.client.store import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_run_goes_on_after_the_loss_of_queue_and_head(make_lab, wait_for, tmp_path):
    (faults := tmp_path / "faults").mkdir()
    (faults / queued.HELD).touch()
    for folder in (tmp_path, faults):
        folder.chmod(0o777)  # for the user of the containers
    mine = {"name": "faults", "path": str(faults), "mount": "/data/faults", "readOnly": False}
    lab = make_lab(workers=2, grafana=False, notebook=True, queue=True, volumes=[mine])
    lab.stack.engine("up", "--yes")
    outputs = lab.stack.outputs()
    assert outputs["dashboardUrl"].endswith(f":{lab.stack.settings['queuePort']}")
    file = lab.stack.write_outputs(tmp_path)
    held = ("--env", "TINY_FAULTS=/data/faults", "--", "--epochs", "4")
    queued.train(file, *queued.SUBMIT, "first", *held)
    code, said = lab.container("jupyter").exec_run(["train", "queue", "--json"])
    assert code == 0, said.decode()
    assert [row["run"] for row in json.loads(said)] == ["first"]
    wait_for(lambda: not any(faults.iterdir()), 180)
    for name in ("queue", "ray-head"):
        os.kill(lab.container(name).attrs["State"]["Pid"], signal.SIGKILL)

    def job():
        try:
            listed = status.ask(f"{outputs['dashboardUrl']}/api/jobs/", outputs["rayToken"])
        except OSError:
            return "", ""
        (found,) = [each for each in listed if each["metadata"].get("run") == "first"]
        return found["status"], found["metadata"]["attempt"]

    wait_for(lambda: job() == ("SUCCEEDED", "2"), 300)
    store = open_store(contract.read(None, file))
    assert [each["epoch"] for each in read_run(store, "first").metrics] == [0, 1, 2, 3]
    lab.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
