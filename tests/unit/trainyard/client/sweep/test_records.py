import errno
import io
import os
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from trainyard.client.errors import ClientError
from trainyard.client.sweep.point import Point
from trainyard.client.sweep.records import DamagedArchiveError, Record, Records


def record(number, sweep="first", **changes):
    given = {"job": "raysubmit_1", "overrides": ("x=1",), "done": True, "value": {"loss": 0.5}}
    return Record(sweep=sweep, number=number, folder=str(number), **given | changes)


DONE = record(0)


def points(identities, first=0):
    return [
        Point(number=number, overrides=(), identity=each, folder=str(number), bundle={})
        for number, each in enumerate(identities, first)
    ]


def run(records, batch, sweep):
    """Runs a batch: its points leave who has made them. Returns the folder of another sweep."""
    aside = records.take_up(batch, sweep)
    for each in batch:
        if records.get(each.identity) is None:
            (records.folder / each.folder).mkdir(exist_ok=True)
            (records.folder / each.folder / "left.txt").write_text(sweep)
            records.put(each.identity, record(each.number, sweep=records.name))
    (records.folder / "results.csv").write_text(sweep)
    return aside


def moving_only(name):
    """What moves a folder of this name, and then fails."""
    move = Path.rename

    def rename(path, target):
        if path.name != name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return move(path, target)

    return rename


def made_by(folder):
    return "".join((path / "left.txt").read_text() for path in sorted(folder.glob("[0-9]")))


def test_a_sweep_keeps_its_name_and_its_points(tmp_path):
    with Records(tmp_path / "sweep", "first") as records:
        records.put("a", DONE)
    with Records(tmp_path / "sweep", "second") as records:
        assert records.name == "first"
        assert records.get("a") == DONE
        assert records.get("b") is None


def test_one_process_at_a_time(tmp_path):
    with (
        Records(tmp_path, "first"),
        pytest.raises(ClientError, match=r"another process.*sweep.dir"),
    ):
        Records(tmp_path, "second")


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ClientError, match=r"cannot write results to .*file/sweep .*sweep.dir"):
        Records(tmp_path / "file" / "sweep", "first")


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    with Records(tmp_path, "first") as records:
        records.put("a", DONE)
        before = sorted(path.name for path in (tmp_path / ".points").iterdir())
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr("os.fsync", Mock(side_effect=full))
        for name in ("a", "b"):
            with pytest.raises(ClientError, match="No space left"):
                records.put(name, record(1))
        assert records.get("a") == DONE
        assert sorted(path.name for path in (tmp_path / ".points").iterdir()) == before


def test_a_damaged_record_is_named(tmp_path):
    with Records(tmp_path, "first") as records:
        (tmp_path / ".points" / "a.json").write_text('{"job": ')
        with pytest.raises(ClientError, match=r"a\.json cannot be read: .*remove"):
            records.get("a")


@pytest.mark.parametrize("name", ["../out.txt", "/tmp/trainyard-out.txt"])
def test_an_archive_stays_in_the_folder(tmp_path, name):  # F47
    packed = tmp_path / "a.tar"
    with tarfile.open(packed, "w") as tar:
        tar.addfile(tarfile.TarInfo("first"), io.BytesIO())
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    with (
        Records(tmp_path / "sweep", "first") as records,
        pytest.raises(DamagedArchiveError, match=r"cannot be unpacked: the name .* inside its"),
    ):
        records.unpack(packed, "0")
    assert sorted(path.name for path in (tmp_path / "sweep").rglob("*")) == [
        *(".points", "0", "lock", "sweep.json")
    ]


def test_sweeps_of_one_folder_are_kept_apart(tmp_path):  # F54
    with Records(tmp_path, "A") as records:
        assert run(records, points("ab"), "A") is None
        assert run(records, points("abc"), "-") is None  # more points of the same sweep
        first = run(records, points("ade"), "B")
        assert (first, records.name) == (tmp_path / "earlier" / "1", "B")
        assert made_by(first) == "AA-"
        assert (first / "results.csv").read_text() == "-"
        assert made_by(tmp_path) == "ABB"  # they have a point in common
        assert set(records.all()) == {"a", "d", "e"}
        # The first one again: nothing of it is lost, and nothing runs again.
        assert run(records, points("abc"), "C") == tmp_path / "earlier" / "2"
        assert made_by(tmp_path) == "AA-"
        records.forget("a")  # as one that was killed before it had copied all
        assert run(records, points("abc"), "D") is None
        assert made_by(tmp_path) == "AA-"


def test_batches_of_a_sweep_add_up_where_another_one_was(tmp_path):  # F54
    with Records(tmp_path, "A") as records:
        run(records, points("ab"), "A")
        run(records, points("cd", first=2), "A")
        run(records, points("ab"), "B")
        run(records, points("ef", first=2), "B")
        assert made_by(tmp_path) == "AABB"
        assert set(records.all()) == set("abef")
        assert made_by(tmp_path / "earlier" / "1") == "AAAA"


def test_a_sweep_that_was_set_aside_in_part_is_set_aside_whole(tmp_path, monkeypatch):  # F54
    with Records(tmp_path, "A") as records:
        run(records, points("ab"), "A")
        with monkeypatch.context() as patched:
            patched.setattr(Path, "rename", moving_only("0"))
            with pytest.raises(ClientError, match="No space left"):
                records.take_up(points("cd"), "B")
        run(records, points("cd"), "B")
        assert made_by(tmp_path / "earlier" / "1") == "AA"
        assert [path.name for path in (tmp_path / "earlier").iterdir()] == ["1"]
