"""The queue of a lab is a container, and outlives the head's; an idle lab ends itself."""

import json
import os
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest

from tests import status
from tests.integration.infra import queued
from trainyard.client import outputs as contract
from trainyard.client.history import read_run
from trainyard.client.store import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_run_goes_on_after_the_loss_of_queue_and_head_and_an_idle_lab_ends(
    make_lab, wait_for, tmp_path, request
):
    (faults := tmp_path / "faults").mkdir()
    (faults / queued.HELD).touch()
    for folder in (tmp_path, faults):
        folder.chmod(0o777)  # for the user of the containers
    mine = {"name": "faults", "path": str(faults), "mount": "/data/faults", "readOnly": False}
    start = datetime.now(UTC)
    reserved = {"start": start, "end": start + timedelta(hours=2)}
    times = {key: f"{time:%Y-%m-%dT%H:%MZ}" for key, time in reserved.items()}
    own = {"grafana": False, "notebook": True, "queue": True, "reservation": times}
    lab = make_lab(workers=2, volumes=[mine], **own)
    # The timer of a reservation is a program here.
    request.addfinalizer(lambda: lab.stack.engine("destroy", "--yes", check=False))
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

    lab.change(idleEnd={"minutes": 1})
    lab.stack.engine("up", "--yes")
    file, outputs = lab.stack.write_outputs(tmp_path), lab.stack.outputs()
    (sleeps := tmp_path / "sleeps.py").write_text("import time\ntime.sleep(900)\n")
    queued.train(file, "submit", str(sleeps), "--no-wait", "--name", "sleeps")

    def known():
        return status.ask(f"{outputs['idleEndUrl']}/verdict", outputs["idleEndToken"])

    def states():
        return {each.status for each in lab.containers().values()}

    # The loss of the head may have restarted what asked it.
    of_job = re.compile("job .* is RUNNING|actor _ray_internal_job_actor_.* lives")
    wait_for(lambda: all(map(of_job.fullmatch, known()["active"] or [""])), 240)
    since = known()["looked"]
    wait_for(lambda: known()["looked"] > since + 65, 120)
    assert (known()["ends_in"], states()) == (None, {"running"})  # B27
    queued.train(file, "stop", "sleeps")
    wait_for(lambda: re.search("ends when idle +in [01] min", queued.train(file, "info")), 60)
    wait_for(lambda: states() == {"exited"}, 180)
    # The timer then ends its own supervisord.
    wait_for(lambda: "local-supervisor" in lab.stack.drift().stdout, 60)
    assert "idle: all ends within 5 min" in lab.container("idle-end").logs().decode()
    lab.stack.engine("up", "--yes")
    assert (states(), bool(known()["end"])) == ({"running"}, False)
    lab.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
