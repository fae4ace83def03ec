"""The files of a session here, and their changes since it began."""

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from trainyard.client import listing
from trainyard.client.errors import ClientError
from trainyard.client.listing import Entry
from trainyard.client.scripts import Script
from trainyard.dev_session import patches, trees
from trainyard.dev_session.patches import FileSummary, Patch


class Sources:
    """The upload of a job, file by file."""

    def __init__(self, script: Script, excludes: Sequence[str], secrets: Sequence[str]) -> None:
        """Reads all files, and refuses files with a secret."""
        self.roots: dict[str, Path] = {}  # uploaded folders by their paths in the session's copy
        if script.working_dir is not None:
            self.roots[trees.WORKING_DIR] = Path(script.working_dir).resolve()
        if script.module is not None:
            self.roots[f"{trees.MODULES}/{script.module.name}"] = script.module.resolve()
        self._excludes = excludes
        self._secrets = secrets
        self.folders: set[Path] = set()  # all that can hold uploaded files, without .git
        self._files = self._listed()
        self._base: dict[str, FileSummary] = {}
        self._sent: dict[str, tuple[str, bool] | None] = {}
        for name, entry in self._files.items():
            content = listing.read(entry)
            self._base[name] = patches.blocks(content)
            found = patches.patch(content, None, executable=_executable(entry.path))
            self._sent[name] = (found.digest, found.executable)

    def changes(self, touched: Collection[Path] | None = None) -> dict[str, Patch | None]:
        """Return the changes of written paths since the last call, each once; None: of any path.

        Raises:
            ClientError: a file holds a secret of the stack, or cannot be read; nothing counts as
                sent.
        """
        known = {entry.path: name for name, entry in self._files.items()}
        if touched is None or not all(path in known and path.is_file() for path in touched):
            self._files = self._listed()
            names: Iterable[str] = {*self._files, *self._sent}
        else:
            names = [known[path] for path in touched]
        found: dict[str, Patch | None] = {}
        sent: dict[str, tuple[str, bool] | None] = {}
        for name in names:
            entry = self._files.get(name)
            patch = None if entry is None else self._patch(name, entry)
            state = None if patch is None else (patch.digest, patch.executable)
            if state != self._sent.get(name):
                found[name], sent[name] = patch, state
        self._sent |= sent
        return found

    def forget(self, changes: Iterable[str]) -> None:
        """Counts changes as not sent: `changes` returns them again."""
        for name in changes:
            self._sent[name] = ("", False)

    def _listed(self) -> dict[str, Entry]:
        files: dict[str, Entry] = {}
        folders: set[Path] = set()
        for root, folder in self.roots.items():
            found = listing.of_folder(folder, self._excludes)
            files |= {f"{root}/{entry.name}": entry for entry in found.files}
            folders |= set(found.folders)
        self.folders = folders
        return files

    def _patch(self, name: str, entry: Entry) -> Patch | None:
        try:
            content = entry.path.read_bytes()
            executable = _executable(entry.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ClientError(
                f"cannot read {entry.path} ({error.strerror}): nothing was sent; mend it, then save"
            ) from None
        if any(secret.encode() in content for secret in self._secrets):
            raise ClientError(
                f"{entry.name} holds a secret of the stack: nothing was sent; move it out of the "
                "folder, or name it in .rayignore, then save"
            )
        return patches.patch(content, self._base.get(name), executable=executable)


def _executable(path: Path) -> bool:
    return os.access(path, os.X_OK)
