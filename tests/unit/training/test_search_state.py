"""Which checkpoints of a search go, and what ASHA still knows, by a folder as Tune leaves it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from training import objects, search_state

TRIALS = {  # the names of their folders, as Tune makes them
    "00f8a_00000": "train_func_00f8a_00000_0_batch_size=32,dropout=0.61_2026-11-22_04-12-58",
    "00f8a_00001": "train_func_00f8a_00001_1_batch_size=64,dropout=0.20_2026-11-22_04-12-59",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
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
    (store / f"experiment_state-{begun}.json").write_text(json.dumps({"trial_data": data}))


def _left(store: Path, trial: str) -> list[int]:
    found = (store / TRIALS[trial]).glob("checkpoint_*/last.ckpt")
    return sorted(int(path.parent.name[-6:]) for path in found)


def _prune(store: Path) -> None:
    search_state.prune(objects.open_url(store.as_uri()))


def test_what_the_stored_state_may_go_on_from_stays_and_all_after_it(store: Path) -> None:  # F32
    newest = {"00000": "checkpoint_000002", "00001": "checkpoint_000003"}
    _write_state(store, "2026-11-22_04-12-58", **newest)
    _prune(store)
    assert _left(store, "00f8a_00000") == [1, 2, 3]
    assert _left(store, "00f8a_00001") == [2, 3]
    assert (store / TRIALS["00f8a_00001"] / "result.json").exists()


def test_a_trial_that_the_state_has_nothing_of_keeps_all(store: Path) -> None:
    _prune(store)
    assert _left(store, "00f8a_00000") == [0, 1, 2, 3]
    _write_state(store, "2026-11-22_04-12-58", **{"00000": None, "00001": "checkpoint_000002"})
    _prune(store)
    assert _left(store, "00f8a_00000") == [0, 1, 2, 3]
    assert _left(store, "00f8a_00001") == [1, 2, 3]


def test_a_search_that_went_on_goes_by_its_newest_state(store: Path) -> None:
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000003"})
    _write_state(store, "2026-11-22_05-00-00", **{"00000": "checkpoint_000002"})
    _prune(store)
    assert _left(store, "00f8a_00000") == [1, 2, 3]


def test_a_search_prunes_from_time_to_time(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pruning = search_state.Pruning(store.as_uri())
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000002"})
    pruning.on_step_end(1, [])
    assert _left(store, "00f8a_00000") == [1, 2, 3]
    _write_state(store, "2026-11-22_04-12-58", **{"00000": "checkpoint_000003"})
    pruning.on_step_end(2, [])  # at once
    assert _left(store, "00f8a_00000") == [1, 2, 3]
    monkeypatch.setattr(search_state, "PAUSE_SECONDS", 0.0)
    pruning.on_step_end(3, [])
    assert _left(store, "00f8a_00000") == [2, 3]


def test_a_search_goes_on_without_the_store(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def refuse(_folder: objects.Folder) -> None:
        raise objects.StorageError("the store is away")

    monkeypatch.setattr(search_state, "prune", refuse)
    search_state.Pruning(store.as_uri()).on_step_end(1, [])
    assert "old checkpoints stay for now: the store is away" in capsys.readouterr().out


def _results(count: int, accuracy: float) -> list[dict[str, float]]:
    return [{"training_iteration": n + 1, "val_accuracy": accuracy} for n in range(count)]


def _trial(trial_id: str, last: dict[str, float]) -> Any:
    storage = SimpleNamespace(trial_dir_name=TRIALS[trial_id])
    return SimpleNamespace(trial_id=trial_id, last_result=last, storage=storage)


def _halving(store: Path) -> search_state.Halving:
    asha = search_state.Halving(store.as_uri(), max_t=8, grace_period=1, reduction_factor=2)
    asha.set_search_properties("val_accuracy", "max")
    return asha


@pytest.mark.parametrize(("accuracy", "decision"), [(0.4, "STOP"), (0.6, "CONTINUE")])
def test_asha_compares_with_what_was_reached_before_the_search_was_cut_off(  # D52, F32
    store: Path, accuracy: float, decision: str
) -> None:
    done, new = TRIALS
    lines = [json.dumps(result) + "\n" for result in _results(4, accuracy=0.5)]
    (store / TRIALS[done] / "result.json").write_text("".join(lines) + '{"training_it')
    asha = _halving(store)
    asha.on_trial_add(None, _trial(done, _results(4, 0.5)[-1]))
    trial = _trial(new, {})
    asha.on_trial_add(None, trial)
    assert asha.on_trial_result(None, trial, _results(1, accuracy)[0]) == decision


def test_asha_takes_a_trial_as_new_whose_results_were_not_stored(store: Path) -> None:
    done, new = TRIALS
    (store / TRIALS[done] / "result.json").unlink()
    asha = _halving(store)
    asha.on_trial_add(None, _trial(done, _results(4, 0.5)[-1]))
    asha.on_trial_add(None, _trial(new, {}))
    assert asha.on_trial_result(None, _trial(new, {}), _results(1, 0.4)[0]) == "CONTINUE"
