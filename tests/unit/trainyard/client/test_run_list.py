"""Lists of runs: those that ended are read from their summaries, which say what their files say."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.client import history, run_list, store
from trainyard.client.commands import restore
from trainyard.client.errors import ClientError
from trainyard.client.store import StackFolder
from trainyard.store.objects import Listed, StorageError
from trainyard.tracking.run_folder import CONFIG, METRICS, STARTS, SUMMARIES
from trainyard.tracking.runs import Run

EPOCHS = [{"epoch": i, "loss": 2.0 - i, "valid_acc": [0.4, 0.6, None][i]} for i in range(3)]


class Bucket(StackFolder):
    """A folder whose tags are a bucket's; it counts what is read."""

    read_only = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[str] = []

    def listed(self, prefix: str = "") -> dict[str, Listed]:
        return {
            name: Listed(each.size, hashlib.md5(self._content(prefix, name)).hexdigest())
            for name, each in super().listed(prefix).items()
        }

    def _content(self, prefix: str, name: str) -> bytes:
        return (self._path / prefix / name).read_bytes()

    def _read(self, name: str, most: int) -> bytes:
        self.asked.append(name)
        return super()._read(name, most)

    def write(self, name: str, content: bytes) -> None:
        if self.read_only:
            raise ClientError("no")
        super().write(name, content)


@pytest.fixture
def bucket(stack) -> Bucket:
    return Bucket(Path(stack.storage_url.removeprefix("file://")))


def ended(url: str, name: str, **config: Any) -> Run:
    run = Run(url, name, {"valid_acc": "max", "loss": "min"})
    run.draw_curves = lambda: None  # type: ignore[method-assign] # slow
    run.start({"epochs": 3, **config})
    run.write_metrics(EPOCHS)
    run.store.write("checkpoint_000002-ab/checkpoint.pt", b"w")
    run.store.write("checkpoint_000010-cd/checkpoint.pt", b"w")
    run.end()
    return run


def as_listed(run: history.RunRecord) -> history.RunRecord:
    """The whole record of a run as a list has it."""
    return history.RunRecord(**(vars(run) | {"starts": [], "metrics": run.metrics[-1:]}))


def test_a_run_that_ended_is_listed_from_its_summary_alone(bucket, stack) -> None:  # P18
    ended(stack.storage_url, "first", lr=0.1)
    whole = history.read_run(bucket, "first")
    bucket.asked.clear()
    assert run_list.list_runs(bucket) == [as_listed(whole)]
    assert run_list.list_runs(bucket, ["first", "other", "../x"]) == [as_listed(whole)]
    assert bucket.asked[:2] == [f"{SUMMARIES}/first"] * 2
    assert not [name for name in bucket.asked if name.startswith("first/")]
    assert [*whole.goals] == ["valid_acc", "loss"]
    assert (whole.best, whole.epochs, whole.checkpoint[-9:]) == (0.6, 3, "000010-cd")


