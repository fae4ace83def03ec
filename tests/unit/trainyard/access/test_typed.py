"""Commands in messages run as they are, from where the user is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.access import typed

BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def _checkout(monkeypatch, tmp_path):
    """An environment .venv of a checkout, of which nothing is on PATH."""
    (tmp_path / "infra").mkdir()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/bin").symlink_to(BIN)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("PWD", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_program_is_named_by_the_path_from_here(monkeypatch, tmp_path):
    assert typed.program("train") == ".venv/bin/train"
    monkeypatch.chdir("infra")
    assert typed.program("train") == f"{tmp_path}/.venv/bin/train"
    monkeypatch.setenv("PWD", str(tmp_path))  # of the user's shell: the program runs in main
    assert typed.program("train") == ".venv/bin/train"
    monkeypatch.chdir("/usr")
    assert typed.program("train") == f"{tmp_path}/.venv/bin/train"


@pytest.mark.parametrize("relative", [True, False])
def test_a_program_on_path_is_named_alone(monkeypatch, tmp_path, relative):
    folder = ".venv/bin" if relative else str(tmp_path / ".venv/bin")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin")
    assert typed.program("train") == "train"


def test_a_named_command_runs_as_it_is_printed(monkeypatch, tmp_path):
    folder = tmp_path / "with a blank"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / ".venv/bin/python"))
    (folder / ".venv").symlink_to(tmp_path / ".venv")
    command = typed.command("python -c pass")
    assert subprocess.run(command, shell=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "stack", "shown"),
    [
        ("`train runs` lists them", "dev", "`.venv/bin/train runs` lists them"),
        ("`train runs` lists them", "lab", "`.venv/bin/train runs -s lab` lists them"),
        ("`train pull RUN -s lab`", "x", "`.venv/bin/train pull RUN -s lab`"),
        ("`train new NAME`", "lab", "`.venv/bin/train new NAME`"),
        ("`train reap --end`", "lab", "`.venv/bin/train reap --end`"),  # of all stacks
        ("run `make up`, or wait", "dev", "run `make up`, or wait"),
        ("`make up FORCE=1` asks", "lab", "`make up FORCE=1 STACK=lab` asks"),
        ("`make up STACK=lab`", "x", "`make up STACK=lab`"),
        ("`python -m engine stack ls`", "lab", "`.venv/bin/python -m engine stack ls`"),
        ("a train runs, `x`", "lab", "a train runs, `x`"),
    ],
)
def test_the_commands_of_a_message(text, stack, shown):
    assert typed.commands(text, stack) == shown
    assert typed.commands(shown, stack) == shown
