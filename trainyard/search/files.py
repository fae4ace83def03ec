"""The store for Tune's driver: state that is signed, whole, and executed only if it is ours.

Tune pickles the state of a search into files that it overwrites in place and copies to the store
while it writes them; and it unpickles the files that it finds there. With this file system,

- it stores a state signed (trainyard/store/signed.py), only when whole, next to the previous one;
- it reads the states that `take_up` has checked, or that it has written itself: it never sees
  later changes of the store;
- it neither stores nor reads any other pickle, nor an incomplete line of results.

The trials' own processes get the store's file system: their checkpoints hold no pickles.
"""

from __future__ import annotations

import hashlib
import json
import pickletools
import re
from collections.abc import Callable
from typing import Any

import pyarrow
from pyarrow import fs

from trainyard.errors import JobError
from trainyard.store import signed
from trainyard.store.objects import MOST_STATE_BYTES, Store
from trainyard.store.store_handler import StoreHandler
from trainyard.tracking.run_folder import RunFolder

TUNER = "tuner.pkl"
# By session: when the search was started or resumed.
SEARCH = re.compile(r"experiment_state-(.*)\.json")
STATE = re.compile(
    r"tuner\.pkl|(?:experiment_state|basic-variant-state|search_gen_state)-([^/]*)\.json"
    r"|(?:searcher-state|callback-states)-([^/]*)\.pkl"
)
BEFORE = ".before"  # the state before the last one
LINES = ("result.json", "progress.csv")  # of a trial; each result is a line
PICKLE = ".pkl"


class SearchFiles(fs.PyFileSystem):  # type: ignore[misc]  # pyarrow's are not typed
    """File system of a search, for its driver; `search` has the checked and the new state."""

    def __init__(self, run: RunFolder, key: bytes) -> None:
        self._files, path = run.place
        self.search = StoredSearch(run.store, run.name, key)
        super().__init__(_Handler(self._files, path, self.search))

    def __reduce__(self) -> Any:
        """Becomes the store's own in another process: only the driver reads and writes states."""
        return self._files.__reduce__()

    def __deepcopy__(self, memo: dict[int, Any]) -> SearchFiles:
        """Tune copies its configuration."""
        return self


class StoredSearch:
    """The states of one search: stored ones and checked ones."""

    def __init__(self, folder: Store, run: str, key: bytes) -> None:
        self.folder = folder
        self._run = run
        self._key = key
        self.held: dict[str, bytes] = {}

    def take_up(self) -> bool:
        """Reads the state to resume from; False where none was stored.

        Raises:
            JobError: a state is not ours, or none is whole.
            StorageError: the store stays unavailable.
        """
        names = self.folder.sizes()
        states = sorted(filter(STATE.fullmatch, {name.removesuffix(BEFORE) for name in names}))
        if not states:
            return False
        found = {name: content for name in states if (content := self._newest(name)) is not None}
        sessions = [session[1] for name in found if (session := SEARCH.fullmatch(name))]
        if TUNER not in found or not sessions:
            if not any(SEARCH.fullmatch(name) for name in states):
                return False  # interrupted before the first trial
            raise JobError(
                f"no state of search {self._run!r} in {self.folder.where} is whole: bring the "
                "store's files back, or start again with another --name"
            )
        newest = max(sessions)
        # Files of a session with a torn state would not fit the state in use.
        self.held = {name: found[name] for name in found if _session(name) <= newest}
        return True

    def states(self) -> list[bytes]:
        """Return the stored states of the newest session: the last two.

        Raises:
            JobError: one of them is not ours.
            StorageError: the store stays unavailable.
        """
        names = self.folder.sizes()
        for name in sorted((name for name in names if SEARCH.fullmatch(name)), reverse=True):
            found = [self._read(name), self._read(name + BEFORE)]
            if any(found):
                return [content for content in found if content]
        return []

    def store(self, name: str, content: bytes) -> None:
        """Stores a state if it is whole: Tune may be writing while it is copied.

        Raises:
            StorageError: the store does not accept it.
        """
        last = self.held.get(name)
        if content == last or not whole(name, content):
            return
        sign = signed.signed
        scope = f"{self._run}/{name}"
        # The copy first: while one of the two is written, the other is whole.
        self.folder.write(name + BEFORE, sign(content if last is None else last, scope, self._key))
        self.folder.write(name, sign(content, scope, self._key))
        self.held[name] = content

    def _newest(self, name: str) -> bytes | None:
        for version in (name, name + BEFORE):
            content = self._read(version)
            if content is not None:
                return content
            print(  # noqa: T201 - a job's
                f"warning: {version} of search {self._run!r} is not whole: the previous state is "
                "used",
                flush=True,
            )
        return None

    def _read(self, version: str) -> bytes | None:
        try:
            stored = self.folder.read(version, MOST_STATE_BYTES)
            return signed.content_of(
                stored, f"{self._run}/{version.removesuffix(BEFORE)}", self._key
            )
        except FileNotFoundError:
            return None
        except signed.SignatureError as error:
            raise JobError(
                f"{version} in {self.folder.where} is refused, because Tune would execute it: "
                f"{error}. Anyone who can write to the bucket may have put it there, or the "
                "stack's Ray token has changed: start the search again with another --name"
            ) from None


