"""Finds the stacks that a change of files concerns."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from infra.operate.gitops import GitopsError

SETTINGS = re.compile(r"Pulumi\.(?P<stack>[^/]+)\.yaml")
# Files of no stack. All others are of every stack.
BESIDE = ("docs/", "tests/", "bench/", ".github/", ".ci/", "gitops/")
PAGES = (".md", ".svg")


def since(base: str, stacks: Sequence[str], folder: Path) -> list[str]:
    """Return the stacks that the commits since a base concern, in their order.

    Later commits of the base do not count.

    Raises:
        GitopsError: git does not know the base.
    """
    done = subprocess.run(
        # Both names of a moved file count.
        ["git", "diff", "--name-only", "--no-renames", "-z", f"{base}...HEAD"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise GitopsError(
            f"git cannot compare with {base!r} ({done.stderr.strip().splitlines()[-1]}): check "
            "out with the whole history (fetch-depth: 0), and name a commit or branch"
        )
    return affected_stacks(filter(None, done.stdout.split("\0")), stacks)


def affected_stacks(files: Iterable[str], stacks: Sequence[str]) -> list[str]:
    """Return the stacks that changed files concern."""
    found: set[str] = set()
    for name in files:
        if settings := SETTINGS.fullmatch(name):
            found.add(settings["stack"])
        elif not name.startswith(BESIDE) and not name.endswith(PAGES):
            return list(stacks)
    return [stack for stack in stacks if stack in found]
