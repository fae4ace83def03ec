"""Keeps `git status` clean when the pulumi CLI writes its salt into a stack's settings.

The CLI stores the salt of the local passphrase in Pulumi.<stack>.yaml, even for a preview. A clean
filter (.gitattributes, configured by `make setup`) keeps the line out of git, but git takes a file
of another size for a changed one without looking, until it is added again.
"""

import subprocess
from pathlib import Path


def forget_salt(settings: Path) -> None:
    """Let git take note of the file's size when nothing but the salt was added to it.

    Args:
        settings: a stack's settings file; nothing happens when it has no salt or no checkout.
    """
    if not settings.is_file() or "encryptionsalt:" not in settings.read_text():
        return
    git = ["git", "-C", str(settings.parent)]
    try:
        same = subprocess.run([*git, "diff", "--quiet", "--", settings.name], check=False)
        # With any other change the diff is not quiet: what the user edits is never staged.
        if same.returncode == 0:
            subprocess.run([*git, "add", "--", settings.name], check=False, capture_output=True)
    except OSError:
        return  # no git here
