"""The runs of a store, for lists of thousands of them.

A run that has ended well has a summary (trainyard/tracking/run_folder.py). The files of others are
read, by an open page only if they have changed. In a bucket thousands of summaries take long to
read, too. So the store has a copy of many in one object, which a client writes that had to read
them. The list of the summaries gives a tag of each, the MD5 of its content: what has none of these
tags is not used, whoever wrote the copy and when.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from trainyard import json_values
from trainyard.client import fields, history
from trainyard.client.errors import ClientError
from trainyard.client.history import READERS, RunRecord
from trainyard.store.objects import MOST_BYTES, Listed, Store
from trainyard.tracking import run_folder
from trainyard.tracking.run_folder import SUMMARIES

KEPT = ".trainyard/runs.jsonl"  # in the store: the copy, a line for each run
LONGEST = 2**16  # bytes of a summary; a run with a longer one has its files read
FEW = 50  # summaries that are read one by one, without the copy
NO_MARKS: Mapping[str, Mapping[str, object]] = {}
UNLISTED = Listed(0, "")  # of a run whose summary is asked for by name

Found = tuple[RunRecord | None, ClientError | None]


class RunList:
    """Reads the runs of a store, again and again if asked to."""

    def __init__(self, store: Store) -> None:
        """Asks nothing yet."""
        self._store = store
        self._seen: dict[str, tuple[Listed, bytes, RunRecord]] = {}
        # Without a summary: what its files were before they were read, and what they said.
        self._others: dict[str, tuple[Mapping[str, object], RunRecord]] = {}
        self._many = False

    def look(self, names: Sequence[str] | None = None) -> tuple[int, Iterator[Found]]:
        """Return the number of folders, and each run as it is read, as `history.tried` does.

        With names only these are looked for, without a list of all.

        Raises:
            ClientError: the store cannot be listed.
        """
        if names is not None:
            return len(names), self._all(names, dict.fromkeys(names, UNLISTED))
        marks = self._marks() if self._many else {}
        listed = self._store.listed(SUMMARIES)
        names = [name for name in self._store.folders() if not name.startswith(".")]
        return len(names), self._all(names, {n: listed[n] for n in names if n in listed}, marks)

    def _marks(self) -> dict[str, dict[str, object]]:
        """Return what tells whether a run's files have changed, by run."""
        found: dict[str, dict[str, object]] = defaultdict(dict)
        for name, listed in self._store.listed().items():
            run, _, file = name.partition("/")
            folder, _, rest = file.partition("/")
            if file in run_folder.RECORDS or folder == run_folder.LOGGED:
                found[run][file] = listed
            elif rest and folder.startswith(run_folder.CHECKPOINT):
                found[run][folder] = True
        return found

    def _all(
        self,
        names: Sequence[str],
        listed: Mapping[str, Listed],
        marks: Mapping[str, Mapping[str, object]] = NO_MARKS,
    ) -> Iterator[Found]:
        self._seen = {n: seen for n, seen in self._seen.items() if seen[0] == listed.get(n)}
        if len(listed) > len(self._seen) + FEW:
            self._load(listed)
        known = list(self._seen.values())
        yield from ((summary, None) for _, _, summary in known)
        others = [name for name in names if name not in self._seen]
        same = {
            name: kept
            for name, kept in self._others.items()
            if name not in listed and name in marks and kept[0] == marks[name]
        }
        yield from ((same[name][1], None) for name in others if name in same)
        read = [name for name in others if name not in same]
        with ThreadPoolExecutor(READERS) as pool:
            for name, found in zip(
                read, pool.map(lambda name: self._read(name, listed.get(name)), read), strict=True
            ):
                yield found
                if found[0] is not None and found[1] is None and name in marks:
                    same[name] = marks[name], found[0]
        self._others = same
        # The list of all files is longer than a few runs are to read.
        self._many = len(others) > max(FEW, len(names) // 8)
        if len(self._seen) > len(known) + FEW:
            self._save()

    def _read(self, name: str, listed: Listed | None) -> Found:
        if listed is not None and listed.size <= LONGEST:
            with suppress(ClientError):  # then its files say why
                content = self._store.get(f"{SUMMARIES}/{name}", LONGEST)
                if content and (found := self._taken(name, listed, content)):
                    return found, None
        return history.tried(self._store, name)

    def _taken(self, name: str, listed: Listed, content: bytes) -> RunRecord | None:
        if found := self._parsed(name, content):
            self._seen[name] = listed, content, found
        return found

    def _parsed(self, name: str, content: bytes) -> RunRecord | None:
        """Return what a summary says; None if it is not one of this run."""
        found = json_values.parse_object(content)
        if found is None or found.get("name") != name:
            return None
        try:
            checkpoint = fields.identifier(found, "checkpoint")
            return RunRecord(
                name=name,
                config=fields.typed(found, "config", dict),
                starts=[],
                metrics=[last] if (last := fields.typed(found, "last", dict)) else [],
                checkpoint=f"{self._store.where}/{name}/{checkpoint}" if checkpoint else None,
                started=int(fields.amount(found, "started", fields.LATEST_MS)),
                epochs=int(fields.amount(found, "epochs")),
                goals=run_folder.known_goals(found.get("goals")),
                best=json_values.number(found.get("best")),
                cost=json_values.number(found.get("cost")),
                jobs=[job] if (job := fields.typed(found, "job", dict)) else [],
            )
        except fields.FAULTS:
            return None

    def _load(self, listed: Mapping[str, Listed]) -> None:
        with suppress(ClientError):  # then each is read
            kept = {_md5(line): line for line in (self._store.get(KEPT) or b"").split(b"\n")}
            for name in listed.keys() - self._seen.keys():
                if content := kept.get(listed[name].tag):
                    self._taken(name, listed[name], content)

    def _save(self) -> None:
        kept = [
            content for listed, content, _ in self._seen.values() if _md5(content) == listed.tag
        ]
        content = b"\n".join(kept)
        if 0 < len(content) <= MOST_BYTES:
            with suppress(ClientError):  # the next look reads them again
                self._store.write(KEPT, content)


def list_runs(store: Store, names: Iterable[str] | None = None) -> list[RunRecord]:
    """Return all runs of a store, or those with names that it has, in short.

    A damaged one says so and does not affect the others.

    Raises:
        ClientError: the store cannot be read.
    """
    # Names of jobs come from anyone who submits one.
    known = run_folder.NAME_PATTERN.fullmatch
    found = list(RunList(store).look(None if names is None else list(filter(known, names)))[1])
    errors = [error for _, error in found if error is not None]
    if errors and len(errors) == len(found):
        raise errors[0]
    return [run for run, _ in found if run is not None]


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
