"""A notebook is a run from `trainyard.run` on, whatever its kernel ends by; in a real IPython."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import pages, ran, ui_stack, web
from tests.client import Train
from tests.waiting import wait_for
from trainyard.client import history
from trainyard.client import outputs as contract
from trainyard.client.recorded import LOST
from trainyard.store.objects import FolderStore
from trainyard.tracking import run_folder
from trainyard.tracking.job_record import JobRecord

DONE = "-- done --\n"
KERNEL = f"""
import json, sys
from IPython.core.interactiveshell import InteractiveShell
from trainyard.client import notebook
notebook.END_S = 60  # a busy machine may take longer than Jupyter waits
shell = InteractiveShell.instance(colors="nocolor")
for line in sys.stdin:
    shell.run_cell(json.loads(line), store_history=True)
    sys.stdout.flush()
    sys.__stdout__.write({DONE!r})
    sys.__stdout__.flush()
"""
FORK = "import os\nif os.fork() == 0: trainyard.finish(); os._exit(0)\n_ = os.wait()"
LAST = "begun\nthe kernel was killed\n"
[EXAMPLE] = [block.text for block in pages.blocks() if "trainyard.run(" in block.text]


class Kernel:
    """An IPython of its own, as Jupyter starts one."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", KERNEL],
            env=os.environ | {"IPYTHONDIR": str(folder), "PYTHONPATH": str(pages.ROOT)} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.run("import trainyard")

    def run(self, cell: str) -> str:
        """Return what a cell prints."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(cell) + "\n")
        self.process.stdin.flush()
        return "".join(iter(self.process.stdout.readline, DONE))

    def end(self) -> None:
        """End it as Jupyter does."""
        self.process.communicate(timeout=30)


@pytest.fixture
def results(tmp_path) -> FolderStore:
    return FolderStore(tmp_path / "results")


@pytest.fixture
def kernel(tmp_path, results, monkeypatch) -> Iterator[Callable[..., Kernel]]:
    file = ui_stack.write_outputs(tmp_path / "o.json", "http://127.0.0.1:1", tmp_path / "results")
    monkeypatch.setenv(contract.FILE_VARIABLE, str(file))
    with ExitStack() as ends:

        def start(**variables: str) -> Kernel:
            found = Kernel(tmp_path / "ipython", **variables)
            ends.enter_context(found.process)
            ends.callback(found.process.kill)
            return found

        yield start


def newest(store: FolderStore, run: str) -> dict[str, Any]:
    """Return the record of a run's newest job; empty before its start."""
    found = run_folder.whole_records(store.get(f"{run}/{run_folder.JOBS}"))
    return (found or [{}])[-1]


def code(store: FolderStore, run: str) -> str:
    """Return the cells of a run."""
    files = [each["file"] for each in history.read_run(store, run).shown]
    assert {Path(each).name for each in files} == {"00000000-cells.txt"}
    return store.read(f"{run}/{files[-1]}").decode()


def test_the_example_is_a_run_like_others(kernel, results, train: Train):
    mine = kernel(JPY_SESSION_NAME="course/mine.ipynb")
    assert mine.run("x = 1") == ""
    cells = [cell.strip() for cell in EXAMPLE.split("# %%") if cell.strip()]
    assert len(cells) > 1
    said = [mine.run(cell) for cell in cells]
    run = history.read_run(results, "first")
    assert (run.status, run.fault, [row["acc"] for row in run.logged][-1]) == ("SUCCEEDED", "", 0.9)
    assert run.user
    assert code(results, "first") == "\n\n".join(["import trainyard", "x = 1", *cells])
    assert history.stored_log(results, "first") == "".join(said) != ""
    assert mine.run("import sys\nprint(type(sys.stdout).__name__)") != "Both\n"
    mine.end()
    assert history.stored_log(results, "first") == "".join(said)
    assert train("show", "first") == 0, train.err
    assert "trainyard.client.notebook mine.ipynb" in train.out
    assert train("runs") == 0, train.err
    assert "SUCCEEDED\t0.9" in train.out
    assert train("logs", "first") == 0, train.err
    assert train.out == "".join(said)


