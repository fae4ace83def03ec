"""A checkpoint that fails at each of its steps: a whole one is always there, and the next works."""

import errno
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from trainyard import failpoints
from trainyard.resume import checkpoint_files
from trainyard.store import objects

MODEL = {"file": "weights"}
BIG = b"x" * (checkpoint_files.SMALL_BYTES + 1)
POINTS = ["checkpoint.file", "checkpoint.manifest", "checkpoint.written", "checkpoint.removed"]


def save(folder: Path, number: int) -> None:
    """Store a checkpoint of two large files, then remove old ones, as a job does."""
    files = folder / f"files{number}"
    files.mkdir(exist_ok=True)
    for name in ("optimizer", "weights"):
        (files / name).write_bytes(BIG + bytes([number]))
    run = objects.open_url((folder / "run").as_uri())
    checkpoint_files.store(run, f"checkpoint_{number:06d}-abcd", files, MODEL)
    checkpoint_files.prune(run, frozenset())


def number_of_newest(folder: Path) -> int:
    """The number in the newest checkpoint that can be restored, all bytes checked."""
    run = objects.open_url((folder / "run").as_uri())
    name = checkpoint_files.valid(run)[0][0]
    checkpoint_files.fetch(run, name, folder / f"restored {name}")
    number = int(name[11:17])
    assert (folder / f"restored {name}" / "weights").read_bytes() == BIG + bytes([number])
    return number


@pytest.fixture
def saved(tmp_path) -> Path:
    """A folder whose run has two whole checkpoints."""
    (tmp_path / "run").mkdir()
    for number in (1, 2):
        save(tmp_path, number)
    return tmp_path


@pytest.mark.parametrize("kind", ["kill", "ENOSPC", "ECONNREFUSED"])
@pytest.mark.parametrize("point", POINTS)
def test_what_fails_at_a_step_of_a_checkpoint(saved, point, kind, monkeypatch):  # F21 F22 F23
    asked = f"{point} {kind} 1"
    if kind == "kill":
        code = f"import pathlib, {__name__} as t; t.save(pathlib.Path({str(saved)!r}), 3)"
        environment = {failpoints.VARIABLE: asked, "PATH": "/usr/bin:/bin"}
        root = Path(__file__).parents[3]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, check=False)
        assert done.returncode == -9
    else:
        monkeypatch.setenv(failpoints.VARIABLE, asked)
        monkeypatch.setattr(failpoints, "_reached", iter([1, 2, 3, 4]))
        # An old one that cannot be removed now never ends a training.
        kept = point == "checkpoint.removed"
        with (
            nullcontext()
            if kept
            else pytest.raises(OSError, match=os.strerror(getattr(errno, kind)))
        ):
            save(saved, 3)
        monkeypatch.delenv(failpoints.VARIABLE)
    written = point in ("checkpoint.written", "checkpoint.removed")
    assert number_of_newest(saved) == (3 if written else 2)
    save(saved, 4)
    assert number_of_newest(saved) == 4
    left = sorted(path.name[11:17] for path in (saved / "run").iterdir())
    assert left == (["000003", "000004"] if written else ["000002", "000004"])
