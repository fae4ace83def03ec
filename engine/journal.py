"""The state while an operation runs: every step is recorded before it begins and after it ended.

So a kill at any moment leaves a valid state, in which unfinished steps are pending operations.
Steps that wait at the same time share one write: each costs two waits for the disk.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from engine.state import STACK_TYPE, Entry, State


class Journal:
    """Old entries that are not handled yet, and new ones in the order of their steps.

    Pending operations stay until they are settled. `save` writes durably; None in a preview.
    """

    def __init__(self, state: State, save: Callable[[State], None] | None) -> None:
        self.lock = threading.RLock()
        self._salt = state.salt
        self._save = save
        self._olds = list(state.resources)
        self._news: list[Entry] = []
        self._pending = list(state.pending)
        self._vanished: set[str] = set()
        self._changes = self._written = 0
        self._writing = threading.Lock()

    @property
    def olds(self) -> list[Entry]:
        """Entries that no step has handled yet."""
        with self.lock:
            return list(self._olds)

    @property
    def entries(self) -> list[Entry]:
        """All entries, each after its dependencies."""
        with self.lock:
            return [*self._news, *self._olds]

    def old(self, urn: str) -> Entry | None:
        """The living old entry under the URN."""
        return next((e for e in self.olds if e["urn"] == urn and not e.get("delete")), None)

    def subject(self, entry: Entry) -> Entry | None:
        """The old entry that an operation acted on: of a replacement, the half that has its id."""
        known = (entry["urn"], entry.get("id"))
        return next((e for e in self.olds if (e["urn"], e.get("id")) == known), None)

    def given_again(self, entry: Entry) -> bool:
        """Whether a living resource has the id of an old half, which is gone in that case."""
        if not entry.get("delete"):
            return False
        return any(
            each["urn"] == entry["urn"] and each.get("id") == entry["id"]
            for each in self.entries
            if not each.get("delete") and not each.get("pendingReplacement")
        )

    def new(self, urn: str) -> Entry | None:
        """The entry that this operation recorded under the URN."""
        with self.lock:
            return next((entry for entry in self._news if entry["urn"] == urn), None)

    @contextmanager
    def step(self, kind: str, entry: Entry) -> Iterator[None]:
        """Hold a pending operation (creating, updating, deleting) while the body runs.

        The body records its result before it ends: a change is always in one of the two places.
        """
        operation = {"resource": dict(entry), "type": kind}
        with self.lock:
            self._pending.append(operation)
            self._changes += 1
        self.flush()
        try:
            yield
        finally:
            with self.lock:
                self._pending.remove(operation)
                self._changes += 1

    def settle(self, operation: dict[str, Any]) -> None:
        """Take an operation of an earlier, interrupted run off the list."""
        with self.lock:
            self._pending.remove(operation)
            self._changes += 1

    def record(self, new: Entry, old: Entry | None = None, *, changed: bool = True) -> None:
        """Replace the old entry by the new one, and write the state unless nothing changed."""
        with self.lock:
            if old is not None:
                self._remove(old)
            self._news.append(new)
            self._vanished.discard(new["urn"])
            self._changes += changed or new != old
        if changed:
            self.flush()

    def drop(self, old: Entry, *, changed: bool = True) -> None:
        """Remove the entry of a deleted resource, and write the state unless nothing changed."""
        with self.lock:
            self._remove(old)
            # After a replacement the new resource still has this URN.
            if all(entry["urn"] != old["urn"] for entry in (*self._olds, *self._news)):
                self._vanished.add(old["urn"])
            self._changes += 1
        if changed:
            self.flush()

    def adopt(self, found: Entry, old: Entry | None) -> None:
        """Replace the old entry by a resource that an interrupted create left."""
        with self.lock:
            if old is not None:
                self._remove(old)
            self._olds.append(found)
            self._changes += 1
        self.flush()

    def mark(self, entry: Entry, **fields: Any) -> None:
        with self.lock:
            if any(entry.get(key) != value for key, value in fields.items()):
                entry.update(fields)
                self._changes += 1

    def state(self) -> State:
        with self.lock:
            entries = self.entries
            urns = {entry["urn"] for entry in entries}
            resources = [dict(self._with_live_references(entry, urns)) for entry in entries]
            return State(resources=resources, pending=list(self._pending), salt=self._salt)

    def flush(self) -> None:
        """Return once all changes so far are written, by this thread or by one that wrote later."""
        with self.lock:
            changes = self._changes
        with self._writing:
            if self._save is None or self._written >= changes:
                return
            with self.lock:
                state, changes = self.state(), self._changes
            self._save(state)
            self._written = changes

    def _remove(self, entry: Entry) -> None:
        for entries in (self._olds, self._news):
            for index, held in enumerate(entries):
                if held is entry:
                    del entries[index]
                    return

    def _with_live_references(self, entry: Entry, urns: set[str]) -> Entry:
        """The entry without URNs of removed resources."""
        if not self._vanished:
            return entry
        tidy = dict(entry)
        if "dependencies" in tidy:
            tidy["dependencies"] = [urn for urn in tidy["dependencies"] if urn in urns]
        if "propertyDependencies" in tidy:
            tidy["propertyDependencies"] = {
                key: [urn for urn in sources if urn in urns]
                for key, sources in tidy["propertyDependencies"].items()
            }
        if tidy.get("deletedWith") in self._vanished:
            del tidy["deletedWith"]
        if tidy.get("parent") in self._vanished:
            # Any parent will do until the program registers it again: the stack always exists.
            tidy["parent"] = next(urn for urn in urns if f"::{STACK_TYPE}::" in urn)
        return tidy
