"""Saved files, as the operating system reports them."""

from collections.abc import Iterator
from pathlib import Path

import watchfiles

from trainyard.client.dev.sources import Sources
from trainyard.client.errors import ClientError

STEP_MS = 20  # without a further change: an editor writes, then renames
LOOK_MS = 500  # how often the caller can look at something else


def saves(sources: Sources) -> Iterator[set[Path]]:
    """Yield the paths that were written, deleted or made, one set for each save.

    Sets are empty twice a second without a save. Folders that are left out are not watched: those
    of .git or a virtual environment would take thousands of watches.

    Raises:
        ClientError: the operating system cannot watch that many.
    """
    new: set[Path] = set()  # folders
    while True:
        folders = sources.folders
        try:
            for changes in watchfiles.watch(
                *folders,
                watch_filter=None,
                step=STEP_MS,
                rust_timeout=LOOK_MS,
                yield_on_timeout=True,
                recursive=False,
                raise_interrupt=True,
            ):
                # Looking again finds files that came into a new folder before it was watched.
                yield {Path(path) for _, path in changes} | new
                new = sources.folders - folders
                if sources.folders != folders:
                    break
        except OSError as error:
            raise ClientError(
                f"cannot watch {len(folders)} folders ({error}): leave some out in .gitignore, or "
                "raise the limit: sudo sysctl fs.inotify.max_user_watches=524288"
            ) from None
