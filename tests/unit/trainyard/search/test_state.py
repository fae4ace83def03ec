"""Pruned checkpoints of a search, and ASHA's knowledge, from a folder as Tune leaves it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from pyarrow import fs

from trainyard.search import files as search_files
from trainyard.search import state as search_state
from trainyard.search.trials import Objective, TrialLines
from trainyard.store import objects, signed

KEY = signed.derived("a token of 32 characters or more!")

RUN = "search"
TRIALS = {  # the names of their folders, as Tune makes them
    "00f8a_00000": "train_func_00f8a_00000_0_batch_size=32,dropout=0.61_2026-11-22_04-12-58",
    "00f8a_00001": "train_func_00f8a_00001_1_batch_size=64,dropout=0.20_2026-11-22_04-12-59",
}


@pytest.fixture(autouse=True)
def _key(monkeypatch) -> None:
    monkeypatch.setattr(signed, "cluster_key", lambda: KEY)


@pytest.fixture
def store(tmp_path) -> Path:
    """A search whose trials have four checkpoints each, and no state yet."""
    for name in TRIALS.values():
        for number in range(4):
            folder = tmp_path / name / f"checkpoint_{number:06d}"
            folder.mkdir(parents=True)
            (folder / "last.ckpt").write_text("weights")
        (tmp_path / name / "result.json").write_text("{}")
    return tmp_path


def _write_state(store: Path, begun: str, **newest: str | None) -> None:
    results = [
        {"last_result": {"trial_id": f"00f8a_{trial}", "checkpoint_dir_name": name} if name else {}}
        for trial, name in newest.items()
    ]
    data = [["{}", json.dumps(result)] for result in results]
    search = search_files.StoredSearch(objects.open_url(store.as_uri()), RUN, KEY)
    search.take_up()
    search.store(search_files.TUNER, b"N.")
    search.store(f"experiment_state-{begun}.json", json.dumps({"trial_data": data}).encode())


def _tear(store: Path, begun: str, content: bytes = b"") -> None:
    (store / f"experiment_state-{begun}.json").write_bytes(content)


def _left(store: Path, trial: str) -> list[int]:
    found = (store / TRIALS[trial]).glob("checkpoint_*/last.ckpt")
    return sorted(int(path.parent.name[-6:]) for path in found)


def _prune(store: Path) -> None:
    search_state.prune(objects.open_url(store.as_uri()), RUN)


def test_what_the_stored_state_may_go_on_from_stays_and_all_after_it(store):  # F32
    newest = {"00000": "checkpoint_000002", "00001": "checkpoint_000003"}
    _write_state(store, "2026-11-22_04-12-58", **newest)
    _prune(store)
    assert _left(store, "00f8a_00000") == [1, 2, 3]
    assert _left(store, "00f8a_00001") == [2, 3]
    assert (store / TRIALS["00f8a_00001"] / "result.json").exists()


def test_a_trial_that_the_state_has_nothing_of_keeps_all(store):
    _prune(store)
    assert _left(store, "00f8a_00000") == [0, 1, 2, 3]
    _write_state(store, "2026-11-22_04-12-58", **{"00000": None, "00001": "checkpoint_000002"})
    _prune(store)
    assert _left(store, "00f8a_00000") == [0, 1, 2, 3]
    assert _left(store, "00f8a_00001") == [1, 2, 3]


def test_a_search_that_went_on_goes_by_its_newest_state(store):
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000003"})
    _write_state(store, "2026-11-22_05-00-00", **{"00000": "checkpoint_000002"})
    _prune(store)
    assert _left(store, "00f8a_00000") == [1, 2, 3]


def test_a_search_prunes_from_time_to_time(store, monkeypatch):
    pruning = search_state.Pruning(store.as_uri(), RUN)
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000002"})
    pruning.on_step_end(1, [])
    assert _left(store, "00f8a_00000") == [1, 2, 3]
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000003"})
    pruning.on_step_end(2, [])  # at once
    assert _left(store, "00f8a_00000") == [1, 2, 3]
    monkeypatch.setattr(search_state, "PAUSE_SECONDS", 0.0)
    pruning.on_step_end(3, [])
    assert _left(store, "00f8a_00000") == [1, 2, 3]  # the search may resume from the previous state
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000003", "00001": None})
    pruning.on_step_end(4, [])
    assert _left(store, "00f8a_00000") == [2, 3]


@pytest.mark.parametrize("error", [objects.StorageError, KeyError, RecursionError, OSError])
def test_a_search_goes_on_whatever_pruning_cannot_do(store, monkeypatch, capsys, error):
    monkeypatch.setattr(search_state, "prune", Mock(side_effect=error("the store is away")))
    search_state.Pruning(store.as_uri(), RUN).on_step_end(1, [])
    said = capsys.readouterr().out
    assert said.startswith("warning: old checkpoints stay for now: ")
    assert "the store is away" in said
    assert said.count("\n") == 1


def test_a_state_that_tune_is_just_writing_ends_no_search(store):  # F32
    """`make course` ended this way in its last step: the state was stored empty."""
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000002"})
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000003"})
    _tear(store, "2026-11-22_04-12-58")
    search_state.Pruning(store.as_uri(), RUN).on_step_end(1, [])
    assert _left(store, "00f8a_00000") == [1, 2, 3]  # by the previous state


@pytest.mark.parametrize("content", [b'{"trial_data": []}', b"\x80\x05.", b"[" * 100_000])
def test_a_state_of_another_prunes_nothing(store, capsys, content):
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000003"})
    _tear(store, "2026-11-22_04-12-58", content)
    search_state.Pruning(store.as_uri(), RUN).on_step_end(1, [])
    assert _left(store, "00f8a_00000") == [0, 1, 2, 3]
    assert "old checkpoints stay for now" in capsys.readouterr().out


def test_a_trial_without_the_figures_that_are_shown_ends_no_search(capsys):
    lines = TrialLines(4, Objective({"batch_size": "d"}, "valid_acc", "max"))
    trial = SimpleNamespace(trial_id="00f8a_00001", config={})
    lines.on_step_begin(1, [trial])
    lines.on_trial_result(1, [trial], trial, {"training_iteration": 1})
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "warning: the values of trial 00001 are not shown: KeyError: 'batch_size'",
        "warning: an epoch of trial 00001 is not shown: KeyError: 'val_accuracy'",
    ]


def _results(count: int, accuracy: float) -> list[dict[str, float]]:
    return [{"training_iteration": n + 1, "val_accuracy": accuracy} for n in range(count)]


def _trial(store: Path, trial_id: str, last: dict[str, float]) -> Any:
    storage = SimpleNamespace(
        trial_dir_name=TRIALS[trial_id],
        storage_filesystem=fs.LocalFileSystem(),
        experiment_fs_path=str(store),
    )
    return SimpleNamespace(trial_id=trial_id, last_result=last, storage=storage)


def _asha() -> search_state.ASHAScheduler:
    asha = search_state.ASHAScheduler(max_t=8, grace_period=1, reduction_factor=2)
    asha.set_search_properties("val_accuracy", "max")
    return asha


def _decided(store: Path, accuracy: float) -> str:
    """ASHA's decision about a new trial, after one that had 0.5 before the search was cut off."""
    done, new = TRIALS
    asha = _asha()
    asha.on_trial_add(None, _trial(store, done, _results(4, 0.5)[-1]))
    trial = _trial(store, new, {})
    asha.on_trial_add(None, trial)
    return str(asha.on_trial_result(None, trial, _results(1, accuracy)[0]))