def test_what_cannot_be_kept_is_told_once_and_ends_no_cell(kernel, results):
    mine = kernel()
    assert 'nothing is kept; trainyard.run("NAME") begins a run' in mine.run("trainyard.log(a=1)")
    mine.run("trainyard.run('first')")
    bad = "trainyard.log({'bad\\n': 1, 'good': 2})\nprint('goes on')"
    told = "trainyard.log: 'bad\\n': names have 1 to 200 printable letters\n"
    assert mine.run(bad) == f"{told}goes on\n"
    assert mine.run(bad) == "goes on\n"
    mine.run("trainyard.finish()\ntrainyard.finish()")
    [row, _] = history.read_run(results, "first").logged
    assert row["good"] == 2
    assert "bad" not in row
    assert history.stored_log(results, "first") == f"{told}goes on\ngoes on\n"


def test_a_kernel_that_is_killed_leaves_a_run_that_failed(kernel, results, tmp_path, train: Train):
    mine = kernel()
    mine.run("trainyard.run('first')\nprint('begun')\ntrainyard.log(a=1, step=1)")
    wait_for("its record", lambda: newest(results, "first"))
    with ui_stack.serving(ui_stack.Head([])) as address:  # of a cluster without the run's job
        ui_stack.write_outputs(tmp_path / "o.json", address, tmp_path / "results")
        assert train("list", "--all", "--json") == 0, train.err
    [listed] = json.loads(train.out)
    assert (listed["run"], listed["status"], listed["waits"]) == ("first", "RUNNING", "")
    os.killpg(mine.process.pid, signal.SIGKILL)  # as Jupyter does
    wait_for("its end", lambda: history.stored_log(results, "first") == LAST)
    assert (newest(results, "first")["exit"], newest(results, "first")["status"]) == (1, "FAILED")
    run = history.read_run(results, "first")
    assert [row["a"] for row in run.logged] == [1]


def test_a_notebook_whose_machine_is_lost_frees_its_name(kernel, results, tmp_path, train: Train):
    command = ["python", "-m", run_folder.NOTEBOOK, "mine.ipynb"]
    facts = {"metadata": {"job_submission_id": "notebook-1"}}
    record = JobRecord(f"file://{tmp_path}/results", "first", command, facts)
    record.begin({})
    record.log()
    begun = newest(results, "first")

    def seen(ago: timedelta) -> None:
        job = begun | {"seen": (datetime.fromisoformat(begun["seen"]) - ago).isoformat()}
        results.write(f"first/{run_folder.JOBS}", run_folder.lines([job]))

    mine = kernel()
    for ago, status, waits in ((540, "RUNNING", ""), (660, "FAILED", LOST)):
        seen(timedelta(seconds=ago))
        with ui_stack.serving(ui_stack.Head([])) as address:
            ui_stack.write_outputs(tmp_path / "o.json", address, tmp_path / "results")
            assert train("list", "--all", "--json") == 0, train.err
            [listed] = json.loads(train.out)
            assert (listed["status"], listed["waits"]) == (status, waits)
            if not waits:
                assert train("rm", "first", "--yes") == 1
                assert "the notebook of run 'first' goes on; run trainyard.finish()" in train.err
                assert "take another name" in mine.run("trainyard.run('first')")
    assert mine.run("trainyard.run('first')\ntrainyard.finish()") == ""
    assert [job.get("status") for job in history.read_run(results, "first").jobs] == [
        None,
        "SUCCEEDED",
    ]


def test_the_last_cell_decides_how_a_kernel_that_ends_has_ended(kernel, results):
    for run, last, status in (("good", "1", "SUCCEEDED"), ("bad", "1 / 0", "FAILED")):
        mine = kernel()
        assert mine.run(f"trainyard.run({run!r})\n{FORK}") == ""
        wait_for("its record", lambda run=run: newest(results, run))
        assert "ended" not in newest(results, run)  # by its fork
        mine.run("print('goes on')")
        mine.run(last)
        mine.end()
        assert history.read_run(results, run).status == status
        assert last in code(results, run)
        assert history.stored_log(results, run).startswith("goes on\n")


def test_two_kernels_have_no_run_at_once_but_one_after_the_other(kernel, results):
    first, second = kernel(), kernel()
    first.run("trainyard.run('same')\nprint('of first')")
    wait_for("its record", lambda: newest(results, "same"))
    said = "trainyard.run: a job of run 'same' has no end yet: take another name\n"
    assert second.run("trainyard.run('same')\nprint('on')") == f"{said}on\n"
    first.run("trainyard.run('other')")  # ends the one before
    assert second.run("trainyard.run('same')\nprint('of second')") == "of second\n"
    second.run("trainyard.finish()")
    run = history.read_run(results, "same")
    assert [job["status"] for job in run.jobs] == ["SUCCEEDED"] * 2
    assert [results.read(f"same/{run_folder.log_of(job)}") for job in run.jobs] == [
        b"of first\n",
        b"of second\n",
    ]


