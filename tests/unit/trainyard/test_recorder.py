"""Any command is a run: its end, log and files are in the store, whatever becomes of it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import web
from tests.waiting import wait_for
from trainyard import recorder, yielding
from trainyard.client import history
from trainyard.serving import uploaded
from trainyard.store.objects import FolderStore
from trainyard.tracking import job_record, run_folder
from trainyard.tracking.job_record import JobRecord
from trainyard.tracking.log_times import lines_before

ROOT = Path(__file__).parents[3]
RUN = "mine"
JOB = {
    "metadata": {"job_submission_id": "job-1", "user": "ada", "commit": "c0ffee123-dirty"}
    | {"changed": "3", "diff": "code/job-1.diff"},
    "runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"},
}


class Node:
    """A folder as a node's working folder, and a store."""

    def __init__(self, folder: Path) -> None:
        self.here, self.log, self.temp = folder / "here", folder / "log", folder / "temp"
        for each in (self.here, self.temp):
            each.mkdir()
        self.store = FolderStore(folder / "store")
        self.environment = os.environ | {
            recorder.JOB_VARIABLE: json.dumps(JOB),
            "TRAINYARD_STORAGE_URL": self.store.where,
            "TRAINYARD_RUN": RUN,
            "TMPDIR": str(self.temp),
            "PYTHONPATH": str(ROOT),
        }

    def start(self, code: str, **more: Any) -> subprocess.Popen[bytes]:
        """Start a Python program as a job's."""
        (self.here / "plain.py").write_text(code)
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "trainyard.recorder", sys.executable, "plain.py"],
                **{"cwd": self.here, "env": self.environment, "stdout": log} | more,
            )

    def run(self, code: str) -> int:
        """Run one to its end."""
        return self.start(code).wait(30)

    def job(self) -> dict[str, Any]:
        """Return the record of the newest job, empty before its start."""
        found = run_folder.whole_records(self.store.get(f"{RUN}/{run_folder.JOBS}"))
        return (found or [{}])[-1]

    def kept(self) -> dict[str, bytes]:
        """Return the files that the job has left, by name."""
        names = self.store.sizes()
        return {
            name.removeprefix(f"{RUN}/output/"): self.store.read(name)
            for name in names
            if name.startswith(f"{RUN}/output/")
        }


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path)


def test_a_plain_script_is_a_run(node):
    code = node.run(
        "import os, pathlib\n"
        "folder = pathlib.Path(os.environ['TRAINYARD_OUTPUT'])\n"
        "(folder / 'deep').mkdir()\n"
        "(folder / 'deep' / 'model.txt').write_text('weights')\n"
        "pathlib.Path('out.txt').write_text('made here')\n"
        "print('a line', flush=True)\n"
    )
    assert code == 0
    job = node.job()
    assert (job["job"], job["user"], job["commit"]) == ("job-1", "ada", "c0ffee123-dirty")
    assert (job["status"], job["exit"], job["files"]) == ("SUCCEEDED", 0, 2)
    assert node.kept() == {"deep/model.txt": b"weights", "out.txt": b"made here"}
    said = "a line\nkept deep/model.txt, out.txt: train pull mine\n"
    assert history.stored_log(node.store, RUN) == said
    assert node.log.read_text() == said
    run = history.read_run(node.store, RUN)
    assert (run.status, run.fault, run.started > 0) == ("SUCCEEDED", "", True)
    assert "commit c0ffee1 with 3 changed files (train pull has the diff)" in history.told(job)
    one = history.told(job | {"changed": "1", "diff": ""})
    assert "with 1 changed file (their diff is not kept)" in one
    assert not [*node.temp.iterdir()]


def test_a_record_says_what_the_job_costs_also_of_one_that_was_killed(node, monkeypatch):
    asked, cost = [], 1.25

    def answer(request):
        asked.append(request.path)
        return 200, json.dumps({"shares": [{"cost": cost}, {"cost": 0.5}]}).encode()

    with web.serving(answer) as queue:
        at = f"{queue.url.removeprefix('http://')}/api/queue/cost?since=7"
        told = {"metadata": JOB["metadata"] | {"cost": at}}
        node.environment[recorder.JOB_VARIABLE] = json.dumps(JOB | told)
        assert node.run("print('done')") == 0
        assert (node.job()["status"], node.job()["cost"]) == ("SUCCEEDED", 1.75)
        assert history.read_run(node.store, RUN).cost == 1.75
        assert asked == ["/api/queue/cost?since=7&run=mine"]
        # One that runs is asked for now and then, so what was noted outlives a kill.
        record = JobRecord(node.store.where, RUN, ["x"], told, str(node.log))
        record.begin({})
        record.log()
        assert "cost" not in node.job()
        monkeypatch.setattr(job_record, "COST_S", -1.0)
        record.log()
        assert (node.job().get("status"), node.job()["cost"]) == (None, 1.75)
        cost = 2.0
        record.stopping()
        assert (node.job()["status"], node.job()["cost"]) == ("STOPPED", 2.5)
    record.end(0, node.here, {})  # the queue is gone: what it has said stays
    assert node.job()["cost"] == 2.5


