"""The figures that a program logs, in any of its processes: `trainyard.log(acc=0.9, step=3)`.

They are kept in memory, and a thread stores all of them again and again, in one file for each
process. So the store may be away for a while, and logging never waits for it. Of many rows with the
same names every second one is left out, again and again: curves keep their form, the file its size.
"""

# ruff: noqa: T201 - its lines stand in the job's log

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from trainyard import json_values
from trainyard.housekeeping import reason
from trainyard.shown import Shown
from trainyard.store.objects import Store, open_url
from trainyard.tracking import run_folder
from trainyard.tracking.run_folder import LINES, LOGGED, LONGEST_NAME

MOST_ROWS = 5000  # with the same names
MOST_NAMES = 1000  # in a process
TAKEN = ("step", "time")  # every row has these
PAUSE_S = 0.5  # between two writes, at least
SHARE = 50  # and this many times as long as a write took
END_S = 10.0  # for the last write, when the program ends


@dataclass
class _Series:
    """Rows with the same names: each `every`-th of `count`, and the last."""

    rows: list[bytes | tuple[int, float, dict[str, float]]] = field(default_factory=list)
    every: int = 1
    count: int = 0
    last: tuple[int, float, dict[str, float]] | None = None

    def add(self, row: tuple[int, float, dict[str, float]]) -> None:
        if self.count % self.every == 0:
            self.rows.append(row)
        self.count, self.last = self.count + 1, row
        if len(self.rows) > MOST_ROWS:
            self.rows, self.every = self.rows[::2], 2 * self.every

    def content(self) -> bytes:
        """Return all rows as lines of JSON; each is made once."""
        made = [each if isinstance(each, bytes) else _line(each) for each in self.rows]
        self.rows = [*made]
        last = _line(self.last) if self.last else b""
        return b"".join([*made, *([last] if last != made[-1] else [])])


