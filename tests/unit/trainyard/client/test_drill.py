"""Drills without a cluster: refusals, requests, watches, comparisons and reports."""

import dataclasses
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock, call

import psutil
import pytest

from tests import client
from tests.waiting import wait_for
from trainyard.client import history, repeat, submission
from trainyard.client.dashboard import UnreachableError
from trainyard.client.drill import Fault, agent, faults, procedure
from trainyard.client.drill import report as drill_report
from trainyard.client.drill import store as drill_store
from trainyard.client.drill.watch import RunWatch
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Ssh
from trainyard.client.state import Actor
from trainyard.client.store import open_store
from trainyard.report import progress
from trainyard.tracking import runs

EPOCHS = [
    {"epoch": 0, "loss": 2.0, "minutes": 0.5},
    {"epoch": 1, "loss": 1.0, "valid_acc": 0.5, "minutes": 1.0, "note": "text"},
]


def job(status="RUNNING", **changes):
    values = {"job_id": "01", "entrypoint": "python -m trainyard.jobs.alexnet --epochs 2"}
    values["metadata"] = {"run": "first", "script": "training/alexnet.py"}
    return client.job("s1", status, **values | changes)


class Server:
    """A job server with one job and its log, and a state API with one worker."""

    def __init__(self, *jobs):
        self.known = list(jobs) or [job()]
        self.written = ""

    def jobs(self):
        return self.known

    def job(self, _):
        return self.known[0]

    def log_pieces(self, _):
        yield self.written

    def actors(self):
        shape = {"name": "", "pid": 1, "node": "n", "state": "ALIVE", "bundle": {}}
        return [
            Actor(id="w1", kind="RayTrainWorker", job="01", **shape),
            Actor(id="w2", kind="RayTrainWorker", job="02", **shape),
            Actor(id="c1", kind="TrainController", job="01", **shape),
        ]


@pytest.fixture
def run(stack):
    """A run of two epochs in the stack's store."""
    made = runs.Run(stack.storage_url, "first")
    made.start({"epochs": 2})
    made.write_metrics(EPOCHS)
    return made


@pytest.fixture
def watch(stack, run):
    server = Server()
    return RunWatch(server, server, open_store(stack), run.name, server.known[0]), server


# What is refused.


def test_a_run_that_does_not_train_now(stack):
    asked = procedure.Drill(fault=Fault.WORKER_LOSS, whole_node=False, seconds=1, script=None)
    server = Server(job("SUCCEEDED"))
    with pytest.raises(ClientError, match=r"no job trains run 'first' now .*--name first"):
        procedure.check(asked, "first", server, stack)
    server = Server(job())
    assert procedure.check(asked, "first", server, stack).submission_id == "s1"


def test_a_head_that_nobody_would_start_again(stack):
    other = dataclasses.replace(stack, ray_cluster_file="cluster_name: x")
    faults.check(Fault.WORKER_LOSS, other)
    with pytest.raises(ClientError, match="does not start it again: drill worker-loss"):
        faults.check(Fault.HEAD_LOSS, other)


def test_a_store_that_is_not_on_this_machine_or_nowhere(stack):
    with pytest.raises(ClientError, match=r"has no object store.*set objectStore to versitygw"):
        faults.check(Fault.STORE_LOSS, stack)
    ssh = Ssh(host="h", port=22, user="u", host_key="", key_file="", private_key="")
    with pytest.raises(ClientError, match="is on u@h: store-loss stops"):
        faults.check(Fault.STORE_LOSS, dataclasses.replace(stack, ssh=ssh))


# The store's process.


@pytest.fixture
def server():
    """A program that listens, as supervisord starts them."""
    text = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
    text += "print(s.getsockname()[1], flush=True); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        env=os.environ | {drill_store.SUPERVISED: "1"},
    )
    yield process, int(process.stdout.readline())
    process.kill()
    process.wait()


def test_only_a_supervised_listener_is_stopped(server, stack):
    process, port = server
    url = f"http://127.0.0.1:{port}"
    found = drill_store.find_server(dataclasses.replace(stack, object_store_endpoint=url))
    assert found.what == f"process {process.pid}"
    found.pause()
    end = time.monotonic() + 30
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < end
        time.sleep(0.01)
    found.restart()
    assert process.wait(10) == -signal.SIGKILL

    with socket.create_server(("127.0.0.1", 0)) as mine:
        url = f"http://127.0.0.1:{mine.getsockname()[1]}"
        with pytest.raises(ClientError, match="nothing that supervisord or a Docker Engine"):
            drill_store.find_server(dataclasses.replace(stack, object_store_endpoint=url))


