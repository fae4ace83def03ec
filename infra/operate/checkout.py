"""Keeps `git status` clean when the pulumi CLI writes its salt into a stack's settings.

The CLI stores the salt of the local passphrase in Pulumi.<stack>.yaml, even for a preview. A clean
filter (.gitattributes, configured by `make setup`) keeps the line out of git for as long as nothing
in the file was encrypted with it: then nobody else needs the line, and the state has it as well.
Together with a secret it stays, so that neither a commit nor a stash can part the two.

Git takes a file with a new size as changed, without a look inside, until it is added again.
"""

import subprocess
import sys
from pathlib import Path

from trainyard.access.repository import environment

ROOT = Path(__file__).resolve().parents[2]

FILTER = "local-salt"  # as .gitattributes has it
# Not sed, which would have to hold the file; and no `$`, which git's shell would expand.
CLEAN = r"""
awk 'BEGIN {
  while ((getline line) > 0) {
    if (line ~ /(^|[ {"])secure"?: *["]?v1:/) secret = 1;
    lines[++n] = line;
  }
  for (i = 1; i <= n; i++) if (secret || lines[i] !~ /^encryptionsalt:/) print lines[i]
}'
"""


def configure(root: Path = ROOT) -> None:
    """Have git run the filter; nothing happens without a checkout, or without git."""
    _succeeds(root, "config", f"filter.{FILTER}.clean", " ".join(CLEAN.split()))


def forget_salt(stack: str, root: Path = ROOT) -> None:
    """Let git note the new size of a stack's settings when only the salt was added to them.

    Nothing happens when they have no salt, or are in no checkout.
    """
    settings = root / f"Pulumi.{stack}.yaml"
    if not settings.is_file() or "encryptionsalt:" not in settings.read_text(errors="replace"):
        return
    # With any other change the diff is not quiet: edits of the user are never staged.
    if _succeeds(root, "diff", "--quiet", "--", settings.name):
        _succeeds(root, "add", "--", settings.name)


def _succeeds(root: Path, *arguments: str) -> bool:
    git = ["git", "-C", str(root), *arguments]
    try:  # outside of a checkout git prints its usage
        return not subprocess.run(
            git, env=environment(), check=False, capture_output=True
        ).returncode
    except OSError:
        return False  # no git here


if __name__ == "__main__":
    for name in sys.argv[1:]:
        forget_salt(name)
    if not sys.argv[1:]:
        configure()
