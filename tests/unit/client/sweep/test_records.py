import errno
import io
import os
import tarfile

import pytest

from client.errors import ClientError
from client.sweep.records import DamagedArchiveError, Record, Records

DONE = Record(job="raysubmit_1", number=0, overrides=("x=1",), done=True, value={"loss": 0.5})


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
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Records(tmp_path, "first") as records:
        records.put("a", DONE)
        before = sorted(path.name for path in (tmp_path / ".points").iterdir())
        monkeypatch.setattr("os.fsync", full)
        for name in ("a", "b"):
            with pytest.raises(ClientError, match="No space left"):
                records.put(name, Record(job="raysubmit_2", number=1, overrides=()))
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