def test_a_store_in_a_container_is_found_by_its_stack_and_port(stack, monkeypatch):
    container, engine = Mock(), Mock()
    container.name = "minio"
    engine.containers.list.return_value = [container]
    monkeypatch.setattr(drill_store.docker, "from_env", lambda: engine)
    url = "http://127.0.0.1:9000"
    found = drill_store.find_server(dataclasses.replace(stack, object_store_endpoint=url))
    assert found.what == "container minio"
    found.pause()
    found.restart()
    filters = {"label": "trainyard.stack=dev", "publish": "9000"}
    engine.containers.list.assert_called_once_with(filters=filters)
    assert container.mock_calls == [call.pause(), call.unpause(), call.restart(timeout=0)]


STOPPED_AND_STARTED = [call.pause(), call.restart()]


def test_the_store_is_started_again_whatever_happens(monkeypatch):
    store = Mock(what="x")
    monkeypatch.setattr(drill_store, "BACK_S", 0.2)
    with pytest.raises(ClientError, match=r"has not come back within 0\.2 s"):  # noqa: SIM117
        with drill_store.outage(store, "http://127.0.0.1:9"):
            raise KeyError
    assert store.mock_calls == STOPPED_AND_STARTED


@pytest.fixture
def outage(monkeypatch):
    """A store whose outage ends at once; afterwards signals do what they did."""
    monkeypatch.setattr(drill_store, "_wait", lambda _: None)
    # Tests that were started in the background ignore Ctrl-C.
    earlier = {each: signal.signal(each, signal.SIG_DFL) for each in drill_store.ENDING}
    try:
        yield Mock(what="x")
        assert {signal.getsignal(each) for each in drill_store.ENDING} == {signal.SIG_DFL}
    finally:
        for each, handler in earlier.items():
            signal.signal(each, handler)


@pytest.mark.parametrize("number", drill_store.ENDING)
def test_a_signal_ends_the_drill_once_the_store_is_started_again(outage, number, capfd):  # F22
    class Finalized:
        def __del__(self):
            os.kill(os.getpid(), number)  # what a handler raised in here would go nowhere

    ends = KeyboardInterrupt if number is signal.SIGINT else SystemExit
    with pytest.raises(ends) as ended, drill_store.outage(outage, "") as check:  # noqa: PT012
        check()
        Finalized()
        assert outage.mock_calls == [call.pause()]
        check()
    assert outage.mock_calls == STOPPED_AND_STARTED
    assert f"ended by {number.name}; the object store is started" in capfd.readouterr().err
    if number is not signal.SIGINT:
        assert ended.value.code == 128 + number


@pytest.mark.parametrize("when", ["pause", "restart"])
def test_a_signal_while_the_store_is_stopped_or_started_does_not_come_between(outage, when):  # F22
    def interrupted():
        # Another thread takes the signal, as any thread of a process may.
        with ThreadPoolExecutor(1) as other:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                other.submit(signal.raise_signal, number).result()

    getattr(outage, when).side_effect = interrupted
    with pytest.raises((SystemExit, KeyboardInterrupt)), drill_store.outage(outage, "") as check:
        check()
    assert outage.mock_calls == STOPPED_AND_STARTED


def test_what_the_shell_has_ignored_stays_so(outage, monkeypatch):
    every = (*drill_store.ENDING, *drill_store.SUSPENDING)
    before = {each: signal.getsignal(each) for each in every}
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with drill_store.outage(outage, ""):
            os.kill(os.getpid(), signal.SIGHUP)
        assert outage.mock_calls == STOPPED_AND_STARTED
    finally:
        monkeypatch.undo()
        for each, handler in before.items():
            signal.signal(each, handler)


# What is killed on the cluster.


