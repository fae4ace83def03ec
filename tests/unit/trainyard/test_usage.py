"""What a job uses: real processes, and a head's dashboard that answers from memory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests import web
from tests.waiting import wait_for
from trainyard import usage
from trainyard.client import results
from trainyard.client.history import RunRecord
from trainyard.usage import Usage

MIB = 2**20
TREE = """
import os, sys
held = bytearray(os.urandom(64 * 2**20))
if os.fork():
    print("ready", flush=True)
    sys.stdin.read()
while True:
    sum(range(10**5))
"""


class Head:
    """A dashboard: three nodes on this machine, and one with a GPU on another."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = {"driver_node_id": "b", "job_id": None}
        self.nodes = [
            node("a", "box", 10.0, isHeadNode=True),
            node("b", "box", 11.0),
            node("c", "box", 12.0),
            node("d", "gpu-1", 80.0) | {"gpus": [gpu(90, 7), gpu(0)]},
            node("e", "gpu-2", 0.0),
            node("f", "gone", 0.0, state="DEAD"),
        ]
        worker = {"cpuPercent": 150.0, "memoryInfo": {"rss": 3 * MIB}}
        self.workers = [worker | {"pid": 7, "jobId": "02"}, worker | {"pid": 8, "jobId": "01"}]
        self.asked: list[str] = []

    def answer(self, asked: web.Request) -> web.Said:
        assert asked.headers["Authorization"] == "Bearer canary"
        self.asked.append(asked.path)
        workers = self.workers if asked.path == "/nodes/d" else []
        found = {
            "/api/jobs/job-1": self.job,
            "/nodes?view=summary": {"data": {"summary": self.nodes}},
        }
        detail = {"data": {"detail": {"workers": workers}}}
        return 200, json.dumps(found.get(asked.path, detail)).encode()


def node(name: str, host: str, cpu: float, **more: Any) -> dict[str, Any]:
    raylet = {"nodeId": name, "state": "ALIVE", "isHeadNode": False, "nodeManagerAddress": name}
    return {
        "hostname": host,
        "bootTime": 1795902299.0,
        "cpu": cpu,
        "mem": [100, 40, 60.0, 60],
        "diskIoSpeed": [1.0, 2.0, 0.1, 0.1],
        "networkSpeed": [3.0, 4.0],
        "gpus": [],
        "raylet": raylet | more,
    }


def gpu(used: int, *pids: int) -> dict[str, Any]:
    on = [{"pid": each} for each in pids] or None
    return {"utilizationGpu": used, "memoryUsed": used, "memoryTotal": 100, "processesPids": on}


@pytest.fixture
def looks(monkeypatch) -> Usage:
    """The rows of a job whose dashboard does not answer."""
    monkeypatch.setenv("TRAINYARD_RUN", "mine")
    monkeypatch.setenv("TRAINYARD_STORAGE_URL", "file:///here")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "canary")
    monkeypatch.setenv(usage.DASHBOARD_VARIABLE, "127.0.0.1:9")
    return Usage("job-1")


@pytest.fixture
def head(looks, monkeypatch) -> Iterator[Head]:
    found = Head()
    with web.serving(found.answer) as server:
        monkeypatch.setenv(usage.DASHBOARD_VARIABLE, server.url.removeprefix("http://"))
        yield found


@pytest.fixture
def tree(looks) -> Iterator[subprocess.Popen[str]]:
    """A process of the run and its fork, which computes."""
    command = [sys.executable, "-c", TREE]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            os.killpg(process.pid, 9)


def test_processes_of_the_run_count_with_their_forks_and_shared_memory_once(
    looks, tree, monkeypatch
):
    def used() -> tuple[set[int], float, int]:
        return usage.processes(usage.PROC, looks._marks, looks._began)

    looks.look()
    assert not looks.rows
    begun = used()[1]
    wait_for("the fork", lambda: used()[1] > begun + 0.3)
    looks.look()
    pids, _, memory = used()
    assert (tree.pid in pids, os.getpid() in pids, len(pids)) == (True, False, 2)
    assert 64 * MIB < memory < 2 * 60 * MIB
    [row] = looks.rows
    assert 0 < row["CPU"] < 1.5
    assert {*row} == {"step", "time", "CPU", "memory"}  # no dashboard answers
    # Another run, and a run of this name in another store, are not this one.
    for name in ("TRAINYARD_RUN", "TRAINYARD_STORAGE_URL"):
        with monkeypatch.context() as other:
            other.setenv(name, "another")
            assert usage.processes(usage.PROC, Usage("job-1")._marks, 0) == (set(), 0.0, 0)
    assert usage.processes(usage.PROC, looks._marks, 2**60)[0] == set()


