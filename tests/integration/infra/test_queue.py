"""The queue before a real head: jobs of Ray's own client and of `train`, and who dies meanwhile."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests import status
from tests.integration.infra import queued
from trainyard.client import outputs as contract
from trainyard.client.history import read_run
from trainyard.client.store import open_store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

DRAINED = Path(__file__).with_name("drained.py")


@pytest.fixture(scope="module")
def stack(bring_up):
    changes = {"workers": 2, "worker": {"cpus": 1}, "objectStore": "directory"}
    with bring_up(queue=True, queueRules={"hourlyCost": 3600}, **changes) as stack:
        yield stack


def _jobs(stack):
    """The jobs of runs, by run, as Ray's API has them."""
    outputs = stack.outputs()
    listed = status.ask(f"{outputs['dashboardUrl']}/api/jobs/", outputs["rayToken"])
    return {each["metadata"]["run"]: each for each in listed if each["metadata"].get("run")}


def _killed(stack, started_below, word):
    """Kill a service by a word of its command line."""
    for process in started_below(stack.folder):
        try:
            if any(word in each for each in process.cmdline()):
                process.kill()
                process.wait(10)
                return
        except psutil.NoSuchProcess:
            continue
    raise AssertionError(word)


def test_a_run_goes_on_after_the_loss_of_queue_and_head_and_each_job_runs_once(
    stack, started_below, wait_for, tmp_path
):
    outputs = stack.outputs()
    file, token = stack.write_outputs(tmp_path), outputs["rayToken"]
    url = outputs["dashboardUrl"]
    assert url.endswith(f":{stack.settings['queuePort']}")
    # Ray's own client, without a word of the queue.
    ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, "RAY_ADDRESS": ""}
    command = [Path(sys.executable).with_name("ray"), "job", "submit", "--address", url]
    command += ["--submission-id", "plain", "--entrypoint-num-cpus", "1", "--"]
    assert "said by a plain job" in queued.ran([*command, "echo", "said by a plain job"], ray)
    # Each needs both workers.
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / queued.HELD).touch()

    train = partial(queued.train, file)
    submit = queued.SUBMIT
    held = ("--env", f"TINY_FAULTS={faults}", "--priority", "9", "--", "--epochs", "4")
    train(*submit, "first", *held)
    train(*submit, "second", "--after", "first", "--", "--epochs", "1")
    train(*submit, "third", "--priority", "5", "--", "--epochs", "1")
    states = partial(_jobs, stack)
    rows = json.loads(train("queue", "--json"))
    assert {row["run"]: row["place"] for row in rows} == {"first": "runs", "third": 1, "second": 2}
    assert "after job" in rows[-1]["reason"]
    assert states()["third"]["status"] == "PENDING"
    wait_for(lambda: not any(faults.iterdir()), 120)
    _killed(stack, started_below, "trainyard_queue.py")
    _killed(stack, started_below, "gcs_server")
    wait_for(lambda: states()["first"]["metadata"]["attempt"] == "2", 180)

    def ended():
        found = states()
        return {name: each["status"] for name, each in found.items() if name}

    wait_for(lambda: {*ended().values()} == {"SUCCEEDED"}, 240)
    log = train("logs", "first")
    assert "Restored from checkpoint" in log
    assert "epoch 4 done" in log
    assert "epoch 1 done" not in log
    attempts = {name: each["metadata"]["attempt"] for name, each in states().items() if name}
    assert attempts == {"first": "2", "second": "1", "third": "1"}
    assert states()["third"]["start_time"] < states()["second"]["start_time"]
    store = open_store(contract.read(None, file))
    for name, epochs in (("first", [0, 1, 2, 3]), ("second", [0]), ("third", [0])):
        assert [each["epoch"] for each in read_run(store, name).metrics] == epochs
    assert json.loads(train("queue", "--json")) == []


def test_a_job_makes_room_for_one_of_higher_priority_and_goes_on(stack, wait_for, tmp_path):
    train, steps = partial(queued.train, stack.write_outputs(tmp_path)), tmp_path / "steps"
    submit = ("submit", "--no-wait", "--name")
    train(*submit, "low", str(DRAINED), "--", "--epochs", "2", "--steps", str(steps))
    wait_for(lambda: steps.exists() and len(steps.read_text().split()) > 5, 120)
    train(*submit, "high", "--priority", "5", str(queued.TINY), "--", "--epochs", "1")
    wait_for(lambda: _jobs(stack)["high"]["status"] == "SUCCEEDED", 180)
    low = _jobs(stack)["low"]
    assert low["status"] in {"PENDING", "RUNNING"}, low
    Path(f"{steps}.go").touch()
    wait_for(lambda: _jobs(stack)["low"]["status"] == "SUCCEEDED", 180)
    assert _jobs(stack)["low"]["metadata"]["attempt"] == "2"
    jobs = read_run(open_store(contract.read(None, tmp_path / "outputs.json")), "low").jobs
    assert [each["status"] for each in jobs] == ["STOPPED", "SUCCEEDED"]  # not FAILED
    # Each step once, and so the sum as without the other job.
    assert [*map(int, steps.read_text().split())] == [*range(80)]
    (run,) = (r for r in json.loads(train("runs", "--json")) if r["run"] == "low")
    assert run["figures"]["loss"] == sum(range(80))
    costs = json.loads(train("cost", "--by", "run", "--json"))
    assert {row["run"]: row["cpu_hours"] >= 0 for row in costs}.keys() >= {"low", "high"}