def test_the_agent_kills_only_workers_of_its_node(monkeypatch):
    raylet = os.getpid()  # for this test
    words = {"args": ["ray::Worker", "60"], "executable": shutil.which("sleep")}
    ours, another = (
        subprocess.Popen(**words, env={agent.RAYLET: str(each)}) for each in (raylet, raylet + 1)
    )
    try:
        monkeypatch.setenv(agent.RAYLET, str(raylet))
        killer, killed = agent.Killer(), list[tuple[int, int]]()
        assert killer.find(None) == raylet
        wait_for("the worker", lambda: killer._workers() == {ours.pid})
        assert killer.find(ours.pid) == ours.pid
        for each in (another.pid, 1):
            with pytest.raises(ValueError, match=f"process {each} is not a worker"):
                killer.find(each)
        monkeypatch.setattr(os, "kill", lambda *each: killed.append(each))
        killer.kill(ours.pid, 0)
        killer.kill(raylet, 0)
        assert [pid for pid, _ in killed] == [ours.pid, ours.pid, raylet]
        assert {signal.SIGKILL} == {each for _, each in killed}
    finally:
        monkeypatch.undo()
        for each in (ours, another):
            each.kill()
            each.wait()


def test_the_agent_finds_the_gcs_by_its_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert agent._listener(port) == os.getpid()
    with pytest.raises(ValueError, match=f"listens on the head's port {port}"):
        agent._listener(port)


# What is sent again.

RECORDED = "python -m trainyard.recorder"


def test_a_job_of_this_package_is_sent_again():
    sent = job(
        entrypoint=f"{RECORDED} python -m trainyard.jobs.alexnet --images '/a b'",
        metadata={"run": "first", "script": str(repeat.scripts.JOBS / "alexnet.py")},
        runtime_env={
            "env_vars": {"MINE": "1", "TRAINYARD_RUN": "first"},
            "pip": ["x"],
            "py_modules": ["gcs://a.zip"],
            "excludes": [".git"],
        },
    )
    request = repeat.request(sent, {"CPU": 2.0, "memory": 5.0, "TPU": 1.0}, "second")
    assert request.arguments == ["--images", "/a b"]
    assert request.runtime_env["env_vars"]["MINE"] == "1"
    assert request.runtime_env["env_vars"]["TRAINYARD_RUN"] == "second"
    assert request.runtime_env["pip"] == ["x"]
    assert request.runtime_env["py_modules"] == [str(repeat.scripts.PACKAGE)]
    assert submission.entrypoint_options(request.entrypoint) == {
        "entrypoint_num_cpus": 2.0,
        "entrypoint_memory": 5,
        "entrypoint_resources": {"TPU": 1.0},
    }


@pytest.mark.parametrize("folder", ["", "deep/er"])
def test_a_script_of_ones_own_is_sent_again_from_its_folder(folder, tmp_path):
    path = tmp_path / folder / "mine.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("print(1)")
    script = repeat.scripts.find(str(path), str(tmp_path))
    command = submission.entrypoint_of(script, ["4"])
    sent = job(entrypoint=command, metadata={"script": str(path)})
    request = repeat.request(sent, {}, "second", script)
    assert request.script == script
    assert request.arguments == ["4"]
    path.unlink()
    with pytest.raises(ClientError, match="is not a file"):
        repeat.scripts.find(str(path), str(tmp_path))


@pytest.mark.parametrize(
    "entrypoint",
    [
        *("python mine.py", "python srv/mine.py"),  # of a path below /, all of / would be sent
        *("python -m trainyard.jobs.../../mine", "python -m mine", "python", "python 'mine.py", ""),
    ],
)
def test_no_cluster_chooses_what_of_this_machine_is_executed_and_sent(  # F35, F39
    entrypoint, tmp_path
):
    """A path in a job's metadata was executed here, and its folder uploaded."""
    path = tmp_path / "mine.py"
    path.write_text(f"from pathlib import Path; Path({str(tmp_path / 'canary')!r}).touch()")
    sent = job(entrypoint=entrypoint, metadata={"run": "first", "script": str(path)})
    with pytest.raises(ClientError, match=r"a script of your own.*--script"):
        repeat.request(sent, {}, "second")
    assert not (tmp_path / "canary").exists()


def test_a_named_script_is_sent_only_as_it_was_submitted(tmp_path):
    (tmp_path / "mine.py").touch()
    script = repeat.scripts.find(str(tmp_path / "mine.py"))
    for entrypoint in (f"python {tmp_path.name}/mine.py", "python other.py", "python -m mine"):
        with pytest.raises(ClientError, match="give --script and --working-dir as it was"):
            repeat.request(job(entrypoint=entrypoint), {}, "second", script)


