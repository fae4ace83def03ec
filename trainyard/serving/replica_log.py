"""What a replica of a service prints, in the folder of the service's run in the store.

Ray keeps it on the replica's node only, among the files of all workers, until the cluster ends.
Here are the last lines that Python prints, and the errors of Ray Serve's logger, without its line
for each request. `train logs` shows them (trainyard/client/history.py).
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from trainyard import json_values
from trainyard.housekeeping import housekeeping
from trainyard.serving import REPLICA, run_of
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

MOST = 2**20  # characters that are kept
MOST_LOGS = 50  # of a service, the newest
FIRST_S, PAUSE_S = 1.0, 10.0  # until a new line is stored


class ReplicaLog:
    """Takes all lines from now on, as a stream; a thread stores them."""

    def __init__(self, store: Store, service: str, replica: str) -> None:
        """Begins the log of a replica, by its id, and removes old ones of the service."""
        self._store, self._folder = store, f"{run_of(service)}/{run_folder.LOGS}"
        self._name = f"{self._folder}/{REPLICA}{time.strftime('%Y%m%d%H%M%S')}-{replica}.txt"
        self._lines = deque[tuple[int, str]]()
        self._size, self._count, self._stored = 0, 0, 0
        self._begun = ""
        self._lock, self._ends = threading.Lock(), threading.Event()
        handler = logging.StreamHandler(self)
        handler.setLevel(logging.WARNING)
        logging.getLogger("ray.serve").addHandler(handler)
        sys.stdout, sys.stderr = Both(sys.stdout, self), Both(sys.stderr, self)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Takes a text."""
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
            if len(self._begun) > MOST:
                lines, self._begun = [*lines, self._begun[-MOST:]], ""
            for line in lines:
                self._lines.append((math.ceil(time.time()), line))
                self._size += len(line) + 1
                self._count += 1
            while self._size > MOST and len(self._lines) > 1:
                self._size -= len(self._lines.popleft()[1]) + 1

    def flush(self) -> None:
        """Does nothing, as a stream without a buffer."""

    def store(self) -> None:
        """Stores the lines, unless they are stored."""
        with self._lock:
            lines, count = [*self._lines], self._count
        if count == self._stored:
            return
        left = count - len(lines)
        told = [f"[{left} lines before these are left out]"] if left else []
        times = {at: number for number, (at, _) in enumerate(lines, left + 1)}
        notes = {"times": [*times], "lines": [*times.values()], "left": left - len(told)}
        with housekeeping("the store does not have this replica's log"):
            text = "".join(f"{line}\n" for line in (*told, *(line for _, line in lines)))
            self._store.write(self._name, text.encode(errors="replace"))
            self._store.write(run_folder.times_of(self._name), json_values.text(notes).encode())
        self._stored = count

    def end(self) -> None:
        """Stores the last lines."""
        self._ends.set()
        self._thread.join(PAUSE_S)  # or its earlier lines could come last
        if self._begun:
            self.write("\n")
        self.store()

    def _work(self) -> None:
        with housekeeping("old logs of the service stay"):
            found = [name for name in self._store.listed(self._folder) if name.startswith(REPLICA)]
            kept = sorted({name.rpartition(".")[0] for name in found})[-MOST_LOGS:]
            for name in found:
                if name.rpartition(".")[0] not in kept:
                    self._store.delete(f"{self._folder}/{name}")
        self._ends.wait(FIRST_S)
        while not self._ends.is_set():
            self.store()
            self._ends.wait(PAUSE_S)


class Both:
    """A stream whose text goes to a log too."""

    def __init__(self, stream: Any, log: Any) -> None:
        self._stream, self._log = stream, log

    def write(self, text: str) -> int:
        """Takes a text."""
        with suppress(OSError):  # a notebook's recorder has ended
            self._log.write(text)
        self._stream.write(text)  # Ray Serve's own returns nothing
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
