"""The runs of a store, of which only those that changed are read again.

`train runs` asks four times for each run; with thousands of them that takes a while. One list of
the store says which files changed. The first reading shows what it has so far.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

from trainyard.access import parallel
from trainyard.client import history
from trainyard.client.errors import ClientError
from trainyard.client.history import READERS, RunRecord
from trainyard.client.outputs import StackOutputs
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

LOOK_S = 3.0  # between the end of a look and the next one, at least
SHARE = 4  # and this many times as long as the look took, so that a large store is not always read
WAIT_S = 0.5  # for the first answer, which most stores give within it
RECORDS = (run_folder.CONFIG, run_folder.STARTS, run_folder.METRICS)
TRIAL_RESULTS = "result.json"  # of Tune, in the folder of each trial
CHECKPOINT = "checkpoint_"

Seen = dict[str, object]


class RunCache:
    """The runs of one store.

    Attributes:
        outputs: of the stack that has the store.
        store: is asked.
    """

    def __init__(self, store: Store, outputs: StackOutputs) -> None:
        """Asks nothing yet."""
        self.store = store
        self.outputs = outputs
        self._lock = threading.Lock()
        self._runs: dict[str, RunRecord] = {}
        self._seen: dict[str, Seen] = {}
        self._trials: dict[str, list[str]] = {}
        self._looking = False
        self._next = 0.0
        self._error: ClientError | None = None
        self._first_look = threading.Event()
        self._expected = 0

    def all(self) -> tuple[list[RunRecord], str]:
        """Return the runs as of the last look, by name; begins another look when it is time.

        Returns:
            The runs, and how far the first look is, such as `1200 of 5000`; "" after it.

        Raises:
            ClientError: the store cannot be read.
        """
        with self._lock:
            due = not self._looking and time.monotonic() >= self._next
            self._looking = self._looking or due
        if due:
            parallel.start(self._look)
        self._first_look.wait(WAIT_S)
        with self._lock:
            if self._error is not None:
                raise self._error
            found = [self._runs[name] for name in sorted(self._runs)]
            if self._first_look.is_set():
                return found, ""
            return found, f"{len(found)} of {self._expected}" if self._expected else "the list"

    def get(self, name: str) -> RunRecord:
        """Return a run as the store has it now.

        Raises:
            ClientError: no run has that name, or the store cannot be read.
        """
        return history.read_run(self.store, name)

    def trials(self) -> dict[str, list[str]]:
        """Return the folders of the trials of each search with Tune, as of the last look."""
        with self._lock:
            return dict(self._trials)

    def _look(self) -> None:
        begun = time.monotonic()
        error = None
        try:
            self._read_changed()
        except ClientError as found:
            error = found
        finally:
            took = time.monotonic() - begun
            with self._lock:
                self._error = error
                self._looking = False
                self._next = time.monotonic() + max(LOOK_S, SHARE * took)
            self._first_look.set()

    def _read_changed(self) -> None:
        seen: dict[str, Seen] = defaultdict(dict)
        trials: dict[str, list[str]] = defaultdict(list)
        for name, listed in self.store.listed().items():
            run, _, file = name.partition("/")
            folder, _, rest = file.partition("/")
            if file in RECORDS:
                seen[run][file] = listed
            elif rest and folder.startswith(CHECKPOINT):
                seen[run][folder] = True
            elif rest == TRIAL_RESULTS:
                trials[run].append(folder)
        found = {run: files for run, files in seen.items() if run_folder.CONFIG in files}
        changed = [run for run, files in found.items() if self._seen.get(run) != files]
        with self._lock:
            self._expected = len(found)
            self._trials = trials
            for run in self._runs.keys() - found.keys():
                del self._runs[run]
        with ThreadPoolExecutor(READERS) as pool:
            for name, record in zip(changed, pool.map(self._read, changed), strict=True):
                with self._lock:
                    if record is None:  # removed meanwhile
                        self._runs.pop(name, None)
                    else:
                        self._runs[name] = record
        self._seen = found

    def _read(self, name: str) -> RunRecord | None:
        return history.tried(self.store, name)[0]
