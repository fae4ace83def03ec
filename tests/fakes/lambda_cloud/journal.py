"""Every request that the fake cloud received, without secrets."""

import threading
import time
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Entry:
    """A request and its answer.

    Attributes:
        operation: name of the client's method, "" for an address that the API does not have.
        status: of the answer, None for as long as there is none, or if none was given.
        code: `error.code` of the answer.
        fault: action of the fault that it met.
        problem: how request or answer break the API's document.
        time: seconds since the epoch at which it arrived.
    """

    method: str
    path: str
    operation: str = ""
    status: int | None = None
    code: str = ""
    fault: str = ""
    problem: str = ""
    time: float = field(default_factory=time.time)


class Journal:
    """The requests in their order. Used by tests and by the server's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def add(self, entry: Entry) -> None:
        with self._lock:
            self._entries.append(entry)

    @property
    def entries(self) -> list[Entry]:
        with self._lock:
            return list(self._entries)

    def of(self, operation: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.operation == operation]

    @property
    def problems(self) -> list[str]:
        """Places where the fake broke the API's document: a test with any of these has failed."""
        return [
            f"{each.method} {each.path}: {each.problem}" for each in self.entries if each.problem
        ]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
