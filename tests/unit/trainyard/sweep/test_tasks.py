"""The output of tasks of a sweep, each of which is a run."""

import io
import os
from pathlib import Path

import pytest

import trainyard
from tests.waiting import wait_for
from trainyard import figures
from trainyard.client import history, run_list
from trainyard.store.objects import FolderStore
from trainyard.sweep import tasks
from trainyard.sweep.tasks import NumberedLines
from trainyard.tracking import run_folder


def test_each_line_has_its_points_number_also_the_last():  # F56
    out, log = io.StringIO(), io.StringIO()
    stream = NumberedLines(out, 3, log)
    for text in ("a\nb", "c\n", "\n", "no end"):
        stream.write(text)
    assert out.getvalue() == "[3] a\n[3] bc\n[3] \n"
    stream.end()
    stream.end()
    assert out.getvalue() == "[3] a\n[3] bc\n[3] \n[3] no end\n"
    assert log.getvalue() == "a\nbc\n\nno end\n"


def test_points_in_one_process_are_runs_of_their_own(tmp_path, monkeypatch):
    store = FolderStore(tmp_path / "store")
    monkeypatch.setenv("TRAINYARD_STORAGE_URL", store.where)
    monkeypatch.setenv("TRAINYARD_RUN", "sweep")
    monkeypatch.setattr(figures, "PAUSE_S", 60)  # only the end of a point stores its last row
    facts = {"metadata": {"user": "ada", "settings": '{"lr": "0.1"}'}}

    def point(number, fails=False):
        (tmp_path / str(number)).mkdir()
        log = tmp_path / str(number) / "log"
        log.write_text(f"line of {number}\n")
        with tasks.recorded(f"sweep-{number}", ["lr=0.1"], facts, log) as ended:
            trainyard.log(acc=-1, step=0)
            wait_for("the first row", lambda: run_folder.logged(store, f"sweep-{number}").rows)
            trainyard.log(acc=number, step=1)
            Path(os.environ["TRAINYARD_OUTPUT"], "model").write_text("weights")
            if fails:
                raise RuntimeError("a point's")
            ended["code"] = 0

    point(0)
    point(1)
    with pytest.raises(RuntimeError, match="a point's"):
        point(2, fails=True)
    assert os.environ["TRAINYARD_RUN"] == "sweep"
    for number, status in enumerate(("SUCCEEDED", "SUCCEEDED", "FAILED")):
        run = history.read_run(store, f"sweep-{number}")
        assert (run.status, run.config, run.fault) == (status, {"lr": "0.1"}, "")
        assert [row["acc"] for row in run.logged] == [-1, number]
        assert f"line of {number}" in (history.stored_log(store, run.name) or "")
        assert store.read(f"sweep-{number}/output/model") == b"weights"
        assert history.told(run.jobs[0]).endswith("by ada, files: 1; lr=0.1")
    [listed] = run_list.list_runs(store, ["sweep-0"])
    assert listed.config == {"lr": "0.1"}
    assert store.folders() == [".trainyard", "sweep-0", "sweep-1", "sweep-2"]


def test_output_without_an_end_is_passed_on_piece_by_piece():  # F56
    out = io.StringIO()
    stream = NumberedLines(out, 0, io.StringIO())
    for _ in range(100_000):
        stream.write("\r 50 % done")
        assert stream._held <= tasks.LONGEST_LINE
    lines = out.getvalue().splitlines(keepends=False)
    assert len(out.getvalue()) > 1_000_000 > len(lines)