@pytest.mark.parametrize(
    ("key", "value"),
    # Ray's client sends the lines of such files.
    {"pip": "/a", "uv": "a.txt", "conda": "a.yaml", "env_vars": "x", "java_jars": ["a"]}.items(),
)
def test_no_cluster_chooses_a_file_by_a_runtime_environment(key, value):  # F35
    with pytest.raises(ClientError, match="is not taken from a cluster"):
        repeat.request(job(runtime_env={key: value}), {}, "second")


@pytest.mark.parametrize("line", ['{"at": 1e12, "pid": 1}', '{"at": ', '{"at": "x", "pid": 1}'])
def test_the_word_of_a_cluster_on_its_clock_is_not_waited_for(line):
    with pytest.raises(ClientError, match="clocks differ"):
        faults._announced(line, "s1")


# What is watched.


def steps(done):
    return progress.Batches("epoch 5/9", done, 40, 1.0).log_line


def restored(checkpoint, epochs):
    return progress.Restored(checkpoint, epochs, "10.0.0.5").log_line


def test_a_run_is_seen_in_its_log_its_workers_and_the_store(watch):
    seen, server = watch
    seen.look()
    assert (seen.trained, len(seen.records), list(seen.workers)) == (2, 2, ["w1"])
    assert (seen.restored, seen.steps_an_epoch) == ([], None)
    assert seen.part_of_an_epoch(seen.trained_at + 15) == pytest.approx(0.5)
    assert seen.part_of_an_epoch(seen.trained_at + 99) == 1
    known, seen.records = seen.records, [{"minutes": "soon"}, {"minutes": None}]  # F69
    assert seen.part_of_an_epoch(seen.trained_at + 99) == 0
    seen.records = known
    server.written = f"{progress.Epoch(0).log_line}\n{steps(40)}\n"
    seen.look()
    assert (seen.trained, seen.part_of_an_epoch(0)) == (2, 0), "two are stored already"
    server.written += (
        f"(RayTrainWorker pid=1) {progress.Epoch(4).log_line}\n"
        f"(RayTrainWorker pid=1) {steps(10)}\n"
        "Reporting training result 4: TrainingReport(metrics={'epoch': 4})\n"
        f"(RayTrainWorker pid=1) {steps(20)[:30]}"
    )
    seen.look()
    assert (seen.trained, seen.steps_an_epoch) == (5, 40)
    assert seen.part_of_an_epoch(0) == 0.25
    server.written += (
        f"{steps(20)[30:]}\n"
        f"(RayTrainWorker pid=2) {restored('s3://ray/first/c-3', 3)}\n"
        f"{restored('s3://ray/first/c-4', None)}\n"
    )
    seen.look()
    assert (seen.trained, seen.part_of_an_epoch(0)) == (5, 0)
    assert seen.restored == [("s3://ray/first/c-3", 3), ("s3://ray/first/c-4", 2)]
    assert seen.reached == [5.5, 5]
    server.written += f"{steps(30)}\n{progress.Restored('c-5', 5, '10.0.0.5', 20).log_line}\n"
    seen.look()
    assert seen.restored[2:] == [("c-5", 5.5)]
    assert seen.reached[2:] == [5.75]
    assert seen.part_of_an_epoch(0) == 0.5


def test_a_resumed_run_has_the_epochs_of_its_checkpoint(watch):
    seen, server = watch
    server.written = f"{restored('s3://ray/first/c-2', 2)}\n{steps(10)}\n"
    seen.look()
    assert (seen.trained, seen.part_of_an_epoch(0)) == (2, 0.25)


def test_waiting_ends_with_the_job_or_the_server(watch, monkeypatch):
    seen, server = watch
    monkeypatch.setattr("trainyard.client.drill.watch.POLL_S", 0)
    with pytest.raises(ClientError, match=r"new workers did not come within 0 s"):
        seen.until("new workers", lambda: False, 0)
    server.known = [job("FAILED")]
    with pytest.raises(ClientError, match=r"job s1 has ended \(FAILED\) before its next epoch"):
        seen.until("its next epoch", lambda: False)
    monkeypatch.setattr("trainyard.client.drill.watch.LOST_AFTER_S", 0)
    monkeypatch.setattr(server, "job", Mock(side_effect=UnreachableError("ReadTimeoutError")))
    with pytest.raises(ClientError, match="did not answer for 0 s"):
        seen.until("its next epoch", lambda: False)
    assert not seen.answers


