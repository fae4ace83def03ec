"""A search's state in the store: whole, signed, and the only part that is ever executed."""

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
from ray import tune
from ray._common.utils import binary_to_hex

from tests.hostile import Canary
from trainyard import ray_train
from trainyard.errors import JobError
from trainyard.jobs.food11 import train_tune
from trainyard.search import files as search_files
from trainyard.store import signed
from trainyard.tracking.run_folder import RunFolder

KEY = signed.derived("a token of 32 characters or more!")
EARLY = "experiment_state-2026-11-22_04-12-58.json"
LATE = "experiment_state-2026-11-22_05-00-00.json"
SAMPLER = "basic-variant-state-2026-11-22_05-00-00.json"
TRIAL = "train_func_00f8a_00000_0_batch_size=32_2026-11-22_04-12-58"


@pytest.fixture
def run(tmp_path) -> RunFolder:
    return RunFolder((tmp_path / "store").as_uri(), "search")


@pytest.fixture
def stored(run, tmp_path) -> Path:
    """The folder in the store of a search that was resumed once, as Tune's driver leaves it."""
    sampler = pickle.dumps({"samples": 8})
    tuner = pickle.dumps({"name": "search"})
    copy(run, tmp_path, {"tuner.pkl": tuner, EARLY: state(1)})
    copy(run, tmp_path, {"tuner.pkl": tuner, EARLY: state(2), LATE: state(3), SAMPLER: sampler})
    copy(run, tmp_path, {LATE: state(4)})
    return tmp_path / "store/search"


def state(number: int) -> bytes:
    return json.dumps({"trial_data": [[f"{number}", "{}"]]}).encode()


def copy(run: RunFolder, folder: Path, files: dict[str, bytes]) -> search_files.SearchFiles:
    """Stores files as Tune does; the driver has read the existing ones."""
    staging = folder / "driver_artifacts"
    for name, content in files.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(content)
    there = search_files.SearchFiles(run, KEY)
    there.search.take_up()
    pyarrow.fs.copy_files(str(staging), run.place[1], destination_filesystem=there)
    return there


def taken_up(run: RunFolder) -> dict[str, bytes]:
    search = search_files.SearchFiles(run, KEY).search
    assert search.take_up()
    return search.held


def newest(held: dict[str, bytes]) -> bytes:
    return held[max(name for name in held if name.startswith("experiment_state"))]


def evil_pickle(canary: Path) -> bytes:
    return pickle.dumps(Canary(canary))


def evil_state(canary: Path) -> bytes:
    hidden = {"_type": "CLOUDPICKLE_FALLBACK", "value": binary_to_hex(evil_pickle(canary))}
    return json.dumps({"trial_data": [], "runner_data": hidden}).encode()


def test_a_search_that_was_not_begun_has_nothing_to_go_on_from(run):
    assert not search_files.SearchFiles(run, KEY).search.take_up()


def test_states_are_stored_signed_and_beside_the_one_before(run, stored):  # F32, F40
    assert newest(taken_up(run)) == state(4)
    assert set(taken_up(run)) == {"tuner.pkl", EARLY, LATE, SAMPLER}
    for name in ("tuner.pkl", EARLY, LATE, SAMPLER):
        for version in (name, name + search_files.BEFORE):
            assert (stored / version).read_bytes().startswith(signed.MAGIC)
    found = search_files.SearchFiles(run, KEY).search.states()
    assert found == [state(4), state(3)]


@pytest.mark.parametrize("torn", [b"", state(5)[:9], b'{"trial_data": 1}', b"[]"])
def test_a_state_that_is_being_written_is_not_stored(run, stored, tmp_path, torn):  # F32
    before = (stored / LATE).read_bytes()
    copy(run, tmp_path, {LATE: torn, SAMPLER: b"\x80\x05\x95"})
    assert (stored / LATE).read_bytes() == before
    assert newest(taken_up(run)) == state(4)
    assert pickle.loads(taken_up(run)[SAMPLER]) == {"samples": 8}


@pytest.mark.parametrize("left", [0, 1, 30, signed.HEADER_BYTES, signed.HEADER_BYTES + 3])
def test_a_torn_state_gives_way_to_the_one_before(run, stored, capsys, left):  # F32
    def tear(name: str) -> None:
        (stored / name).write_bytes((stored / name).read_bytes()[:left])

    tear(LATE)
    assert newest(taken_up(run)) == state(3)
    assert capsys.readouterr().out.count("the previous state is used") == 1
    tear(LATE + search_files.BEFORE)
    held = taken_up(run)
    assert newest(held) == state(2)
    assert SAMPLER not in held  # of the session that is lost
    tear(EARLY)
    assert newest(taken_up(run)) == state(1)
    tear("tuner.pkl")
    assert newest(taken_up(run)) == state(1)
    tear(EARLY + search_files.BEFORE)
    with pytest.raises(JobError, match=r"no state of search 'search' in .* --name"):
        taken_up(run)


def test_a_state_before_that_others_wrote_is_refused_too(run, stored, tmp_path):  # F40
    (stored / LATE).write_bytes(b"")
    (stored / (LATE + search_files.BEFORE)).write_bytes(evil_state(tmp_path / "canary"))
    with pytest.raises(JobError, match=r"before in .* is refused"):
        taken_up(run)


def test_a_search_that_was_cut_off_before_its_first_state_begins_anew(run, tmp_path):
    copy(run, tmp_path, {"tuner.pkl": pickle.dumps({})})
    assert not search_files.SearchFiles(run, KEY).search.take_up()