@pytest.mark.parametrize(("accuracy", "decision"), [(0.4, "STOP"), (0.6, "CONTINUE")])
def test_asha_compares_with_what_was_reached_before_the_search_was_cut_off(  # D52, F32
    store, accuracy, decision
):
    lines = [json.dumps(result) + "\n" for result in _results(4, accuracy=0.5)]
    done = store / TRIALS["00f8a_00000"] / "result.json"
    done.write_text("".join(lines) + '{"training_it')
    assert _decided(store, accuracy) == decision


def test_asha_takes_a_trial_as_new_whose_results_were_not_stored(store):
    (store / TRIALS["00f8a_00000"] / "result.json").unlink()
    assert _decided(store, 0.4) == "CONTINUE"


@pytest.mark.parametrize(
    "line", ['{"training_iteration": "x", "val_accuracy": 0.4}', "[1]", "{", '{"val_accuracy": {}}']
)
def test_asha_does_without_results_that_cannot_be_read(store, line):  # F32
    """Tune takes a scheduler's error for a search without a state, and restarts it."""
    results = [json.dumps(result) for result in _results(1, accuracy=0.5)]
    done = store / TRIALS["00f8a_00000"] / "result.json"
    done.write_text("\n".join([*results, line, ""]))
    assert _decided(store, 0.4) == "STOP"


def test_asha_does_without_the_store(store, monkeypatch, capsys):
    away = objects.StorageError("the store is away")
    monkeypatch.setattr(search_state, "open_folder", Mock(side_effect=away))
    _asha().on_trial_add(None, _trial(store, "00f8a_00000", _results(4, 0.5)[-1]))
    assert capsys.readouterr().out == (
        "warning: ASHA misses the earlier reports of trial 00f8a_00000: the store is away\n"
    )
