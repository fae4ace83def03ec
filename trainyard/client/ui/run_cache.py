"""The runs of a store, looked at again and again; the first look shows what it has so far."""

import threading
import time
from collections import defaultdict

from trainyard.access import parallel
from trainyard.client import history
from trainyard.client.errors import ClientError
from trainyard.client.history import RunRecord
from trainyard.client.outputs import StackOutputs
from trainyard.client.run_list import RunList
from trainyard.store.objects import Store

LOOK_S = 3.0  # between the end of a look and the next one, at least
SHARE = 4  # and this many times as long as the look took, so that a large store is not always read
WAIT_S = 0.5  # for the first answer, which most stores give within it
TRIAL_RESULTS = "result.json"  # of Tune, in the folder of each trial


class RunCache:
    """The runs of one store; `outputs` are those of its stack."""

    def __init__(self, store: Store, outputs: StackOutputs) -> None:
        """Asks nothing yet."""
        self.store = store
        self.outputs = outputs
        self._lock = threading.Lock()
        self._list = RunList(store)
        self._runs: dict[str, RunRecord] = {}
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
        """Return the folders of the trials of each search with Tune, as the store has them now.

        Raises:
            ClientError: the store cannot be read.
        """
        found: dict[str, list[str]] = defaultdict(list)
        for name in self.store.listed():
            run, _, file = name.partition("/")
            folder, _, rest = file.partition("/")
            if rest == TRIAL_RESULTS:
                found[run].append(folder)
        return found

    def _look(self) -> None:
        begun = time.monotonic()
        error = None
        try:
            self._read()
        except ClientError as found:
            error = found
        finally:
            took = time.monotonic() - begun
            with self._lock:
                self._error = error
                self._looking = False
                self._next = time.monotonic() + max(LOOK_S, SHARE * took)
            self._first_look.set()

    def _read(self) -> None:
        self._expected, found = self._list.look()
        seen: dict[str, RunRecord] = {}
        for run, _ in found:
            if run is not None:
                seen[run.name] = run
                with self._lock:
                    self._runs[run.name] = run
        with self._lock:
            self._runs = seen