EVIL = {
    "tuner.pkl": evil_pickle,
    LATE: evil_state,
    "experiment_state-2999.json": evil_state,
    SAMPLER: evil_pickle,
    "search_gen_state-2026-11-22_05-00-00.json": evil_pickle,
    "searcher-state-2026-11-22_05-00-00.pkl": evil_pickle,
    "callback-states-2026-11-22_05-00-00.pkl": evil_pickle,
}


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("name", EVIL)
@pytest.mark.parametrize("scope", [None, "other", "search/other"])
def test_what_others_put_into_the_bucket_is_refused(tmp_path, monkeypatch, name, scope):  # F36, F40
    """Through the job itself: the old code executed each of them."""
    content = EVIL[name](tmp_path / "canary")
    if scope is not None:  # signed by this cluster, but as a state of another run
        content = signed.signed(content, f"{scope}/{name}", KEY)
    (tmp_path / "store/search" / name).write_bytes(content)
    monkeypatch.setenv("TRAINYARD_STORAGE_URL", (tmp_path / "store").as_uri())
    monkeypatch.setenv("TRAINYARD_RUN", "search")
    monkeypatch.setattr(signed, "cluster_key", lambda: KEY)
    monkeypatch.setattr(ray_train, "connect", lambda: None)
    monkeypatch.setattr(sys, "argv", ["train_tune.py"])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        train_tune.main()
    assert str(ended.value).startswith(f"error: {name} in file://")
    assert "is refused, because Tune would execute it" in str(ended.value)
    assert "start the search again with another --name" in str(ended.value)
    assert not (tmp_path / "canary").exists()
    assert not (tmp_path / "store/search/config.json").exists()  # nothing was begun


def test_tune_reads_what_was_checked_whatever_is_there_by_then(run, tmp_path):  # F40
    there = search_files.SearchFiles(run, KEY)
    folder = run.place[1]
    tune.Tuner(
        _trainable,
        param_space={"x": 1},
        run_config=tune.RunConfig(
            name="search", storage_path=str(Path(folder).parent), storage_filesystem=there
        ),
    )
    copy(run, tmp_path, {LATE: state(1)})
    again = search_files.SearchFiles(run, KEY)
    assert again.search.take_up()
    for name, evil in EVIL.items():
        (tmp_path / "store/search" / name).write_bytes(evil(tmp_path / "canary"))
    tune.Tuner.restore(folder, _trainable, storage_filesystem=again)
    (tmp_path / "down").mkdir()
    pyarrow.fs.copy_files(folder, str(tmp_path / "down"), source_filesystem=again)
    assert (tmp_path / "down" / LATE).read_bytes() == state(1)
    assert not (tmp_path / "down/experiment_state-2999.json").exists()
    assert not (tmp_path / "canary").exists()


def _trainable(config: dict[str, Any]) -> None:
    """Never runs."""


def test_no_pickle_of_a_trial_is_stored_or_read(run, stored, tmp_path):  # F40
    there = copy(run, tmp_path, {f"{TRIAL}/error.pkl": b"x", f"{TRIAL}/error.txt": b"an error"})
    assert (stored / TRIAL / "error.txt").read_bytes() == b"an error"
    assert not (stored / TRIAL / "error.pkl").exists()
    (stored / TRIAL / "error.pkl").write_bytes(evil_pickle(tmp_path / "canary"))
    path = f"{run.place[1]}/{TRIAL}/error.pkl"
    assert there.get_file_info(path).type == pyarrow.fs.FileType.NotFound
    for open_it in (there.open_input_stream, there.open_input_file):
        with pytest.raises(FileNotFoundError):
            open_it(path)


@pytest.mark.parametrize("name", ["result.json", "progress.csv"])
def test_a_result_that_is_cut_off_is_left_out(run, stored, tmp_path, name):
    there = copy(run, tmp_path, {f"{TRIAL}/{name}": b'{"epoch": 0}\n{"epoch": 1}\n{"ep'})
    back = tmp_path / "result"
    pyarrow.fs.copy_files(f"{run.place[1]}/{TRIAL}/{name}", str(back), source_filesystem=there)
    assert back.read_bytes() == b'{"epoch": 0}\n{"epoch": 1}\n'
    assert (stored / TRIAL / name).exists()


def test_what_has_not_changed_is_not_stored_again(run, stored, tmp_path):
    there = copy(run, tmp_path, {f"{TRIAL}/result.json": b"{}\n"})
    first = [path.stat().st_ino for path in (stored / TRIAL / "result.json", stored / LATE)]
    staging = str(tmp_path / "driver_artifacts")
    pyarrow.fs.copy_files(staging, run.place[1], destination_filesystem=there)
    again = [path.stat().st_ino for path in (stored / TRIAL / "result.json", stored / LATE)]
    assert again == first


def test_the_runs_own_files_are_none_of_tunes(run, stored):
    (stored / "config.json").write_text("{}")
    (stored / "checkpoint_000000").mkdir()
    there = search_files.SearchFiles(run, KEY)
    there.search.take_up()
    found = there.get_file_info(pyarrow.fs.FileSelector(run.place[1]))
    names = {Path(info.path).name for info in found}
    assert names == {"tuner.pkl", EARLY, LATE, SAMPLER, "checkpoint_000000"}


def test_a_trial_in_another_process_has_the_plain_file_system(run):
    there = pickle.loads(pickle.dumps(search_files.SearchFiles(run, KEY)))
    assert type(there) is pyarrow.fs.LocalFileSystem
