"""`train drill` on a stack of processes: the losses, and that they are recovered unaided."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests import pages, waiting
from tests.integration.infra import drilled
from trainyard.client import jobs, store
from trainyard.client import outputs as contract
from trainyard.client.job_server import JobServer
from trainyard.report import progress

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

EPOCHS = 6
(DRILLS,) = pages.read_by(__file__)
# F21 F22 F25 F27 D47 D48 D50
FAULTS = [[fault, *more] for what, fault, _, *more in DRILLS.of("train") if what == "drill"]
SHORTER = {"store-loss": ["--seconds", "4"], "preempt": ["--seconds", "5"]}
# The drill says so on its way: then the job, which waits for it, may go on.
SCRIPT = str(Path(drilled.__file__))
STRUCK = (
    "killed ",
    "run drilled-preempt goes on",
    "the object store does not answer",
    "the head and its",
)


@pytest.fixture(scope="module")
def stack(stack_with_minio) -> Any:
    return stack_with_minio


@pytest.fixture(scope="module")
def go(tmp_path_factory) -> Path:
    """The same for all tests: their runs have one configuration, and so one undisturbed run."""
    return tmp_path_factory.mktemp("go") / "go"


@pytest.fixture
def held(train, outputs_file, go, wait_for) -> Iterator[Callable[[str], None]]:
    """Brings a run to the middle of an epoch; it is stopped afterwards if it has not ended."""
    runs: list[str] = []
    outputs = contract.read(None, outputs_file)
    place, server = store.open_store(outputs), JobServer(outputs)

    def waits(run: str) -> bool:
        """Whether the log has the step at which the job waits; it may lag behind the store."""
        log = "".join(jobs.read_log(server, jobs.resolve(server, run).submission_id))
        lines = map(progress.parse, log.splitlines())
        *_, last = [None, *(line.record for line in lines if line)]
        return isinstance(last, progress.Batches) and last.done == drilled.HELD_STEPS

    def start(run: str) -> None:
        runs.append(run)
        go.unlink(missing_ok=True)
        submit = train(
            *("submit", SCRIPT, "--name", run, "--no-wait", "--"),
            *("--epochs", str(EPOCHS), "--go", str(go)),
        )
        said = submit.communicate(timeout=60)
        assert submit.returncode == 0, said
        wait_for(
            lambda: (place.get(f"{run}/metrics.jsonl") or b"").count(b"\n") == drilled.HELD, 120
        )
        wait_for(lambda: waits(run), 60)

    yield start
    go.touch()
    for run in runs:
        train("stop", run).communicate(timeout=90)


@pytest.mark.parametrize("arguments", FAULTS, ids="".join)
def test_a_run_ends_as_if_nothing_had_happened(
    arguments, stack, train, held, go, alerts, wait_for, started_below, request
):
    run = f"drilled-{request.node.callspec.id}"
    held(run)
    options = ("--script", SCRIPT, "--yes", "--json")
    if arguments[0] == "store-loss":
        drill = train("drill", "store-loss", run, "--seconds", "600", *options)
        _end_by_a_signal(drill, stack, started_below)
    fault, *more = arguments
    process = train("drill", fault, run, *more, *SHORTER.get(fault, ()), *options)
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if line.startswith(STRUCK) and (arguments != ["head-loss"] or "nodes are back" in line):
            go.touch()
    assert process.stdout is not None
    out = process.stdout.read()
    assert process.wait(30) == 0, "".join(said) + out
    report = json.loads(out)
    assert report["passed"] is True
    assert report["faults"] == []
    assert report["status"] == "SUCCEEDED"
    assert report["epochs"] == [EPOCHS, EPOCHS]
    mine, theirs = report["metrics"]["loss"]
    assert mine == theirs
    if arguments[0] == "store-loss":
        assert report["detected_s"] is None
        assert report["restored"] == ""
        assert report["lost_steps"] == 0
        assert report["resumed_s"] >= 4
    else:
        assert 0 <= report["detected_s"] < report["resumed_s"]
        assert f"/{run}/checkpoint_" in report["restored"]
        # And no other epoch; the content of the notice's checkpoint is not lost.
        lost = 0 if arguments[0] == "preempt" else drilled.HELD_STEPS
        assert report["lost_steps"] == lost
    if arguments == ["worker-loss"] and stack.outputs()["alertmanagerUrl"]:
        names = wait_for(lambda: {alert["labels"]["alertname"] for alert in alerts.alerts()}, 60)
        assert names == {"RayWorkerProcessLost"}


def _end_by_a_signal(
    process: subprocess.Popen[str],
    stack: Any,
    started_below: Callable[[Path], list[psutil.Process]],
) -> None:
    """The drill is told to end: it does, and the store answers.

    Not by a closed terminal, which all processes below `nohup` ignore: see the unit tests.
    """
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(STRUCK):
            break
    endpoint = stack.outputs()["objectStoreEndpoint"]
    waiting.wait_for("the store to be stopped", lambda: not _answers(endpoint))
    process.send_signal(signal.SIGTERM)
    try:
        _, said = process.communicate(timeout=90)
    finally:
        for each in started_below(stack.folder):  # otherwise all following tests wait for it
            if each.status() == psutil.STATUS_STOPPED:
                each.resume()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "the object store is started again" in said
    assert _answers(endpoint)


def _answers(endpoint: str) -> bool:
    try:
        return requests.get(endpoint, timeout=1) is not None
    except requests.RequestException:
        return False
