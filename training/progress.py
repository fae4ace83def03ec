"""How far a job is: records in its log, which people read as sentences and programs by their form.

A record is one line, behind whatever Ray puts before a worker's line:

    progress: epoch 2/3: batch 12 of 40, 3.4 batches/s
    progress: epoch 2 is trained
    Notice: a node of this run is to go; epoch 3 is stored up to batch 12
    Restored from checkpoint s3://ray/first/checkpoint_000002-5d1c: 2 epochs are done, on 10.0.0.5
    Restored from checkpoint s3://ray/...-8a0f: 2 epochs and 12 batches are done, on 10.0.0.5
    Restored on 10.0.0.5 from checkpoint: s3://ray/first/checkpoint_000002-5d1c

The client draws bars from records and leaves out that an epoch is trained, which a job says in its
own words; drills follow records (client/console.py, client/drill/watch.py).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from training.run_folder import PROGRESS_VARIABLE

BAR_INTERVAL_S = 1.0
LINE_INTERVAL_S = 30.0  # of a file or a CI's log, which is to show that something is done
MARK = "progress: "
LONGEST = 4096  # characters of a line with a record: forms search a longer one for minutes

T = TypeVar("T")


@dataclass(frozen=True)
class Batches:
    """So many batches are done, of so many; `total` is None where nobody knows."""

    text: str  # what is done with them
    done: int
    total: int | None
    rate: float  # batches a second

    FORM: ClassVar = re.compile(
        rf"{MARK}(.*): batch (\d{{1,9}})(?: of (\d{{1,9}}))?, (\d{{1,9}}\.\d) batches/s"
    )

    @property
    def line(self) -> str:
        """For a log: `epoch 1/2: batch 12 of 40, 3.4 batches/s`."""
        of = "" if self.total is None else f" of {self.total}"
        return f"{self.text}: batch {self.done}{of}, {self.rate:.1f} batches/s"

    @property
    def told(self) -> str:
        """The record's line."""
        return MARK + self.line

    @classmethod
    def of(cls, text: str, done: str, total: str | None, rate: str) -> Self:
        """From the groups of `FORM`."""
        return cls(text, int(done), None if total is None else int(total), float(rate))

    @property
    def beside_bar(self) -> str:
        """For a terminal: `epoch 1/2 batch 12/40 3.4 batches/s`."""
        return f"{self.text} batch {self.done}/{self.total} {self.rate:.1f} batches/s"


@dataclass(frozen=True)
class Epoch:
    """An epoch is trained and handed on to be stored; the first is 0, as people count them 1."""

    number: int

    FORM: ClassVar = re.compile(rf"{MARK}epoch (\d{{1,9}}) is trained")

    @property
    def told(self) -> str:
        """The record's line."""
        return f"{MARK}epoch {self.number + 1} is trained"

    @classmethod
    def of(cls, number: str) -> Self:
        """From the groups of `FORM`."""
        return cls(int(number) - 1)


@dataclass(frozen=True)
class Noticed:
    """A node of the run is to go, so the epoch in hand, from 0, is stored up to a batch."""

    epoch: int
    batches: int

    FORM: ClassVar = re.compile(
        r"Notice: a node of this run is to go; epoch (\d{1,9}) is stored up to batch (\d{1,9})"
    )

    @property
    def told(self) -> str:
        """The record's line."""
        stored = f"epoch {self.epoch + 1} is stored up to batch {self.batches}"
        return f"Notice: a node of this run is to go; {stored}"

    @classmethod
    def of(cls, epoch: str, batches: str) -> Self:
        """From the groups of `FORM`."""
        return cls(int(epoch) - 1, int(batches))


