"""Files that hold secrets, or lead to them, are the user's alone, whatever the umask."""

import os
import stat
import sys
from pathlib import Path

import pytest

from engine import launch


@pytest.fixture
def _open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("_open_umask")
def test_the_state_and_its_copies_are_private(stack):  # F35
    stack.declare(one={"text": "a"})
    stack.up()
    stack.declare(one={"text": "b"})
    stack.up()
    found = [*(stack.root / "backend" / ".pulumi").rglob("*.json*")]
    assert len(found) >= 4, "the state, the one before, two backups"
    assert {path.name: _mode(path) for path in found if _mode(path) != 0o600} == {}


@pytest.mark.usefixtures("_open_umask")
def test_a_passphrase_that_is_made_is_private(tmp_path, monkeypatch):  # F35
    for name in ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["launch", "preview"])
    given = {}
    monkeypatch.setattr(os, "execvpe", lambda _file, _words, environment: given.update(environment))
    launch.main()
    path = Path(given["PULUMI_CONFIG_PASSPHRASE_FILE"])
    assert path.is_relative_to(tmp_path)
    assert len(path.read_text().strip()) >= 40
    assert (_mode(path), _mode(path.parent)) == (0o600, 0o700)