def test_three_nodes_of_one_machine_are_one_machine(looks, head, tree):
    looks.look()
    looks.look()
    [row] = looks.rows
    figures = {"CPU": 10.0, "memory": 60, "memory size": 100}
    figures |= {"disk read": 1.0, "disk written": 2.0, "sent": 3.0, "received": 4.0}
    machine = {f"head {name}": value for name, value in figures.items()}
    assert row == {name: row[name] for name in ("step", "time", "CPU", "memory")} | machine
    assert {*head.asked} == {"/api/jobs/job-1", "/nodes?view=summary"}
    for _ in range(14):
        looks.look()
    assert head.asked.count("/api/jobs/job-1") == 6  # rows 0, 0, 1, 2, 4, 8
    assert looks.rows[-1]["head CPU"] == 10.0


def test_workers_on_other_machines_count_with_the_gpus_that_they_use(looks, head, monkeypatch):
    head.job["job_id"] = "02"
    monkeypatch.setattr(usage, "processes", lambda *_: ({5}, 0.0, MIB))
    looks.look()
    looks.look()
    [row] = looks.rows
    assert (row["CPU"], row["memory"]) == (1.5, 4 * MIB)
    assert not {"/nodes/a", "/nodes/b", "/nodes/c"} & {*head.asked}  # counted here
    machines = {name.removesuffix(" CPU") for name in row if name.endswith(" CPU")}
    assert machines == {"head", "d"}  # no process of it is on e
    assert (row["GPU"], row["GPU memory"]) == (90.0, 90 * MIB)
    assert (row["d GPU"], row["d GPU memory"]) == (45.0, 90 * MIB)
    head.workers[0]["pid"] = 9  # on no GPU, as far as is known: as in a container
    looks.look()
    assert looks.rows[-1]["GPU"] == 45.0


@pytest.mark.parametrize("said", [None, b"", b"[" * 10**5, b"[]", b'{"data": {"summary": [7]}}'])
def test_an_agent_that_does_not_answer_costs_its_figures_only(said, looks, monkeypatch):
    def answer(asked: web.Request) -> web.Said:
        if said is None:
            asked.wfile.write(b"this is no HTTP\r\n")
        return None if said is None else (200, said)

    with web.serving(answer) as server:
        monkeypatch.setenv(usage.DASHBOARD_VARIABLE, server.url.removeprefix("http://"))
        looks.look()
        looks.look()
    assert [{*row} for row in looks.rows] == [{"step", "time", "CPU", "memory"}]


def test_a_clock_that_jumps_moves_no_row(looks, monkeypatch):
    looks.look()
    monkeypatch.setattr("time.time", lambda: 0.0)
    looks.look()
    looks.look()
    first, second = (row["time"] for row in looks.rows)
    assert 1.6e9 < first <= second < first + 600


def test_a_long_job_has_few_rows_and_processes_that_end_use_nothing(looks, monkeypatch):
    monkeypatch.setattr(usage, "MOST_ROWS", 4)
    for left in range(20, 0, -1):  # their times go with them
        monkeypatch.setattr(usage, "processes", lambda *_, left=left: (set(), float(left), 0))
        looks.look()
    assert 1 < len(looks.rows) <= 4
    assert {row["CPU"] for row in looks.rows} == {0.0}
    assert looks._pause > 4 * usage.PAUSE_S


def test_a_look_that_fails_ends_the_looks_and_nothing_else(looks, monkeypatch, capsys):
    monkeypatch.setattr(usage, "processes", lambda *_: 1 / 0)
    looks.run()
    assert "warning: what this job uses is not recorded any more: Zero" in capsys.readouterr().out


def test_peaks_and_means_are_a_table_with_curves():
    rows = [{"step": i, "CPU": i / 10, "memory": 2**29, "head GPU": i} for i in range(90)]
    run = RunRecord("mine", {}, [], [], None, usage=rows)
    cpu, memory, gpu = results.used(run)
    assert (cpu["what"], cpu["peak"], cpu["mean"]) == ("CPU", "8.9", "4.5")
    curve = cpu["over time"]
    assert (len(curve), curve[0], curve[-1]) == (30, results.BARS[0], results.BARS[-1])
    assert [*curve] == sorted(curve)
    assert (memory["peak"], gpu["what"], gpu["peak"]) == ("0.50 GiB", "head GPU", "89 %")