@dataclass(frozen=True)
class Restored:
    """The run goes on from a checkpoint with so many epochs; None where the job does not know."""

    checkpoint: str  # its address
    epochs: int | None
    node: str  # the address of the worker that says so
    batches: int = 0  # of the epoch after them

    FORM: ClassVar = re.compile(
        r"Restored from checkpoint (\S+): (\d{1,9}) epochs(?: and (\d{1,9}) batches)? are done, "
        r"on (\S+)|Restored on (\S+) from checkpoint: (\S+)"
    )

    @property
    def told(self) -> str:
        """The record's line."""
        if self.epochs is None:
            return f"Restored on {self.node} from checkpoint: {self.checkpoint}"
        more = f" and {self.batches} batches" if self.batches else ""
        done = f"{self.epochs} epochs{more} are done"
        return f"Restored from checkpoint {self.checkpoint}: {done}, on {self.node}"

    @classmethod
    def of(cls, *groups: str | None) -> Self:
        """From the groups of `FORM`."""
        checkpoint, epochs, batches, node, other_node, other = groups
        if epochs is None:
            return cls(str(other), None, str(other_node))
        return cls(str(checkpoint), int(epochs), str(node), int(batches or 0))


Record = Batches | Epoch | Noticed | Restored
KINDS: tuple[type[Record], ...] = (Batches, Epoch, Noticed, Restored)


class Found(NamedTuple):
    """A record, and what stands before it in its line."""

    before: str
    record: Record


def tell(record: Record) -> None:
    """Prints a record."""
    print(record.told, flush=True)  # noqa: T201 - a job's


def parse(line: str) -> Found | None:
    """The record in a line of a log, which others can write too; None where it has none."""
    if len(line) > LONGEST:
        return None
    for kind in KINDS:
        if found := kind.FORM.search(line):
            return Found(line[: found.start()], kind.of(*found.groups()))
    return None


def interval() -> float:
    """Seconds between two lines: those of a bar where the client draws one."""
    return BAR_INTERVAL_S if os.environ.get(PROGRESS_VARIABLE) == "1" else LINE_INTERVAL_S


class Progress:
    """Tells how far an epoch is.

    For a bar by records, of the last batch too; else by lines. Drills count batches by records
    only: a line is up to half a minute old.
    """

    def __init__(self, text: str, batches: int | None, interval_s: float, before: int = 0) -> None:
        """Begins an epoch.

        Args:
            text: what is done.
            batches: of the epoch; None where nobody knows, and no bar can be drawn.
            interval_s: between two lines.
            before: so many of the batches were done by an earlier start.
        """
        self._text = text
        self._all = batches
        self._interval_s = LINE_INTERVAL_S if batches is None else interval_s
        self._done = self._before = before
        self._started = self._last = time.monotonic()

    def step(self) -> None:
        """Counts a batch."""
        self._done += 1
        now = time.monotonic()
        bar = self._interval_s < LINE_INTERVAL_S
        if now - self._last < self._interval_s and not (bar and self._done == self._all):
            return
        self._last = now
        rate = (self._done - self._before) / max(now - self._started, 1e-9)
        batches = Batches(self._text, self._done, self._all, round(rate, 1))
        if bar:
            tell(batches)
        else:
            print(batches.line, flush=True)  # noqa: T201 - as above


def count(batches: Iterable[Any]) -> int | None:
    """How many batches an epoch has; None where nobody knows."""
    return len(batches) if isinstance(batches, Sized) else None


def watched(
    batches: Iterable[T],
    text: str,
    interval_s: float | None = None,
    *,
    tells: bool = True,
    total: int | None = None,
    before: int = 0,
) -> Iterator[T]:
    """Passes batches on and tells their progress.

    Args:
        batches: of an epoch, or those that are left of it.
        text: what is done with them.
        interval_s: between two lines; by default what the client asked for.
        tells: whether it is this worker that prints, for all of them do the same.
        total: of the epoch, where `batches` does not know.
        before: so many of the epoch's batches were done by an earlier start.
    """
    total = count(batches) if total is None else total
    progress = Progress(text, total, interval() if interval_s is None else interval_s, before)
    for batch in batches:
        yield batch
        if tells:
            progress.step()
