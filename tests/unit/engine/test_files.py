"""Files written whole or not at all; what else is shown on the state and the passphrase."""

import errno
import os
import stat

import psutil
import pytest

from engine import files


def _folders_cannot_be_synced(monkeypatch, code):
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_knows_no_syncing_of_folders_will_do(tmp_path, monkeypatch, code):
    _folders_cannot_be_synced(monkeypatch, code)
    files.replace(tmp_path / "file", b"new", tmp_path / "temporary")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fails_to_sync_is_an_error_and_nothing_stays_open(tmp_path, monkeypatch):  # F16
    _folders_cannot_be_synced(monkeypatch, errno.EIO)
    before = psutil.Process().num_fds()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        files.replace(tmp_path / "file", b"new", tmp_path / "temporary")
    assert psutil.Process().num_fds() == before


@pytest.mark.parametrize("what", ["write", "fsync"])
def test_a_write_that_fails_leaves_the_former_file(tmp_path, monkeypatch, what):  # F16
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen" if what == "write" else "fsync", full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.replace(path, b"new", tmp_path / "temporary")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"file": b"old"}