class Figures:
    """The figures of one process of a run."""

    def __init__(self, store: Store, run: str) -> None:
        self._files = store
        self._file = f"{run}/{LOGGED}/{datetime.now(UTC):%Y%m%d%H%M%S%f}-{os.getpid()}.jsonl"
        self._series: dict[tuple[str, ...], _Series] = {}
        self._names: set[str] = set()
        self._goals = run_folder.NO_GOALS
        self._shown = Shown(self._files, self._file.removesuffix(LINES))
        self._told: set[str] = set()
        self._next = 0
        self._lock = threading.Lock()
        self._new, self._ends = threading.Event(), threading.Event()
        self._caller = threading.current_thread()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def add(self, figures: Mapping[str, Any], step: int | None) -> None:
        """Takes a row; a figure that cannot be kept is left out, and told once."""
        values = dict[str, float]()
        for name, found in figures.items():
            if (kept := self._number(name, found)) is not None:
                values[name] = kept
        if not values:
            return
        with self._lock:
            number = self._next if step is None else int(step)
            self._next = number + 1
            self._series.setdefault(tuple(values), _Series()).add((number, time.time(), values))
            self._caller = threading.current_thread()
        self._wake()

    def goal(self, figure: str, mode: str) -> None:
        """Takes a goal."""
        if self._goals != (found := run_folder.known_goals(self._goals, {figure: mode})):
            self._goals = found
            self._wake()
        elif found.get(figure) != mode:
            told = f"goal {str(mode)[:40]!r} of {str(figure)[:40]!r}: give 'max' or 'min'"
            self.tell("goals", f"{told} of at most {run_folder.MOST_GOALS} names of figures")

    def show(self, name: str, found: Any, step: int | None) -> None:
        """Takes a picture or a text."""
        with self._lock:
            self._shown.add(name, found, max(0, self._next - 1) if step is None else int(step))
            self._caller = threading.current_thread()
        self._wake()

    def _wake(self) -> None:
        if not self._new.is_set():
            self._new.set()
            if self._thread.ident is None:
                self._thread.start()
                atexit.register(self.end)

    def end(self) -> None:
        """Waits until all is stored, for some seconds."""
        self._ends.set()
        self._new.set()
        atexit.unregister(self.end)
        if self._thread.ident is not None:
            self._thread.join(END_S)
        if self._thread.is_alive():
            self.tell(
                "end", f"the store gives no answer for {END_S:g} s: the last figures are lost"
            )

    def _number(self, name: Any, found: Any) -> float | None:
        number: float
        if not isinstance(found, (int, float)) and callable(getattr(found, "item", None)):
            try:
                found = found.item()  # of a tensor or an array with one value
            except (RuntimeError, TypeError, ValueError):
                self.tell(str(name), f"{str(name)[:40]!r} has more than one value: log numbers")
                return None
        if not isinstance(found, (int, float)):
            self.tell(str(name), f"{str(name)[:40]!r} is a {type(found).__name__}: log numbers")
            return None
        number = int(found) if isinstance(found, bool) else found
        if name in self._names:
            return number
        if not run_folder.is_name(name):
            text = f"{str(name)[:40]!r}: names have 1 to {LONGEST_NAME} printable letters"
            self.tell("names", text)
        elif name in TAKEN:
            self.tell(name, f"{name!r} is the name of a column that every row has: take another")
        elif len(self._names) >= MOST_NAMES:
            self.tell("many", f"{name[:40]!r} and more: a process logs at most {MOST_NAMES} names")
        else:
            self._names.add(name)
            return number
        return None

    def tell(self, what: str, text: str) -> None:
        """Print a line, once for what it is about."""
        if what not in self._told and len(self._told) < MOST_NAMES:
            self._told.add(what)
            print(f"trainyard.log: {text}", file=sys.stderr, flush=True)

    def _work(self) -> None:
        while True:
            self._new.wait()
            self._new.clear()
            began = time.monotonic()
            self._store()
            if self._ends.is_set() and not self._new.is_set():
                return
            pause = max(PAUSE_S, SHARE * (time.monotonic() - began))
            until = time.monotonic() + pause
            # A thread that has logged may end with its process soon after, as Ray's workers do.
            while time.monotonic() < until and self._caller.is_alive():
                if self._ends.wait(0.1):
                    break

    def _store(self) -> None:
        with self._lock:
            content = b"".join(each.content() for each in self._series.values())
            if self._goals:
                content = run_folder.lines([{"goals": dict(self._goals)}]) + content
        try:
            self._files.write(self._file, content)
            self._shown.store()
        except Exception as error:  # a training goes on without its figures
            self._new.set()  # to try again
            self.tell("store", f"{reason(error)}; what is logged is stored when it answers again")


def _line(row: tuple[int, float, dict[str, float]]) -> bytes:
    step, moment, values = row
    return f"{json_values.text({'step': step, 'time': round(moment, 3)} | values)}\n".encode()


# Of the latest process (a fork has figures of its own), store and run.
_kept: dict[tuple[int, str | None, str | None], Figures | None] = {}


def finish() -> None:
    """Stores what this process has logged. What it logs next may belong to another run."""
    for (process, *_), each in [*_kept.items()]:
        if each and process == os.getpid():
            each.end()
    _kept.clear()


def begin(store: Store, run: str) -> None:
    """Has this process log into a run that no variables name."""
    finish()
    _kept[(os.getpid(), None, None)] = Figures(store, run)


def keep(work: Callable[[Figures], object]) -> None:
    """Has the figures of this process take something; an error in it ends nothing."""
    storage, run = map(os.environ.get, (run_folder.STORAGE_VARIABLE, run_folder.RUN_VARIABLE))
    of = (os.getpid(), storage, run) if storage and run else (os.getpid(), None, None)
    if of not in _kept:
        finish()
        _kept[of] = Figures(open_url(storage), run) if storage and run else None
        if not (storage and run):
            text = "trainyard.log: no job of Trainyard runs here, so nothing is kept"
            text += '; trainyard.run("NAME") begins a run' if "IPython" in sys.modules else ""
            print(text, file=sys.stderr)
    if kept := _kept.get(of):
        try:
            work(kept)
        except Exception as error:  # a training goes on without its figures
            kept.tell("error", reason(error))