def test_a_dev_session_runs_its_script_again_after_a_save(stack, wait_for, tmp_path):
    script, said = tmp_path / "code/script.py", tmp_path / "said"
    script.parent.mkdir()
    script.write_text("print('the first')\n")
    variables = os.environ | {"TRAINYARD_OUTPUTS": str(stack.write_outputs(tmp_path))}
    command = [sys.executable, "-m", "trainyard.client", "dev", str(script)]
    with said.open("w") as file:
        session = subprocess.Popen(command, env=variables, stdout=file, stderr=file)
    try:
        wait_for(lambda: "run 1 succeeded" in said.read_text(), 120)
        script.write_text("print('the second')\n")
        wait_for(lambda: "the second\nrun 2 succeeded" in said.read_text(), 60)
    finally:
        session.send_signal(signal.SIGINT)
        session.wait(60)


def test_a_user_trains_with_a_token_of_their_own_and_others_do_not_see_it(stack, tmp_path):
    admin = partial(queued.train, stack.write_outputs(tmp_path))
    admin("user", "add", "eva", "max", "--files", str(tmp_path / "class"))
    config = {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    def train(user, *arguments):
        return queued.ran(
            [sys.executable, "-m", "trainyard.client", *arguments, "-s", user], config
        )

    for user in ("eva", "max"):
        train(user, "attach", str(tmp_path / f"class/{user}.json"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code/script.py").write_text("print('said by a script')\n")
    submit = ("submit", str(tmp_path / "code/script.py"), "--name", "of-eva")
    assert "said by a script" in train("eva", *submit)
    assert "said by a script" in train("eva", "logs", "-f", "of-eva")
    assert {row["run"] for row in json.loads(train("eva", "list", "--json"))} == {"", "of-eva"}
    assert {row["user"] for row in json.loads(train("max", "list", "--json"))} == {"max"}
    with pytest.raises(AssertionError, match="no job and no run of this cluster is called"):
        train("max", "logs", "of-eva")
    with pytest.raises(AssertionError, match="run 'of-eva' is of another user"):
        train("max", *submit)
    (run,) = (each for each in json.loads(admin("runs", "--json")) if each["run"] == "of-eva")
    assert run["user"] == "eva"
    # Their own results too, without keys of the store.
    assert [each["run"] for each in json.loads(train("eva", "runs", "--json"))] == ["of-eva"]
    assert "said by a script" in train("eva", "logs", "of-eva")
    train("eva", "pull", "of-eva", "--to", str(tmp_path / "pulled"))
    assert (tmp_path / "pulled/of-eva/jobs.jsonl").exists()
    assert "none, since" in train("max", "runs") or json.loads(train("max", "runs", "--json")) == []
    with pytest.raises(AssertionError, match="of-eva"):
        train("max", "pull", "of-eva")


def test_an_entry_makes_a_run_whose_record_has_its_cost(stack, wait_for, tmp_path):
    file = stack.write_outputs(tmp_path)
    train = partial(queued.train, file)
    train(
        "submit", str(queued.TINY), "--name", "often", "--every", "* * * * *", "--", "--epochs", "1"
    )
    (row,) = json.loads(train("queue", "--json"))
    assert row["reason"].endswith("UTC: * * * * *")

    def ended():
        found = _jobs(stack).items()
        return [run for run, job in found if run != "often" and job["status"] == "SUCCEEDED"]

    wait_for(lambda: any(run.startswith("often-") for run in ended()), 240)
    assert train("stop", "often").strip().endswith("STOPPED")
    run = min(run for run in ended() if run.startswith("often-"))
    kept = read_run(open_store(contract.read(None, file)), run)
    assert [each["epoch"] for each in kept.metrics] == [0]
    # Three nodes of 1 $ a second; the record lacks what the queue has seen since.
    assert 0 < kept.cost <= json.loads(train("show", run, "--json"))["cost"]
    assert "cost this month" in train("info")