class _Handler(StoreHandler):
    """Names of states lead to the checked ones, all others to the store."""

    def __init__(self, files: fs.FileSystem, path: str, search: StoredSearch) -> None:
        super().__init__(files)
        self._path = path.rstrip("/")
        self._search = search
        self._stored: dict[str, bytes] = {}  # digests of the files in the store

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return the visible files of a folder, and the states that are held."""
        stored = super().get_file_info_selector(selector)
        found = [info for info in stored if not self._is_hidden(info.path)]
        if selector.base_dir.rstrip("/") == self._path:
            found += [self._info(f"{self._path}/{name}") for name in self._search.held]
        return found

    def _name(self, path: str) -> str:
        return path.rstrip("/").removeprefix(f"{self._path}/")

    def _is_hidden(self, path: str) -> bool:
        """Hides unchecked states, and our JSON, which Tune would take for its own."""
        name = self._name(path).removesuffix(BEFORE)
        return name.endswith(PICKLE) or ("/" not in name and name.endswith(".json"))

    def _info(self, path: str) -> fs.FileInfo:
        content = self._search.held.get(self._name(path))
        if content is not None:
            return fs.FileInfo(path, fs.FileType.File, size=len(content))
        if self._is_hidden(path):
            return fs.FileInfo(path, fs.FileType.NotFound)
        return super()._info(path)

    def _reader(self, path: str, opened: Callable[[str], Any]) -> Any:
        name = self._name(path)
        if (content := self._search.held.get(name)) is not None:
            return pyarrow.BufferReader(content)
        if self._is_hidden(path):
            raise FileNotFoundError(path)
        if name.endswith(LINES):
            with self._files.open_input_stream(path) as stream:
                whole_lines, newline, _ = stream.readall().rpartition(b"\n")
            return pyarrow.BufferReader(whole_lines + newline)
        return super()._reader(path, opened)

    def _write(self, path: str, content: bytes) -> None:
        name = self._name(path)
        if STATE.fullmatch(name):
            self._search.store(name, content)
            return
        if name.endswith(PICKLE) or "-tmp-" in name:
            return  # errors and parameters, which Tune also has as text; incomplete states
        digest = hashlib.sha256(content).digest()
        if self._stored.get(name) != digest:  # Tune copies all files every time
            self._search.folder.write(name, content)
            self._stored[name] = digest


def whole(name: str, content: bytes) -> bool:
    """Whether a state's content is complete; nothing of it is executed."""
    try:
        if SEARCH.fullmatch(name):
            return isinstance(json.loads(content)["trial_data"], list)
        for _, _, _ in pickletools.genops(content):
            pass
    except Exception:
        return False
    return True


def _session(name: str) -> str:
    found = STATE.fullmatch(name)
    return (found[1] or found[2] or "") if found else ""
