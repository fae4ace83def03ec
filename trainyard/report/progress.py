"""A job's progress: records in its log, sentences for people, with a form that programs parse.

A record is one line, after any prefix that Ray puts before a worker's line:

    progress: epoch 2/3: batch 12 of 40, 3.4 batches/s
    progress: epoch 2 is trained
    Notice: a node of this run is to go; epoch 3 is stored up to batch 12
    Restored from checkpoint s3://ray/first/checkpoint_000002-5d1c: 2 epochs are done, on 10.0.0.5
    Restored from checkpoint s3://ray/...-8a0f: 2 epochs and 12 batches are done, on 10.0.0.5
    Restored on 10.0.0.5 from checkpoint: s3://ray/first/checkpoint_000002-5d1c

The client draws bars from records, and omits those of trained epochs, which a job reports in its
own words; drills follow records (trainyard/client/log_writer.py, trainyard/client/drill/watch.py).
"""

# ruff: noqa: D102 - see the two methods of `Record`

import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from trainyard.tracking.run_folder import PROGRESS_VARIABLE

BAR_INTERVAL_S = 1.0
LINE_INTERVAL_S = 30.0  # for a file or a CI log, to show progress
MARK = "progress: "
LONGEST = 4096  # characters of a line with a record: searching a longer one may take minutes

T = TypeVar("T")


@dataclass(frozen=True)
class Batches:
    """A number of batches is done, of `total`, or None where it is unknown."""

    text: str  # the work on them
    done: int
    total: int | None
    rate: float  # batches a second

    FORM: ClassVar = re.compile(
        rf"{MARK}(.*): batch (\d{{1,9}})(?: of (\d{{1,9}}))?, (\d{{1,9}}\.\d) batches/s"
    )

    @property
    def line(self) -> str:
        """Text for a log: `epoch 1/2: batch 12 of 40, 3.4 batches/s`."""
        of = "" if self.total is None else f" of {self.total}"
        return f"{self.text}: batch {self.done}{of}, {self.rate:.1f} batches/s"

    @property
    def log_line(self) -> str:
        return MARK + self.line

    @classmethod
    def from_groups(cls, text: str, done: str, total: str | None, rate: str) -> Self:
        return cls(text, int(done), None if total is None else int(total), float(rate))

    @property
    def beside_bar(self) -> str:
        """Text for a terminal: `epoch 1/2 batch 12/40 3.4 batches/s`."""
        return f"{self.text} batch {self.done}/{self.total} {self.rate:.1f} batches/s"


@dataclass(frozen=True)
class Epoch:
    """An epoch is trained and passed on to be stored; counted from 0 here, from 1 in the log."""

    number: int

    FORM: ClassVar = re.compile(rf"{MARK}epoch (\d{{1,9}}) is trained")

    @property
    def log_line(self) -> str:
        return f"{MARK}epoch {self.number + 1} is trained"

    @classmethod
    def from_groups(cls, number: str) -> Self:
        return cls(int(number) - 1)


@dataclass(frozen=True)
class Noticed:
    """A node of the run must go, so the current epoch, from 0, is stored up to a batch."""

    epoch: int
    batches: int

    FORM: ClassVar = re.compile(
        r"Notice: a node of this run is to go; epoch (\d{1,9}) is stored up to batch (\d{1,9})"
    )

    @property
    def log_line(self) -> str:
        stored = f"epoch {self.epoch + 1} is stored up to batch {self.batches}"
        return f"Notice: a node of this run is to go; {stored}"

    @classmethod
    def from_groups(cls, epoch: str, batches: str) -> Self:
        return cls(int(epoch) - 1, int(batches))


@dataclass(frozen=True)
class Restored:
    """The run resumes from a checkpoint with some epochs; None if the job does not know them."""

    checkpoint: str  # its address
    epochs: int | None
    node: str  # the address of the worker that reports it
    batches: int = 0  # of the next epoch

    FORM: ClassVar = re.compile(
        r"Restored from checkpoint (\S+): (\d{1,9}) epochs(?: and (\d{1,9}) batches)? are done, "
        r"on (\S+)|Restored on (\S+) from checkpoint: (\S+)"
    )

    @property
    def log_line(self) -> str:
        if self.epochs is None:
            return f"Restored on {self.node} from checkpoint: {self.checkpoint}"
        more = f" and {self.batches} batches" if self.batches else ""
        done = f"{self.epochs} epochs{more} are done"
        return f"Restored from checkpoint {self.checkpoint}: {done}, on {self.node}"

    @classmethod
    def from_groups(cls, *groups: str | None) -> Self:
        checkpoint, epochs, batches, node, other_node, other = groups
        if epochs is None:
            return cls(str(other), None, str(other_node))
        return cls(str(checkpoint), int(epochs), str(node), int(batches or 0))


Record = Batches | Epoch | Noticed | Restored
KINDS: tuple[type[Record], ...] = (Batches, Epoch, Noticed, Restored)


class RecordLine(NamedTuple):
    """A record, and the text before it in its line."""

    before: str
    record: Record


def print_record(record: Record) -> None:
    """Prints a record."""
    print(record.log_line, flush=True)  # noqa: T201 - a job's


def parse(line: str) -> RecordLine | None:
    """Return the record in a line of a log, which others can write too; None if it has none."""
    if len(line) > LONGEST:
        return None
    for kind in KINDS:
        if found := kind.FORM.search(line):
            return RecordLine(line[: found.start()], kind.from_groups(*found.groups()))
    return None


def interval() -> float:
    """Return the seconds between two lines; shorter where the client draws a bar."""
    return BAR_INTERVAL_S if os.environ.get(PROGRESS_VARIABLE) == "1" else LINE_INTERVAL_S


class Progress:
    """Prints the progress of an epoch.

    Prints records for a bar, also of the last batch; otherwise lines. Drills count batches by
    records only: a line is up to half a minute old.
    """

    def __init__(
        self, text: str, batches: float | None, interval_s: float, before: int = 0
    ) -> None:
        self._text = text
        # None or infinite: the number is not known, and no bar is drawn.
        self._all = None if batches is None or math.isinf(batches) else int(batches)
        self._interval_s = LINE_INTERVAL_S if self._all is None else interval_s
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
            print_record(batches)
        else:
            print(batches.line, flush=True)  # noqa: T201 - as above


def count(batches: Iterable[Any]) -> int | None:
    """Return the number of batches of an epoch; None if unknown."""
    try:
        return len(batches)  # type: ignore[arg-type]  # or it has none
    except (TypeError, NotImplementedError):  # a loader of a stream has the method only
        return None


def report_batches(
    batches: Iterable[T],
    text: str,
    interval_s: float | None = None,
    *,
    tells: bool = True,
    total: int | None = None,
    before: int = 0,
) -> Iterator[T]:
    """Passes batches on and prints their progress.

    Args:
        batches: all or the remaining ones of an epoch.
        text: the work on them.
        interval_s: between two lines (default: the client's).
        tells: whether this worker prints; all of them do the same work.
        total: of the epoch, if `batches` does not know it.
        before: number of the epoch's batches done by an earlier start.
    """
    total = count(batches) if total is None else total
    progress = Progress(text, total, interval() if interval_s is None else interval_s, before)
    for batch in batches:
        yield batch
        if tells:
            progress.step()