def test_what_a_job_uses_is_stored_while_it_runs(node):
    process = node.start(
        "import os, pathlib, signal, time\n"
        "held = bytearray(os.urandom(64 * 2**20))\n"
        "while not pathlib.Path('go').exists(): sum(range(10**5))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    try:
        rows = lambda: run_folder.logged(node.store, RUN, run_folder.USAGE).rows  # noqa: E731
        # A busy machine may be asked before the job has filled its memory.
        wait_for("rows", lambda: any(r["CPU"] and r["memory"] > 64 * 2**20 for r in rows()))
    finally:
        (node.here / "go").touch()
        assert process.wait(30) == -signal.SIGKILL
    usage = history.read_run(node.store, RUN).usage
    assert max(row["memory"] for row in usage) > 64 * 2**20
    for row in usage:
        assert 0 <= row["CPU"] < 2
        assert 0 < row["memory"] < 300 * 2**20
    assert "killed" not in node.log.read_text()  # no agent has told about this machine


def test_one_that_is_killed_says_how_much_memory_its_machine_had_left(node, capsys):
    mine = JobRecord(node.store.where, RUN, ["x"], JOB)
    row = {"step": 1, "head memory": 7.9 * 2**30, "head memory size": 8 * 2**30}
    mine._usage.rows.append(row)
    mine.end(-signal.SIGKILL, node.here, {})
    assert "killed: head memory 7.9 of 8.0 GiB in use\n" in capsys.readouterr().out
    assert history.read_run(node.store, RUN).usage == [row]


def test_what_a_notebooks_recorder_uses_is_not_taken_for_its_kernels(node):
    for command, known in (["x"], True), (["python", "-m", run_folder.NOTEBOOK, "x.ipynb"], False):
        mine = JobRecord(node.store.where, RUN, command, JOB)
        mine.begin({})
        assert mine._usage.is_alive() == known


def test_the_code_of_one_that_can_be_served_is_kept(node):
    (node.here / "words.txt").write_text("a b c")
    (node.here / ".secret").write_text("hidden")
    assert node.run("def predict(inputs): return 1") == 0
    assert node.job()["answers"] == "predict"
    packed, facts = uploaded.read(node.store, RUN, None) or pytest.fail("no code")
    assert sorted(packed.namelist()) == [uploaded.FACTS, "plain.py", "words.txt"]
    assert packed.read("plain.py") == b"def predict(inputs): return 1"
    assert facts["script"] == "plain.py"
    assert not history.read_run(node.store, RUN).unservable
    assert node.run("print('changed')") == 0
    assert "answers" not in node.job()
    assert uploaded.read(node.store, RUN, None) is None
    assert "define predict(inputs)" in history.read_run(node.store, RUN).unservable


def test_workers_of_a_job_know_the_address_of_its_cluster(node):  # beside other clusters too
    node.environment["RAY_ADDRESS"] = "192.0.2.1:6379"
    code = (
        f"import json, os\nprint(json.loads(os.environ['{recorder.JOB_VARIABLE}'])['runtime_env'])"
    )
    assert node.run(code) == 0
    env = {**JOB["runtime_env"], "env_vars": {"RAY_ADDRESS": "192.0.2.1:6379"}}
    assert str(env) in node.log.read_text()


def test_one_that_fails_is_a_run_too_and_ends_as_its_command(node):
    assert node.run("import os; print('so far', flush=True); os._exit(7)") == 7
    assert (node.job()["status"], node.job()["exit"]) == ("FAILED", 7)
    assert "so far" in (history.stored_log(node.store, RUN) or "")
    assert node.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)") == -signal.SIGKILL
    assert (node.job()["status"], node.job()["exit"]) == ("FAILED", -signal.SIGKILL)
    # One line a job: it is the same one here.
    assert len(history.read_run(node.store, RUN).jobs) == 1


@pytest.mark.parametrize("notice", [yielding.FOR_ANOTHER, yielding.FOR_GOOD.format("low use")])
def test_one_that_the_queue_has_ended_did_not_fail(node, notice):
    end = f"print({notice!r}); print('x' * 2000); raise SystemExit(1)"
    assert node.run(end) == 1
    assert (node.job()["status"], node.job()["exit"]) == ("STOPPED", 1)
    assert history.told(node.job()).startswith("STOPPED (exit code 1), ")
    assert node.run(f"print({notice!r})") == 0
    assert node.job()["status"] == "SUCCEEDED"


def test_one_that_is_told_to_stop_is_recorded_before_its_command_has_ended(node):
    process = node.start(
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n",
        start_new_session=True,
    )
    try:
        wait_for("the script", lambda: "ready" in node.log.read_text())
        os.killpg(process.pid, signal.SIGTERM)  # as Ray does, which kills it soon after
        wait_for("the record", lambda: node.job().get("status") == "STOPPED")
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert [*node.temp.iterdir()]  # of the one that was killed
    assert node.run("") == 0
    assert not [*node.temp.iterdir()]


