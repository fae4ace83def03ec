"""`train dev`: saves that run at once, on the real job server, nodes and store."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import ran
from tests.integration.training.conftest import REPOSITORY, SESSIONS
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

SAVE_S = 2.0  # at most, from a save to the first line
LATE_S = 60.0  # for a process without further output
JOB = """\
import ray

import helper

print("word", helper.WORD, flush=True)
if helper.WORD == "workers":

    @ray.remote
    def word():
        import helper

        return helper.WORD

    ray.init(log_to_driver=False)
    print("worker says", ray.get(word.remote()), flush=True)
"""

CELL = """\
import sys
from trainyard.client.dev.session import open_session
session = open_session(sys.argv[1])
try:
    print("returned", session.run("--epochs", "1"), flush=True)
finally:
    session.close()
"""
WITH_PACKAGE = """\
import os, sys
import pyarrow.fs
import ray
from trainyard.tracking import run_folder
print("arguments", sys.argv[1:])
files, path = pyarrow.fs.FileSystem.from_uri(os.environ[run_folder.STORAGE_VARIABLE])
files.create_dir(path + "/run")
files.open_output_stream(path + "/run/result").close()

@ray.remote
def where():
    from trainyard.tracking import run_folder
    return run_folder.__file__

ray.init(log_to_driver=False)
print("worker has", ray.get(where.remote()))
"""


class Dev:
    """A `train dev` that runs, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.seen: list[str] = []

    def until(self, text: str) -> str:
        """Reads on to the line that holds a text."""
        assert self.process.stdout is not None
        late = threading.Timer(LATE_S, self.process.kill)
        late.start()
        try:
            for line in self.process.stdout:
                self.seen.append(line)
                if text in line:
                    return line
        finally:
            late.cancel()
        errors = self.process.stderr.read() if self.process.stderr else ""
        raise AssertionError(f"{text!r} was not printed: {''.join(self.seen)}{errors}")

    def save(self, name: str, text: str, shows: str) -> float:
        """Writes a file, and returns seconds until a line shows a text."""
        begun = time.monotonic()
        (self.folder / name).write_text(text)
        self.until(shows)
        return time.monotonic() - begun


@pytest.fixture(scope="module")
def dev(cluster, tmp_path_factory) -> Iterator[Dev]:
    folder = tmp_path_factory.mktemp("project")
    (folder / ".git").mkdir()
    with (folder / ".git" / "pack").open("wb") as pack:
        pack.truncate(2**31)  # 2 GiB, sparse
    (folder / "data.bin").write_bytes(bytes(range(256)) * 1024)
    (folder / "helper.py").write_text("WORD = 'first'\n")
    (folder / "job.py").write_text(JOB)
    process = cluster.popen("dev", str(folder / "job.py"))
    try:
        session = Dev(process, folder)
        session.until("session ready")
        session.until("word first")
        session.until("run 1 succeeded")
        yield session
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=40)
        finally:
            process.kill()


def test_a_save_runs_again_at_once(dev):
    took = [
        dev.save("helper.py", f"WORD = {word!r}\n", f"word {word}") for word in ("other", "third")
    ]
    assert min(took) <= SAVE_S


def test_an_edit_sends_what_changed(dev):
    content = bytearray((dev.folder / "data.bin").read_bytes())
    content[100_000] ^= 1
    (dev.folder / "data.bin").write_bytes(content)
    sent = re.search(r"saved: (\d+) bytes", dev.until("saved: "))
    assert sent
    assert int(sent[1]) <= 64_000
    dev.until("succeeded")


def test_workers_see_the_edit(dev):
    dev.save("helper.py", "WORD = 'workers'\n", "worker says workers")
    dev.until("succeeded")


def test_an_exception_is_shown_with_its_line_here(dev):
    dev.save("helper.py", "WORD = 'x'\nraise ValueError('wrong word')\n", "ValueError: wrong word")
    dev.until("failed with exit code 1")
    said = "".join(dev.seen)
    assert f'File "{dev.folder}/helper.py", line 2, in <module>\n    raise ValueError(' in said
    assert "runpy" not in said


def test_ctrl_c_leaves_nothing_running(cluster, dev):
    log = "import time, trainyard\ntrainyard.log(word=len(WORD))"
    dev.save("helper.py", f"WORD = 'long'\n{log}\nwhile True: time.sleep(1)\n", "saved")
    job = next(j for j in cluster.jobs().values() if "dev_session" in j["entrypoint"])

    def processes() -> list[psutil.Process]:
        return [p for p in psutil.process_iter(["cmdline"]) if "dev_session" in str(p.info)]

    assert processes()
    logged = lambda: [key for key in cluster.keys(".dev/") if key.endswith(".jsonl")]  # noqa: E731
    wait_for("its figures", logged)
    dev.process.send_signal(signal.SIGINT)
    dev.until("nothing of it runs")
    assert dev.process.wait() == 130
    assert cluster.jobs()[job["submission_id"]]["status"] == "SUCCEEDED"
    run = job["metadata"][
        "run"
    ]  # the session is one, with the figures of its last rerun that ended
    record = json.loads(cluster.read(f"{run}/jobs.jsonl"))
    assert (record["status"], record["exit"]) == ("SUCCEEDED", 0)
    assert "wrong word" in cluster.read(f"{run}/logs/{record['job']}.txt").decode()
    [figures] = [key for key in cluster.keys(f"{run}/logged/") if key.endswith(".jsonl")]
    assert json.loads(cluster.read(figures))["word"] == len("long")
    wait_for("the session's processes to end", lambda: not processes())
    # On the node of the driver; the workers' copies go when the next session begins there.
    assert not list((cluster.folder / SESSIONS).rglob("dev_sessions/*/tree"))


def test_a_notebook_runs_with_our_package_and_leaves_no_results(cluster, tmp_path):
    (tmp_path / "job.py").write_text(WITH_PACKAGE)
    command = [sys.executable, "-c", CELL, tmp_path / "job.py"]
    said = ran.output(command, env=cluster.env, timeout=100)
    assert said.count("arguments") == 1  # nothing ran before the command
    assert "arguments ['--epochs', '1']" in said
    assert f"worker has {REPOSITORY}/trainyard/tracking/run_folder.py" in said
    assert "returned 0" in said
    assert not [key for key in cluster.keys(".dev/") if key != ".dev/"]