class Scripted:
    """A watch whose looks see what a test says: workers, and the number of stored epochs."""

    def __init__(self, *looks):
        self.looks = looks

    def until(self, _, check):
        for at, (workers, stored) in enumerate(self.looks):
            self.workers, self.records = dict.fromkeys(workers), [{}] * stored
            if check():
                return float(at)
        raise AssertionError("not seen")


@pytest.mark.parametrize(
    ("same_workers", "resumed"),
    [(False, 4.0), (True, 1.0)],
    ids=["what a lost worker still stores", "what the same worker stores"],
)
def test_the_first_epoch_after_a_fault(same_workers, resumed):
    watch = Scripted(({"a"}, 2), ({"a"}, 3), (set(), 3), ({"b"}, 3), ({"b"}, 4))
    before = procedure.Before(workers=frozenset({"a"}), restores=0, stored=2, trained=2)
    detected, at = procedure._next_epoch(watch, before, None, same_workers=same_workers)
    assert at == resumed
    assert (detected is None) == same_workers


# What is compared.


def test_an_undisturbed_run_is_made_once(run, stack):
    store = open_store(stack)
    mine = history.read_run(store, run.name)
    made = procedure._twin(mine, store)
    assert made.name == "first-undisturbed"
    assert json.loads(store.get("first-undisturbed/config.json") or b"") == {"epochs": 2}
    twin = runs.Run(stack.storage_url, made.name)
    twin.start({"epochs": 2})
    twin.write_metrics(EPOCHS)
    assert procedure._twin(mine, store).metrics == EPOCHS
    other = dataclasses.replace(mine, config={"epochs": 3})
    assert procedure._twin(other, store).name == "first-undisturbed-2"


def test_runs_are_equal_to_the_tolerance():
    near = [EPOCHS[0], EPOCHS[1] | {"loss": 1.0 + 1e-8, "minutes": 7.0}]
    assert drill_report.final_metrics(EPOCHS, near) == {
        "loss": (1.0, 1.0 + 1e-8),
        "valid_acc": (0.5, 0.5),
    }
    assert drill_report.differences("SUCCEEDED", EPOCHS, near) == []


@pytest.mark.parametrize(
    ("status", "mine", "fault"),
    [
        ("FAILED", EPOCHS, "the run's job is FAILED"),
        ("SUCCEEDED", EPOCHS[:1], "it has 1 epochs, the undisturbed run 2"),
        ("SUCCEEDED", [EPOCHS[0], EPOCHS[0], EPOCHS[1]], r"its epochs are \[0, 0, 1\]"),
        ("SUCCEEDED", [EPOCHS[0], EPOCHS[1] | {"loss": 1.1}], "loss is 1.1, undisturbed 1.0"),
        ("SUCCEEDED", [EPOCHS[0], EPOCHS[1] | {"loss": float("nan")}], "loss is nan"),
    ],
)
def test_runs_that_differ(status, mine, fault):
    assert re.search(fault, "; ".join(drill_report.differences(status, mine, EPOCHS)))


def test_a_report_says_all(capsys):
    report = drill_report.DrillReport(
        fault="store-loss",
        what="stopped it",
        run="first",
        undisturbed="second",
        status="SUCCEEDED",
        detected_s=None,
        resumed_s=12.34,
        restored="",
        lost_epochs=1.25,
        lost_steps=50,
        epochs=(2, 2),
        metrics={"loss": (1.0, 1.0)},
    )
    text = {row["what"]: row["value"] for row in report.rows()}
    assert text["detected after"] == "nobody had to act"
    assert text["next epoch stored after"] == "12.3 s"
    assert text["trained twice"] == "1.2 epochs, about 50 steps"
    assert text["loss"] == "1, undisturbed 1"
    assert text["result"].startswith("passed: ")
    failed = dataclasses.replace(report, faults=["a", "b"], detected_s=1.0)
    assert failed.rows()[-1]["value"] == "a; b"
    assert json.loads(json.dumps(failed.record()))["passed"] is False
