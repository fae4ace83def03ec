"""The store for Ray Train: what Ray's own processes write there stays in their memory.

Ray Train's controller stores its list of checkpoints after each report, and the run fails if the
store is away then (Ray 2.60). Runs do not need that list: they resume from the checkpoints that are
in the store (trainyard/resume/checkpoint_files.py). Without it only a worker has to reach the
store. It waits for one that is away (trainyard/store/objects.py), and Ray Train restarts it if that
takes too long.
"""

from collections.abc import Callable
from typing import Any

import pyarrow
from pyarrow import fs

from trainyard.store.store_handler import StoreHandler

LIST = "checkpoint_manager_snapshot.json"  # of checkpoints, by Ray


class ControllerFiles(fs.PyFileSystem):  # type: ignore[misc]  # pyarrow's are not typed
    """File system for Ray's RunConfig; `store_files` is the store's own."""

    def __init__(self, store_files: fs.FileSystem) -> None:
        self.store_files = store_files
        super().__init__(_Handler(store_files))

    def __reduce__(self) -> Any:
        """Each process has its own memory."""
        return ControllerFiles, (self.store_files,)


class _Handler(StoreHandler):
    """Files that this process wrote are in memory, others in the store, but for an older list."""

    def __init__(self, files: fs.FileSystem) -> None:
        super().__init__(files)
        self._held: dict[str, bytes] = {}

    def create_dir(self, path: str, recursive: bool) -> None:
        """Does nothing: the first checkpoint makes the folder."""

    def _info(self, path: str) -> fs.FileInfo:
        if path in self._held:
            return fs.FileInfo(path, fs.FileType.File, size=len(self._held[path]))
        if path.endswith(f"/{LIST}"):
            return fs.FileInfo(path, fs.FileType.NotFound)
        return super()._info(path)

    def _reader(self, path: str, opened: Callable[[str], Any]) -> Any:
        if path in self._held:
            return pyarrow.BufferReader(self._held[path])
        return super()._reader(path, opened)

    def _write(self, path: str, content: bytes) -> None:
        self._held[path] = content
