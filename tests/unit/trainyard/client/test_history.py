"""The files in a run's folder, written by the job and read by the client."""

from pathlib import Path

import pytest

from trainyard.client import history, run_list, store
from trainyard.client.errors import ClientError
from trainyard.tracking.run_folder import COMMIT_VARIABLE
from trainyard.tracking.runs import Run

EPOCHS = [
    {"epoch": i, "loss": 2.0 - i, "valid_loss": 2.1 - i, "train_acc": 0.1 * i, "valid_acc": 0.1}
    for i in range(2)
]


@pytest.fixture
def run(stack, monkeypatch):
    monkeypatch.setenv(COMMIT_VARIABLE, "abc123")
    return Run(stack.storage_url, "first")


def test_a_run_is_read_back_as_it_was_written(run, stack):
    place = store.open_store(stack)
    assert (run.config(), run.metrics(), run_list.list_runs(place)) == (None, [], [])
    run.start({"epochs": 1})
    run.start({"epochs": 2})
    run.write_metrics(EPOCHS)
    run.draw_curves()
    (Path(stack.storage_url.removeprefix("file://")) / "first" / "checkpoint_2").mkdir()
    assert run.config() == {"epochs": 2}
    assert run.metrics() == EPOCHS
    [record] = run_list.list_runs(place)
    assert record == history.read_run(place, "first")
    assert record.metrics == EPOCHS
    assert [start["config"]["epochs"] for start in record.starts] == [1, 2]
    assert {start["commit"] for start in record.starts} == {"abc123"}
    assert record.starts[0]["packages"]["ray"]
    assert record.checkpoint == f"{stack.storage_url}/first/checkpoint_2"
    assert str(place.get("first/curves.png"))[2:].startswith("\\x89PNG")


@pytest.mark.parametrize("name", ["second", "../first", ""])
def test_a_run_that_is_not_there(name, run, stack):
    run.start({})
    with pytest.raises(ClientError, match=r"`train runs` lists them|choose another name"):
        history.read_run(store.open_store(stack), name)
