"""The passphrase file: whole, private, never empty; and what `make up` does with it."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine import files, launch, passphrase
from engine.errors import EngineError


@pytest.fixture
def path(tmp_path, monkeypatch):
    """The path of the file of a user without any passphrase."""
    for name in (passphrase.PHRASE, passphrase.FILE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "trainyard" / "passphrase"


@pytest.mark.usefixtures("open_umask")
def test_a_passphrase_is_made_once_and_for_this_user_only(path, monkeypatch, capsys):  # F35
    assert passphrase.make() == path
    made = passphrase.passphrase()
    assert len(made) >= 43  # 32 random bytes in base64
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert passphrase.make() == path
    assert (
        capsys.readouterr().out.count(f"made the passphrase of your stacks' secrets: {path}") == 1
    )
    assert passphrase.passphrase() == made
    assert [each.name for each in path.parent.iterdir()] == ["passphrase"]
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(path.parent))
    assert passphrase.default_file() == path.parent / ".config" / "trainyard" / "passphrase"


def test_two_at_a_time_make_one(path, monkeypatch):  # F14
    both = threading.Barrier(2)

    def make():
        both.wait()
        passphrase.make()
        return passphrase.passphrase()

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(make), pool.submit(make)
        assert first.result() == second.result()


def test_a_full_disk_leaves_no_file(path, monkeypatch, full):  # F16
    monkeypatch.setattr(files.os, "fdopen", full)
    with pytest.raises(EngineError, match=r"cannot be made .No space left"):
        passphrase.make()
    assert list(path.parent.iterdir()) == []


def _private(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("content", [b"", b"\n", b" \t\r\n"])
@pytest.mark.parametrize("named", [True, False])
def test_an_empty_file_is_no_passphrase(path, monkeypatch, tmp_path, content, named):  # F18
    if named:
        path = tmp_path / "mine"
        monkeypatch.setenv(passphrase.FILE, str(path))
    _private(path, content)
    for use in (passphrase.passphrase, launch._passphrase):
        with pytest.raises(EngineError, match=f"{path} is empty; restore your copy"):
            use()
    assert path.read_bytes() == content


def test_an_explicitly_empty_passphrase_is_one(path, monkeypatch):
    monkeypatch.setenv(passphrase.PHRASE, "")
    assert passphrase.passphrase() == ""
    assert launch._passphrase() == {}
    assert not path.exists()


@pytest.mark.parametrize("named", [True, False])
def test_the_file_of_this_user_is_made_whether_it_is_named_or_not(path, monkeypatch, named):
    monkeypatch.setenv(passphrase.FILE, str(path) if named else "")  # none, as for the CLI
    assert launch._passphrase() == {passphrase.FILE: str(path)}
    assert passphrase.passphrase() == path.read_text().strip()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o677])
def test_a_file_that_others_may_read_or_write_is_refused(path, mode):  # F35
    _private(path, b"phrase").chmod(mode)
    for use in (passphrase.passphrase, launch._passphrase):
        with pytest.raises(EngineError, match=rf"mode {mode:04o}, at most 0600.*chmod 600"):
            use()


def test_a_file_of_somebody_else_is_refused(path, monkeypatch):  # F35
    _private(path, b"phrase\n")
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr(passphrase, "ROOT", owner + 2)
    with pytest.raises(EngineError, match=f"belongs to the user with id {owner}"):
        passphrase.passphrase()
    monkeypatch.setattr(passphrase, "ROOT", owner)
    assert passphrase.passphrase() == "phrase"


def test_a_file_that_is_no_text_or_not_there_is_one_message(path, monkeypatch, tmp_path):  # F18
    monkeypatch.setenv(passphrase.FILE, str(tmp_path / "none"))
    with pytest.raises(EngineError, match=r"no passphrase: .*none cannot be read .No such file"):
        passphrase.passphrase()
    monkeypatch.delenv(passphrase.FILE)
    _private(path, b"\xff\xfe")
    with pytest.raises(EngineError, match="is not text"):
        passphrase.passphrase()


def test_a_pipe_of_the_shell_is_read_once(path, monkeypatch):
    reader, writer = os.pipe()
    os.write(writer, b"phrase\n")
    os.close(writer)
    monkeypatch.setenv(passphrase.FILE, f"/dev/fd/{reader}")
    assert launch._passphrase() == {passphrase.FILE: f"/dev/fd/{reader}"}
    assert passphrase.passphrase() == "phrase"
    os.close(reader)
