"""The page's buttons: commands that a user could type."""

import sys
import threading
from types import SimpleNamespace

import pytest

from tests import ui_stack, waiting
from trainyard.access import typed
from trainyard.client import job_server
from trainyard.client.errors import ClientError
from trainyard.client.ui import commands
from trainyard.client.ui.commands import Action, Commands

PROGRAM = typed.program("train")
ENDED = SimpleNamespace(stdout=(), wait=lambda: 0, poll=lambda: 0)  # a process


def job(status: str = "SUCCEEDED", **changes) -> job_server.Job:
    return job_server._job(ui_stack.job(1, status, **changes))


def test_a_button_is_the_command_that_it_shows():
    [stop] = commands.of_job("lab", job("RUNNING"))
    assert stop.shown == f"{PROGRAM} stop raysubmit_000001 -s lab"
    assert stop.arguments[1:] == (
        *("-m", "trainyard.client", "stop"),
        *("-s", "lab", "--", "raysubmit_000001"),
    )
    assert "Stop" in stop.question
    assert commands.of_job("lab", job()) == []


def test_a_run_is_pulled_served_and_resumed():
    found = commands.of_run("lab", "run-0001", [job(), job("FAILED")], servable=True)
    assert [each.action for each in found] == ["pull", "serve", "resume"]
    resume = found[-1]
    words = "submit alexnet --name run-0001 -s lab -- --epochs 20 --lr 0.01"
    assert resume.shown == f"{PROGRAM} {words}"
    assert "--no-wait" in resume.arguments
    active = commands.of_run("lab", "run-0001", [job("RUNNING")], servable=False)
    assert [each.action for each in active] == ["stop", "pull"]
    assert [each.action for each in commands.of_run("dev", "r", [], servable=False)] == ["pull"]


@pytest.mark.parametrize(
    "entrypoint",
    ["python my_own.py --x 1", "python -m os", "sh -c 'x'", "'", "python -m trainyard.jobs._x"],
)
def test_a_cluster_chooses_no_script_of_this_machine(entrypoint):
    strange = job(entrypoint=entrypoint)
    resume = commands.of_run("dev", "run-0001", [strange], servable=False)[-1]
    assert resume.arguments == ()
    assert resume.shown == f"{PROGRAM} submit SCRIPT --name run-0001"
    with pytest.raises(ClientError, match="yourself"):
        Commands(None).start("dev", resume)


def test_names_are_neither_options_nor_a_shells_text():
    strange = "x; touch y $(z) `w`"
    [stop] = commands.of_job("dev", job("RUNNING", submission_id=strange))
    assert stop.arguments[-1] == strange
    assert stop.shown == f"{PROGRAM} stop '{strange}'"
    [stop] = commands.of_job("lab", job("RUNNING", submission_id="--stack=other"))  # F69
    assert stop.arguments[-2:] == ("--", "--stack=other")
    assert stop.shown == f"{PROGRAM} stop -s lab -- --stack=other"


def test_a_command_runs_shows_its_output_and_ends_with_the_page(tmp_path):
    running = Commands(tmp_path / "outputs.json")
    program = "import os; print('\\x1b[31mred\\x1b[0m\\x07', os.environ['TRAINYARD_OUTPUTS'])"
    action = Action(action="pull", shown="train pull x", arguments=(sys.executable, "-c", program))
    running.start("dev", action)
    waiting.wait_for("the command", lambda: running.all()[0]["code"] is not None, 20)
    [row] = running.all()
    assert (row["code"], row["command"]) == (0, "train pull x")
    assert row["text"] == f"red {tmp_path / 'outputs.json'}\n"
    wait = "import signal, sys; print('ready', flush=True); signal.sigwait([2]); sys.exit(130)"
    signals = f"import signal; signal.pthread_sigmask(0, [2]); {wait}"
    forever = Action(
        action="serve", shown="train serve x", arguments=(sys.executable, "-c", signals)
    )
    running.start("dev", forever)
    waiting.wait_for("its output", lambda: running.all()[0]["text"], 20)
    with pytest.raises(ClientError, match="runs already"):
        running.start("dev", forever)
    running.close()
    waiting.wait_for("its end", lambda: running.all()[0]["code"] == 130, 20)


def test_the_page_starts_only_what_it_offers(guard, browser, tmp_path):
    headers = {"Origin": guard.origin}

    def post(**content: object):
        return browser.post("/api/commands", json=content, headers=headers)

    for content in (
        {"stack": "dev", "command": f"{PROGRAM} stop raysubmit_000001", "job": "raysubmit_000001"},
        {"stack": "dev", "command": f"{PROGRAM} stop none", "job": "none"},
        {"stack": "dev", "command": f"{PROGRAM} stop raysubmit_000002", "run": "run-0001"},
        {"stack": "dev", "command": "rm", "run": "run-0001"},
        {"stack": "dev", "command": "withdraw", "service": "--stack=x"},
        {"stack": "none", "command": f"{PROGRAM} pull run-0001", "run": "run-0001"},
        {"stack": "dev", "command": ["pull"], "run": "run-0001"},
        {},
    ):
        assert post(**content).status_code == 503, content
    assert browser.post("/api/commands", content=b"[", headers=headers).status_code == 503
    assert browser.get("/api/commands").json() == {"rows": []}
    [run] = browser.get("/api/dev/compared", params={"runs": "run-0001"}).json()["runs"]
    pull = run["actions"][0]["command"]
    assert post(stack="dev", command=pull, run="run-0001").json()["command"] == pull
    assert pull.endswith("train pull run-0001")

    def ended() -> dict:
        [row] = browser.get("/api/commands").json()["rows"]
        return row["code"] is not None and row

    row = waiting.wait_for("the pull", ended, 60)
    assert "run run-0001" in row["text"]
    assert (tmp_path / "results/run-0001/metrics.jsonl").exists()


def test_stop_is_of_the_job_that_is_named(guard, head, browser, monkeypatch):  # F79
    twins = [ui_stack.job(number, "RUNNING", metadata={"run": "run-0001"}) for number in (7, 8)]
    head.put(twins)
    [run] = browser.get("/api/dev/compared", params={"runs": "run-0001"}).json()["runs"]
    stops = [each["command"] for each in run["actions"] if each["action"] == "stop"]
    assert sorted(each.split()[-1][-1] for each in stops) == ["7", "8"]
    started = []
    monkeypatch.setattr("subprocess.Popen", lambda words, **_: started.append(words[-1]) or ENDED)
    for stop in stops:
        content = {"stack": "dev", "command": stop, "run": "run-0001"}
        headers = {"Origin": guard.origin}
        assert browser.post("/api/commands", json=content, headers=headers).status_code == 200
    assert started == [stop.split()[-1] for stop in stops]


def test_a_request_that_was_given_up_ends_without_a_traceback(capfd):
    from trainyard.access import parallel

    go = threading.Event()
    future = parallel.start(go.wait)
    assert not future.cancel()
    go.set()
    assert future.result(20)
    assert capfd.readouterr().err == ""
