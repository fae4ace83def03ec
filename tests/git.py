"""Git in a folder, as a user with a name and an address."""

import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=A user", "-c", "user.email=user@example.org")


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *IDENTITY, "-c", "tag.gpgSign=false", *arguments]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
