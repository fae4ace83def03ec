"""`train rm`: what it deletes, and when it refuses."""

import sys

import pytest

from tests import ui_stack
from tests.client import Terminal
from trainyard.client import claims
from trainyard.client.store import StackFolder
from trainyard.tracking import run_folder


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A store with two runs; a job of the second one goes on."""
    folder = tmp_path / "store"
    for number in (1, 2):
        run = f"run-{number:04}"
        ui_stack.write_run(folder, run)
        for other in (f"{run_folder.SUMMARIES}/{run}", f"{claims.FOLDER}/{run}/000001"):
            (folder / other).parent.mkdir(parents=True, exist_ok=True)
            (folder / other).write_text("{}")
    head = ui_stack.Head([ui_stack.job(1), ui_stack.job(2, "RUNNING")])
    with ui_stack.up(head, tmp_path, folder, monkeypatch):
        yield folder


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_run_is_deleted_with_all_that_names_it(results, train, monkeypatch):
    before = names(results)
    assert train("rm", "run-0001") == 1
    assert "nobody can be asked; add --yes" in train.err
    for answer, code in (("n\n", 1), ("y\n", 0)):
        assert names(results) == before
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert train("rm", "run-0001") == code
        assert "run run-0001" in train.err
        assert "MiB" in train.err
    assert names(results) == [name for name in before if "run-0001" not in name]
    assert "deleted run run-0001" in train.out


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (["run-0001", "run-0002"], "nothing was deleted: job raysubmit_000002 of run 'run-0002'"),
        (["run-0001", "run-0003"], "no run is called 'run-0003'"),
        (["run-0001", "../store"], "run"),
    ],
)
def test_nothing_is_deleted_if_one_of_the_runs_cannot_be(runs, message, results, train):
    before = names(results)
    assert train("rm", "--yes", *runs) == 1
    assert message in train.err
    assert names(results) == before


def test_a_head_that_does_not_answer_may_train(results, tmp_path, train):
    before = names(results)
    ui_stack.write_outputs(tmp_path / "outputs.json", "http://127.0.0.1:1", results)
    assert train("rm", "--yes", "run-0001") == 1
    assert "no cluster tells whether a job of a run goes on" in train.err
    assert names(results) == before


def test_a_deletion_that_is_cut_can_be_done_again(results, train, monkeypatch):
    deleted = StackFolder.delete

    def cut(self, *gone):
        for name in gone:
            if name.endswith(run_folder.CONFIG):
                raise KeyboardInterrupt
            deleted(self, name)

    monkeypatch.setattr(StackFolder, "delete", cut)
    assert train("rm", "--yes", "run-0001") == 130
    left = [name for name in names(results) if name.startswith("run-0001")]
    assert {name.partition("/")[2] for name in left} <= {*run_folder.RECORDS}
