"""The runs of a store in short, for lists of thousands of runs.

A list of the summaries of runs that have ended (trainyard/tracking/run_summary.py) says by their
tags which ones are new. Of other runs the files are read. A tag in a bucket is the MD5 of the
content: so summaries are kept in the user's cache, and in the store for users who have none yet,
and one that is not what the list says is not used, whoever wrote it. Files of a folder are read:
that takes no longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainyard import json_values
from trainyard.access import user
from trainyard.client import fields, history
from trainyard.client.errors import ClientError
from trainyard.client.history import READERS, RunRecord
from trainyard.client.store import StackFolder
from trainyard.store.objects import MOST_BYTES, Listed, Store
from trainyard.tracking import run_folder, run_summary

KEPT = ".trainyard/runs.jsonl"  # in the store: summaries of many runs, a line each
FEW = 100  # summaries that are read one by one before those of the store are asked for
MD5_DIGITS = 32


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run in short: see RunRecord, and trainyard/tracking/run_summary.py."""

    name: str
    config: dict[str, Any]
    epochs: int
    last: dict[str, Any]
    best: float | None
    checkpoint: str
    started: int
    fault: str = ""

    @classmethod
    def of(cls, run: RunRecord) -> RunSummary:
        """Return the summary of a run whose files were read."""
        return cls(
            name=run.name,
            config=run.config,
            epochs=len(run.metrics),
            last=run.metrics[-1] if run.metrics else {},
            best=json_values.best(epoch.get("valid_acc") for epoch in run.metrics),
            checkpoint=(run.checkpoint or "").rpartition("/")[2],
            started=run.started,
            fault=run.fault,
        )

    @classmethod
    def parsed(cls, name: str, content: bytes) -> RunSummary | None:
        """Return the summary that the store has of a run; None if it is not one of this run."""
        found = json_values.parse_object(content)
        try:
            if fields.typed(found, "run", str) != name:
                return None
            return cls(
                name=name,
                config=fields.typed(found, "config", dict),
                epochs=int(fields.amount(found, "epochs")),
                last=fields.typed(found, "last", dict),
                best=json_values.number(found["best"]),
                checkpoint=fields.identifier(found, "checkpoint"),
                started=fields.milliseconds(fields.typed(found, "time", str)),
            )
        except fields.FAULTS:
            return None


Found = tuple[RunSummary | None, ClientError | None]


class RunList:
    """Reads the runs of a store, again and again if asked to."""

    def __init__(self, store: Store, stack: str) -> None:
        """Asks nothing yet; `stack` is the name of the store's stack."""
        self._store = store
        self._cache = StackFolder(user.folder("XDG_CACHE_HOME", ".cache") / "trainyard" / "runs")
        self._file = hashlib.sha256(f"{stack} {store.where}".encode()).hexdigest()[:MD5_DIGITS]
        self._kept: dict[str, bytes] = {}  # summaries, by their tags
        self._seen: dict[str, tuple[Listed, RunSummary]] = {}

    def look(self) -> tuple[int, Iterator[Found]]:
        """Return how many runs there may be, and each one as it is read, as `history.tried` does.

        Raises:
            ClientError: the store cannot be listed.
        """
        with ThreadPoolExecutor(1) as pool:
            summaries = pool.submit(self._store.listed, run_summary.FOLDER)
            names = [name for name in self._store.folders() if not name.startswith(".")]
        return len(names), self._all(names, summaries.result())

    def some(self, names: Iterable[str]) -> list[Found]:
        """Return the runs with names that the store has, without a list of all."""
        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(lambda name: self._read(name, Listed(0, "")), names))

    def _all(self, names: list[str], listed: dict[str, Listed]) -> Iterator[Found]:
        tags = {each.tag for each in listed.values() if len(each.tag) == MD5_DIGITS}
        here = self._load(self._cache, self._file, tags)
        there = self._load(self._store, KEPT, tags) if len(tags) > here + FEW else here
        others = []
        for name in names:
            if name in listed and (found := self._known(name, listed[name])):
                yield found, None
            else:
                others.append(name)
        with ThreadPoolExecutor(READERS) as pool:
            yield from pool.map(lambda name: self._read(name, listed.get(name)), others)
        self._kept = {tag: self._kept[tag] for tag in tags & self._kept.keys()}
        if len(self._kept) > here:
            self._save(self._cache, self._file)
        if len(self._kept) > there + FEW:
            self._save(self._store, KEPT)

    def _known(self, name: str, listed: Listed) -> RunSummary | None:
        """Return a summary that need not be asked for."""
        seen = self._seen.get(name)
        if seen is not None and seen[0] == listed:
            return seen[1]
        content = self._kept.get(listed.tag)
        return None if content is None else self._parsed(name, listed, content)

    def _read(self, name: str, listed: Listed | None) -> Found:
        """Read a run that has a summary, or one with None that has not."""
        if listed is not None and listed.size <= run_summary.MOST_BYTES:
            content = b""
            with suppress(ClientError):  # its files say why
                place = f"{run_summary.FOLDER}/{name}"
                content = self._store.get(place, run_summary.MOST_BYTES) or b""
            if found := self._parsed(name, listed, content):
                if _md5(content) == listed.tag:
                    self._kept[listed.tag] = content
                return found, None
        run, error = history.tried(self._store, name)
        return RunSummary.of(run) if run else None, error

    def _parsed(self, name: str, listed: Listed, content: bytes) -> RunSummary | None:
        if found := RunSummary.parsed(name, content):
            self._seen[name] = listed, found
        return found

    def _load(self, place: Store, file: str, tags: set[str]) -> int:
        """Take up kept summaries; return how many of all are known now."""
        if tags - self._kept.keys():
            with suppress(ClientError):
                lines = {_md5(line): line for line in (place.get(file) or b"").split(b"\n")}
                self._kept |= {tag: lines[tag] for tag in tags & lines.keys()}
        return len(tags & self._kept.keys())

    def _save(self, place: Store, file: str) -> None:
        content = b"\n".join(self._kept.values())
        if len(content) <= MOST_BYTES:
            with suppress(ClientError):  # the next one reads them again
                place.write(file, content)


def list_runs(store: Store, stack: str, names: Iterable[str] | None = None) -> list[RunSummary]:
    """Return all runs of a store, or those with names that it has, in short.

    A damaged one says so and does not affect the others.

    Raises:
        ClientError: the store cannot be read.
    """
    runs = RunList(store, stack)
    # Names of jobs come from anyone who submits one.
    known = run_folder.NAME_PATTERN.fullmatch
    found = list(runs.look()[1]) if names is None else runs.some(filter(known, names))
    errors = [error for _, error in found if error is not None]
    if errors and len(errors) == len(found):
        raise errors[0]
    return [run for run, _ in found if run is not None]


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
