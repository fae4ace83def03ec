"""Whose a folder is: what a stack may take, believe and remove."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from node import folders
from node.folders import FILE, FolderMark
from node.life import ServiceError

OURS = FolderMark(id="0123abcd", project="trainyard", stack="dev", by="ada@here")
THEIRS = FolderMark(id="4567abcd", project="trainyard", stack="dev", by="bob@there")
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _full(folder: Path) -> Path:
    """Return a folder with a file that must not be lost."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "thesis").write_text("x")
    return folder


@pytest.mark.parametrize(
    "name", ["/", "/tmp", "/home", "/home/ada", "/root", "/srv", "/var/tmp", "/run/user/1000"]
)
def test_no_stack_on_any_machine_has_a_folder_of_the_system(name):
    assert folders.is_reserved(Path(name))
    with pytest.raises(ServiceError, match="name a folder that is absent or empty"):
        folders.take(Path(name), OURS, "stateDir")
    left = folders.remove(Path(name), OURS)
    assert left.startswith(f"left: {name} is ") or not Path(name).exists()


@pytest.mark.parametrize("link", [False, True], ids=["plain", "by a link"])
@pytest.mark.parametrize(
    ("place", "reason"),
    [("home/ada", "your home folder"), ("home", "your home folder"), ("code", "this checkout")],
)
def test_home_checkout_and_what_holds_them_are_refused(tmp_path, monkeypatch, place, reason, link):
    _full(tmp_path / "home" / "ada")
    _full(tmp_path / "code" / "infra" / "places")
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ada"))
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "code/node/folders.py"))
    folder = tmp_path / place
    if link:
        (tmp_path / "link").symlink_to(folder)
        folder = tmp_path / "link"
    # Not even with the stack's own mark in it.
    (tmp_path / place / FILE).write_text(json.dumps(vars(OURS)))
    for private in (True, False):
        with pytest.raises(ServiceError, match=reason):
            folders.take(folder, OURS, "dataDir", private=private)
        assert reason in folders.remove(folder, OURS, private=private)
    assert (tmp_path / "home/ada/thesis").exists()
    assert (tmp_path / "code/infra/places/thesis").exists()


def test_the_environment_of_this_python_is_refused():
    assert "Python environment" in folders.refusal(Path(sys.prefix))


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("there", [False, True], ids=["absent", "empty"])
def test_an_absent_and_an_empty_folder_are_taken_and_private(tmp_path, there):
    folder = tmp_path / "a" / "b"
    if there:
        folder.mkdir(parents=True)
    folders.take(folder, OURS, "stateDir")
    assert folders.read_mark(folder) == OURS
    assert (_mode(folder), _mode(folder / FILE)) == (0o700, 0o600)  # F38
    assert there or _mode(folder.parent) == 0o700
    assert folders.foreign(folder, OURS) == ""
    folders.take(folder, OURS, "stateDir")
    assert folders.remove(folder, OURS) == ""
    assert not folder.exists()
    assert folders.remove(folder, OURS) == ""


def test_a_folder_with_files_is_taken_with_the_users_consent_only(tmp_path):
    folder = _full(tmp_path / "work")
    with pytest.raises(ServiceError) as raised:
        folders.take(folder, OURS, "dataDir", private=False)
    message = str(raised.value)
    assert message.startswith(f"dataDir = '{folder}' holds files and bears no mark of a stack")
    assert message.endswith(f"touch {folder}/{FILE}")
    assert "bears no mark" in folders.remove(folder, OURS, private=False)
    assert (folder / "thesis").exists()
    (folder / FILE).touch()
    folders.take(folder, OURS, "dataDir", private=False)
    assert folders.read_mark(folder) == OURS
    assert (folder / "thesis").exists()
    folder.chmod(0o755)
    folders.give_back(folder, OURS)
    folders.take(folder, THEIRS, "stateDir")
    assert folders.foreign(folder, THEIRS) == ""