def test_the_times_of_lines_are_noted_while_the_job_runs(node):
    process = node.start(
        "import pathlib, time\n"
        "print('first', flush=True)\n"
        "while not pathlib.Path('.go').exists(): time.sleep(0.05)\n"
        "print('second', flush=True)\n"
    )
    noted = lambda: node.store.get(f"{RUN}/logs/job-1.json")  # noqa: E731
    try:
        # Its second note is stored with the log, at the earliest after some seconds.
        wait_for("the first line's time", lambda: lines_before(noted(), time.time(), stored=True))
        between = time.time()
    finally:
        (node.here / ".go").touch()
        assert process.wait(30) == 0
    assert history.stored_log(node.store, RUN, between) == "second\n"
    assert history.stored_log(node.store, RUN, 1) == "first\nsecond\n"
    assert history.stored_log(node.store, RUN, time.time() + 2) == ""


def test_a_log_is_stored_while_the_job_runs_and_its_middle_left_out(node, monkeypatch):
    monkeypatch.setattr(job_record, "LOG_HEAD", 10)
    monkeypatch.setattr(job_record, "LOG_TAIL", 10)
    mine = JobRecord(node.store.where, RUN, ["x"], JOB, str(node.log))
    node.log.write_bytes(b"0123456789" * 10)
    mine.begin({})
    mine.log()
    expected = "0123456789\n[80 bytes of the log are left out here]\n0123456789"
    assert history.stored_log(node.store, RUN) == expected


def test_what_is_too_much_is_left_out_and_named(node, monkeypatch, tmp_path, capsys):
    for name, size in (("a", 3), ("b", 4), ("c", 90)):
        (tmp_path / name).write_bytes(b"x" * size)
    found = {name: (tmp_path / name).stat() for name in "abc"}
    assert job_record._fitting(found, 10) == (["a", "b"], ["c"])
    monkeypatch.setattr(job_record, "MOST_FILES", 1)
    assert job_record._fitting(found, 10) == (["a"], ["b", "c"])
    assert job_record._fitting({"b": found["a"], "c.py": found["b"]}, 10) == (["c.py"], ["b"])
    small = found["a"].st_size
    assert job_record._fitting({"b": found["a"], "c.py": found["c"]}, small) == (["b"], ["c.py"])
    mine = JobRecord(node.store.where, RUN, ["x"], JOB)
    mine.end(0, tmp_path / "nothing", {})
    assert node.job()["status"] == "SUCCEEDED"
    monkeypatch.chdir(tmp_path)
    mine.end(0, tmp_path / "nothing", found)
    assert "left out of the run: b, c; it takes 1 files" in capsys.readouterr().out
    assert node.job()["left out"] == ["b"]  # as many as are kept, at most


def test_an_output_of_20_gb_is_left_out_and_named(node):
    code = (
        "import os, pathlib\n"
        "folder = pathlib.Path(os.environ['TRAINYARD_OUTPUT'])\n"
        "(folder / 'small').write_text('x')\n"
        "os.truncate(os.open(folder / 'large', os.O_CREAT | os.O_WRONLY), 20 * 2**30)\n"
    )
    assert node.run(code) == 0
    assert (node.job()["left out"], node.kept()) == (["large"], {"small": b"x"})
    assert "left out of the run: large" in node.log.read_text()


def test_one_that_leaves_a_process_has_ended(node):
    code = (
        "import os, time\n"
        "pid = os.fork()\n"
        "print(f'child {pid}', flush=True) if pid else time.sleep(60)\n"
    )
    assert node.run(code) == 0
    child = int(node.log.read_text().split()[1])
    try:
        assert Path("/proc", str(child)).exists()
        assert node.job()["status"] == "SUCCEEDED"
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("storage", ["file:///proc/nowhere", "s3://none", "other://x"])
def test_a_store_that_is_away_costs_the_job_no_more_than_a_line(node, storage):  # F22
    node.environment |= {"TRAINYARD_STORAGE_URL": storage, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    node.environment |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    node.environment |= {"TRAINYARD_STORE_PATIENCE_S": "0"}
    code = "import os; print(os.environ['TRAINYARD_STORE_PATIENCE_S'], flush=True); os._exit(3)"
    assert node.run(code) == 3
    first, *others = node.log.read_text().splitlines()
    assert first.startswith("0") or any(line == "0" for line in others)  # the command's is its own
    assert "warning: the store" in node.log.read_text()


def test_without_a_run_the_command_takes_its_place(node):
    del node.environment["TRAINYARD_RUN"]
    process = node.start("import os; print(os.getpid(), flush=True)")
    assert process.wait(30) == 0
    assert int(node.log.read_text()) == process.pid