@pytest.mark.parametrize("killed_at", [CONFIG, STARTS])
def test_a_run_that_starts_again_has_no_summary_before_its_files_change(  # P18
    killed_at: str, bucket, stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ended(stack.storage_url, "first")
    write = run.write

    def killed(name: str, content: bytes) -> None:
        if name == killed_at:
            raise StorageError("killed")
        write(name, content)

    monkeypatch.setattr(run, "write", killed)
    with pytest.raises(StorageError):
        run.start({"epochs": 9})
    assert run_list.list_runs(bucket) == [history.read_run(bucket, "first")]
    monkeypatch.setattr(run, "write", write)
    run.start({"epochs": 9})
    run.write_metrics([*EPOCHS, {"epoch": 3}])
    [found] = run_list.list_runs(bucket)
    assert (found.epochs, found.config, len(found.starts)) == (
        4,
        {"epochs": 9},
        2,
    )


def test_a_run_with_damaged_records_has_no_summary(bucket, stack) -> None:  # P18
    run = Run(stack.storage_url, "first")
    run.write(STARTS, b"{\n")
    run.start({})
    run.end()
    [found] = run_list.list_runs(bucket)
    assert found.fault == "starts.jsonl is damaged after line 0"


@pytest.mark.parametrize(
    "odd",
    [
        *("{", "[" * 100_000, "7", '{"name": "second"}', "x" * 2**17),
        {"config": []},
        {"started": 1e300},
        {"started": True},
        {"epochs": -1},
        {"epochs": "3"},
        {"last": [1]},
        {"checkpoint": "a\nb"},
        {"checkpoint": 7},
    ],
    ids=lambda odd: str(odd)[:20],
)
def test_a_stranger_s_summary_that_is_none_is_not_believed(odd, bucket, stack) -> None:  # P18
    ended(stack.storage_url, "first")
    place = f"{SUMMARIES}/first"
    found = json.loads(bucket.read(place))
    bucket.write(place, (odd if isinstance(odd, str) else json.dumps(found | odd)).encode())
    assert run_list.list_runs(bucket) == [history.read_run(bucket, "first")]


def many(bucket: Bucket, count: int = run_list.FEW + 10) -> list[str]:
    """Runs that ended."""
    names = [f"run-{index:03}" for index in range(count)]
    for name in names:
        bucket.write(f"{name}/{CONFIG}", b"{}")
        found = {"name": name, "config": {}, "started": 1, "checkpoint": "", "epochs": 7}
        found["job"] = {}
        bucket.write(f"{SUMMARIES}/{name}", json.dumps(found | {"last": {}}).encode())
    return names


def test_many_summaries_are_read_at_once_by_all_but_the_first_client(bucket) -> None:  # P18
    names = many(bucket)
    first = run_list.list_runs(bucket)
    assert sorted(run.name for run in first) == names
    bucket.asked.clear()
    assert sorted(run_list.list_runs(bucket), key=lambda run: run.name) == first
    assert bucket.asked == [run_list.KEPT]
    ended("file://" + str(bucket._path), "run-000")
    bucket.asked.clear()
    runs = {run.name: run.epochs for run in run_list.list_runs(bucket)}
    assert (runs["run-000"], runs["run-001"]) == (3, 7)
    assert bucket.asked == [run_list.KEPT, f"{SUMMARIES}/run-000"]


@pytest.mark.parametrize("copy", [b"", b"\xff\n{", b'{"name": "run-001", "epochs": 99}'])
def test_a_copy_that_is_not_what_the_list_says_is_not_used(copy: bytes, bucket) -> None:  # P18
    many(bucket)
    whole = run_list.list_runs(bucket)
    forged = bucket.read(run_list.KEPT).replace(b'"epochs": 7', b'"epochs": 99')
    for content in (copy, forged):
        bucket.write(run_list.KEPT, content)
        assert sorted(run_list.list_runs(bucket), key=lambda run: run.name) == whole
        assert b"99" not in bucket.read(run_list.KEPT)


def test_a_store_that_is_only_read_is_listed(
    bucket, monkeypatch: pytest.MonkeyPatch
) -> None:  # P18
    names = many(bucket)
    monkeypatch.setattr(bucket, "read_only", True)
    assert len(run_list.list_runs(bucket)) == len(names)


def test_summaries_of_runs_that_are_gone_or_come_back_say_nothing(  # P18
    bucket, stack, tmp_path: Path
) -> None:
    run = ended(stack.storage_url, "first")
    kept = StackFolder(tmp_path / "copy")
    for name in (CONFIG, STARTS, METRICS):
        kept.write(f"first/{name}", run.read(name) or b"")
    bucket.delete(*(f"first/{name}" for name in bucket.listed("first")))
    assert run_list.list_runs(bucket) == []
    kept.write(f"first/{METRICS}", b'{"epoch": 0}\n')
    restore.copy("first", kept, store.open_store(stack))
    assert [found.epochs for found in run_list.list_runs(bucket)] == [1]


def test_a_page_reads_again_what_changed(bucket, stack) -> None:  # P23
    ended(stack.storage_url, "first")
    ended(stack.storage_url, "second")
    runs = run_list.RunList(bucket)
    assert [run.epochs for run, _ in runs.look()[1]] == [3, 3]
    bucket.asked.clear()
    ended(stack.storage_url, "second", lr=1)
    assert {run.name: run.config.get("lr") for run, _ in runs.look()[1]} == {
        "first": None,
        "second": 1,
    }
    assert {name for name in bucket.asked if "first" in name} == set()


def test_a_page_reads_runs_without_a_summary_again_only_if_they_changed(  # P23
    bucket, stack, monkeypatch
):
    monkeypatch.setattr(run_list, "FEW", 1)
    runs = {name: Run(stack.storage_url, name) for name in ("first", "second")}
    for run in runs.values():
        run.start({"epochs": 3})
    seen = run_list.RunList(bucket)
    for _ in range(2):  # the second look knows what to keep
        assert len([*seen.look()[1]]) == 2
    bucket.asked.clear()
    assert {run.name for run, _ in seen.look()[1]} == set(runs)
    assert bucket.asked == []
    runs["second"].write_metrics(EPOCHS)
    assert {run.name: run.epochs for run, _ in seen.look()[1]} == {"first": 0, "second": 3}
    assert {name.partition("/")[0] for name in bucket.asked} == {"second"}
