"""What the Makefile's `up` and `down` call: the pulumi CLI where it is on PATH, else this engine.

Both get the same passphrase and the same state, so a stack can be begun with one and ended with the
other. What the user has set (PULUMI_CONFIG_PASSPHRASE, PULUMI_BACKEND_URL, a login) is left alone.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from engine.project import default_passphrase_file
from engine.state import logged_in_backend

PASSPHRASE_BYTES = 32


def main() -> None:
    """Become the better of the two engines, with one command."""
    parser = argparse.ArgumentParser(prog="python -m engine.launch", description=__doc__)
    parser.add_argument("command", choices=["up", "preview", "refresh", "destroy"])
    parser.add_argument("-s", "--stack", default="dev")
    options = parser.parse_args()
    environment = os.environ | _passphrase() | _backend()
    arguments = [options.command, "--stack", options.stack]
    if options.command != "preview":
        arguments.append("--yes")
    if shutil.which("pulumi") is None:
        print("pulumi is not on PATH: running the embedded engine", flush=True)  # noqa: T201
        command = [sys.executable, "-m", "engine", *arguments]
    else:
        print("running the pulumi CLI", flush=True)  # noqa: T201
        if options.command in ("up", "preview"):
            select = ["pulumi", "stack", "select", "--create", options.stack]
            if (code := subprocess.run(select, env=environment, check=False).returncode) != 0:
                sys.exit(code)
        command = ["pulumi", *arguments]
    # In place of this process: signals go straight to the engine.
    os.execvpe(command[0], command, environment)  # noqa: S606


def _passphrase() -> dict[str, str]:
    """A passphrase file of this user's own where none is set; made on first use."""
    if {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & set(os.environ):
        return {}
    path = default_passphrase_file()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_new(path, secrets.token_urlsafe(PASSPHRASE_BYTES))
        print(f"made the passphrase of your stacks' secrets: {path}", flush=True)  # noqa: T201
    return {"PULUMI_CONFIG_PASSPHRASE_FILE": str(path)}


def _write_new(path: Path, text: str) -> None:
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(f"{text}\n")


def _backend() -> dict[str, str]:
    if "PULUMI_BACKEND_URL" in os.environ:
        return {}
    return {"PULUMI_BACKEND_URL": logged_in_backend()}


if __name__ == "__main__":
    main()