def test_a_folder_of_another_stack_is_refused_by_name(tmp_path):  # F46
    folder = tmp_path / "s"
    folders.take(folder, THEIRS, "stateDir")
    _full(folder)
    with pytest.raises(ServiceError) as raised:
        folders.take(folder, OURS, "stateDir")
    message = str(raised.value)
    assert "belongs to stack dev of project trainyard, made by bob@there (id 4567abcd)" in message
    assert "choose another name for this stack, or another stateDir" in message
    assert folders.foreign(folder, OURS)
    assert "made by bob@there" in folders.remove(folder, OURS)
    folders.give_back(folder, OURS)
    assert folders.read_mark(folder) == THEIRS
    assert (folder / "thesis").exists()


def test_a_folder_that_was_given_back_is_any_stacks(tmp_path):
    folder = tmp_path / "data"
    folders.take(folder, THEIRS, "dataDir", private=False)
    _full(folder)
    folders.give_back(folder, THEIRS)
    assert "bears no mark of this stack" in folders.foreign(folder, THEIRS, private=False)
    folders.take(folder, OURS, "dataDir", private=False)
    assert folders.read_mark(folder) == OURS
    assert (folder / "thesis").exists()


@pytest.mark.parametrize("text", ["{", "[]", "7", "\0", "{" * 9000])
def test_a_mark_that_cannot_be_read_is_none(tmp_path, text):
    folder = _full(tmp_path / "s")
    (folder / FILE).write_text(text)
    assert folders.read_mark(folder) is None
    with pytest.raises(ServiceError, match="bears no mark"):
        folders.take(folder, OURS, "stateDir")


def test_a_link_in_the_place_of_a_folder_or_a_mark_is_not_believed(tmp_path):  # F38
    folders.take(tmp_path / "elsewhere", OURS, "stateDir")
    (tmp_path / "s").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ServiceError, match="is a link: remove it"):
        folders.take(tmp_path / "s", OURS, "stateDir")
    assert folders.foreign(tmp_path / "s", OURS) == "is a link"
    assert folders.remove(tmp_path / "s", OURS).endswith("is a link")
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / FILE).symlink_to(tmp_path / "elsewhere" / FILE)
    assert folders.read_mark(tmp_path / "t") is None


def test_data_may_be_a_link_to_another_disk(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    folders.take(tmp_path / "data", OURS, "dataDir", private=False)
    assert folders.read_mark(tmp_path / "disk") == OURS
    assert folders.foreign(tmp_path / "data", OURS, private=False) == ""
    assert folders.remove(tmp_path / "data", OURS, private=False) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_a_folder_that_others_may_use_is_not_believed(tmp_path, mode):
    folder = tmp_path / "s"
    folders.take(folder, OURS, "stateDir")
    folder.chmod(mode)
    assert folders.foreign(folder, OURS).startswith(f"has mode {mode:04o} and not 0700")
    with pytest.raises(ServiceError, match="chmod 700 it if you did that yourself"):
        folders.take(folder, OURS, "stateDir")
    data_is_open = bool(mode & 0o002)
    assert bool(folders.foreign(folder, OURS, private=False)) == data_is_open
    assert bool(folders.remove(folder, OURS, private=False)) == data_is_open
    assert folders.remove(folder, OURS) == ""


@needs_root
@pytest.mark.parametrize("private", [True, False])
def test_what_another_user_made_is_not_believed(tmp_path, private):  # F38
    folder = tmp_path / "s"
    folders.take(folder, OURS, "stateDir")
    os.chown(folder, 12345, -1)
    assert "belongs to user 12345" in folders.foreign(folder, OURS, private=private)
    with pytest.raises(ServiceError, match="belongs to user 12345"):
        folders.take(folder, OURS, "stateDir", private=private)
    assert "belongs to user 12345" in folders.remove(folder, OURS, private=private)
    os.chown(folder, 0, -1)
    os.chown(folder / FILE, 12345, -1)
    assert folders.read_mark(folder) is None
    assert "bears no mark" in folders.foreign(folder, OURS, private=private)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ServiceError, match=r"stateDir = .* cannot be made \(Not a directory\)"):
        folders.take(tmp_path / "file" / "s", OURS, "stateDir")
