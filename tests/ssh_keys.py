"""Keys of SSH as its users make them."""

import shutil
import subprocess
from pathlib import Path

import pytest


def keygen(*arguments: str | Path) -> str:
    """Run ssh-keygen, and return its output; without the program the test is skipped."""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("no ssh-keygen on PATH (openssh-client)")
    done = subprocess.run(["ssh-keygen", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def new_key(path: Path, passphrase: str = "", *arguments: str) -> Path:
    """Make a key and its public half next to it."""
    kind = arguments or ("-t", "ed25519")
    keygen("-q", *kind, "-N", passphrase, "-f", path)
    return path