@pytest.mark.parametrize(
    ("variables", "name", "said"),
    [
        ({contract.FILE_VARIABLE: "/none.json"}, "first", "cannot read outputs file /none.json"),
        ({}, "Bad Name", "run name 'Bad Name' is not 1 to 63 lower-case letters"),
        ({run_folder.RUN_VARIABLE: "mine"}, "first", "only a notebook needs it"),
    ],
)
def test_without_a_store_a_line_says_so_and_the_cells_go_on(kernel, results, variables, name, said):
    mine = kernel(**variables)
    lines = mine.run(f"trainyard.run({name!r})\nprint('on')").splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"trainyard.run: {said}")
    assert lines[1] == "on"
    assert not results.sizes()


def test_cells_go_on_when_the_recorder_is_killed(kernel, results):
    mine = kernel()
    mine.run("trainyard.run('first')\nfor _ in range(99): print('x' * 999)")
    wait_for("its record", lambda: newest(results, "first"))
    children = Path(f"/proc/{mine.process.pid}/task/{mine.process.pid}/children")
    (recorder,) = children.read_text().split()
    os.killpg(int(recorder), signal.SIGKILL)
    wait_for("its end", lambda: Path(f"/proc/{recorder}/cmdline").read_bytes() == b"")
    assert mine.run("for _ in range(9): print('on')") == "on\n" * 9
    mine.run("trainyard.log(a=1)\ntrainyard.finish()")
    run = history.read_run(results, "first")
    assert (run.status, [row["a"] for row in run.logged]) == ("", [1])


def test_outside_a_notebook_it_does_nothing():
    code = "import trainyard; trainyard.run('first'); trainyard.finish(); trainyard.log(a=1)"
    done = ran.run([sys.executable, "-c", code], cwd=pages.ROOT)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        "trainyard.run: only a notebook needs it: a job is a run already\n"
        "trainyard.log: no job of Trainyard runs here, so nothing is kept\n"
    )


def test_a_job_without_the_client_goes_on():
    code = "import sys; sys.modules['trainyard.client'] = None\n"
    code += "import trainyard; trainyard.run('first'); trainyard.finish()"
    done = ran.run([sys.executable, "-c", code], cwd=pages.ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_secret_of_the_stack_is_in_no_code(kernel, results):
    mine = kernel()
    mine.run("trainyard.run('first')")
    mine.run(f"token = {ui_stack.TOKEN!r}")
    mine.run("trainyard.finish()")
    assert ui_stack.TOKEN not in code(results, "first")


def test_the_keys_of_a_bucket_are_not_the_kernels(kernel, monkeypatch, tmp_path):
    kept: dict[str, bytes] = {}

    def answer(asked: web.Request) -> web.Said:
        key, _, region, *_ = asked.headers["Authorization"].partition("Credential=")[2].split("/")
        by.add((key, region, asked.headers["X-Amz-Security-Token"]))
        path = asked.path.partition("?")[0]
        if asked.command == "PUT":
            kept[path] = asked.body
        if asked.command == "GET" and path not in kept:
            return (404, b"<Error><Code>NoSuchKey</Code></Error>")
        return 200, kept.get(path, b"")

    by = set[tuple[str, str, str | None]]()
    with web.serving(answer) as bucket:
        file = tmp_path / "o.json"
        keys = {"accessKey": "stacks", "secretKey": "canary-secret-0123456789"}
        keys |= {"storageUrl": "s3://ray", "objectStoreEndpoint": bucket.url, "bucket": "ray"}
        file.write_text(json.dumps(json.loads(file.read_text()) | keys))
        users = {"ACCESS_KEY_ID": "users", "SECRET_ACCESS_KEY": "x", "SESSION_TOKEN": "y"}
        mine = kernel(**{f"AWS_{key}": value for key, value in users.items()}, AWS_REGION="eu-1")
        mine.run("trainyard.run('first')\ntrainyard.log(a=1)")
        said = mine.run("import os\nprint(os.environ['AWS_ACCESS_KEY_ID'])\ntrainyard.finish()")
        assert said == "users\n"
        [job] = run_folder.whole_records(kept["/ray/first/jobs.jsonl"])
        assert job["status"] == "SUCCEEDED"
    assert by == {("stacks", "us-east-1", None)}
