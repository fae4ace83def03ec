"""The history of a stack in the CLI's form: each operation with its time, commit and user.

Its files are next to the states, `history/<project>/<stack>/<stack>-<ns>.history.json`, so both
tools show each other's operations. Copies of the state are left out, since backups exist, and the
values of settings, since the commit has them and one may be an undeclared secret.
"""

import json
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import lock
from trainyard.access import repository, user
from trainyard.access.state_folder import StatePath

KINDS = {"up": "update", "refresh": "refresh", "destroy": "destroy"}
KEPT = 200  # of a stack
HEAD, DIRTY, USER, RUN = "git.head", "git.dirty", "exec.user", "ci.build.url"
GIT_SECONDS = 5
ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def folder(base: StatePath, project: str, stack: str) -> StatePath:
    """The folder of a stack's operations, below the states of a backend."""
    return base / "history" / project / stack


def document(
    root: Path, *, kind: str, started: float, succeeded: bool, changes: Mapping[str, int]
) -> bytes:
    """The content of the file of an operation that ends now, with the commit of a folder.

    It began at a time in seconds since 1970, and its kind is up, refresh or destroy; `changes` are
    numbers of steps.
    """
    head = _git(root, "rev-parse", "HEAD")
    environment = {USER: user.name(), "exec.kind": "trainyard"}
    if head:
        environment |= {HEAD: head, DIRTY: str(bool(_git(root, "status", "--porcelain"))).lower()}
    if run := lock.run():
        environment[RUN] = run
    return json.dumps(
        {
            "kind": KINDS[kind],
            "startTime": int(started),
            "message": _git(root, "log", "-1", "--format=%s"),
            "environment": environment,
            "config": {},
            "result": "succeeded" if succeeded else "failed",
            "endTime": int(time.time()),
            "resourceChanges": {step: count for step, count in changes.items() if count},
        },
        indent=4,
    ).encode()


def files(place: StatePath) -> list[StatePath]:
    """The files of a stack's operations, the newest first."""
    found: list[StatePath] = list(place.glob("*.history.json"))
    return sorted(found, key=lambda path: path.name, reverse=True)


def operations(place: StatePath) -> list[dict[str, Any]]:
    """A stack's operations, the newest first, with the names of `pulumi stack history --json`."""
    shown = []
    for path in files(place):
        with suppress(*ODD):  # of another version
            found = json.loads(path.read_bytes())
            times = {key: _time(found[key]) for key in ("startTime", "endTime")}
            line(update := {**found, **times})
            shown.append(update)
    return shown


def line(update: Mapping[str, Any]) -> str:
    """One operation, as a line for people."""
    of = update.get("environment") or {}
    changes = ", ".join(f"{n} {kind}" for kind, n in (update.get("resourceChanges") or {}).items())
    dirty = "+" if of.get(DIRTY) == "true" else ""  # with uncommitted changes
    told = [
        update["startTime"],
        f"{update['kind']:8}",
        f"{update['result']:9}",
        f"{of.get(HEAD, '')[:10]}{dirty}",
        of.get(RUN) or of.get(USER, ""),
        changes,
    ]
    return "  ".join(part for part in told if part)


def _time(seconds: Any) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _git(root: Path, *arguments: str) -> str:
    """Git's answer about the project, "" without git or a repository."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            env={**repository.environment(), "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""
