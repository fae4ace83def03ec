"""Files written whole or not at all; tests of the state and the passphrase show the rest."""

import errno
import os
import stat
from pathlib import Path

import psutil
import pytest

from engine import files
from tests.flocks import is_locked
from trainyard.access import users_file


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
def test_a_write_that_fails_leaves_the_former_file(tmp_path, monkeypatch, full, what):  # F16
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fdopen" if what == "write" else "fsync", full)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.replace(path, b"new", tmp_path / "temporary")
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"file": b"old"}


@pytest.mark.parametrize("link", [False, True])
def test_what_a_kill_left_or_a_stranger_put_there_is_no_obstacle(tmp_path, link):  # F38
    (theirs := tmp_path / "theirs").write_bytes(b"half of it")
    temporary = tmp_path / "temporary"
    temporary.symlink_to(theirs) if link else temporary.write_bytes(b"half of it")
    files.replace(tmp_path / "file", b"new", temporary)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {
        "file": b"new",
        "theirs": b"half of it",
    }


@pytest.mark.parametrize("dangling", [False, True])
def test_nothing_is_written_through_a_link_that_somebody_put_there(tmp_path, monkeypatch, dangling):
    foreign = tmp_path / "foreign"
    if not dangling:
        foreign.write_bytes(b"theirs")
    (tmp_path / "temporary").symlink_to(foreign)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # it came just after that
    with pytest.raises(FileExistsError):
        files.replace(tmp_path / "file", b"new", tmp_path / "temporary")
    assert foreign.exists() is not dangling
    assert dangling or foreign.read_bytes() == b"theirs"


@pytest.mark.parametrize("locked", [True, False])
def test_a_lock_is_held_from_before_the_file_is_seen(tmp_path, monkeypatch, locked):
    seen = []
    real = Path.replace

    def replace(temporary, path):
        seen.append(is_locked(temporary))
        return real(temporary, path)

    monkeypatch.setattr(Path, "replace", replace)
    descriptor = files.begin(tmp_path / "file", b"new", tmp_path / "temporary", locked=locked)
    assert [*seen, is_locked(tmp_path / "file")] == [locked, locked]
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    assert not is_locked(tmp_path / "file")


def test_a_folder_is_made_durably(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    files.make_folder(tmp_path / "a" / "b", 0o700)
    assert synced == [tmp_path, tmp_path / "a"]
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    files.make_folder(tmp_path / "a" / "b")  # as it is
    assert len(synced) == 2


def test_one_at_a_time_works_on_a_folder(tmp_path):
    with users_file.exclusive(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)
