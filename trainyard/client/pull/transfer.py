"""One pass of a pull: brings the files of a run that this machine lacks.

    results/first/config.json …                    as in the store
    results/first/checkpoint_000003-5d1c/          the newest valid one, unpacked, with a manifest
    results/first/.checkpoint_000004-77ab.part/    while it comes

The folder above the runs is a store itself: a stack with this storage goes on with them.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trainyard.client.console import warn
from trainyard.client.errors import ClientError
from trainyard.client.pull import marks, records
from trainyard.client.pull.newest import Newest
from trainyard.client.pull.source import RunSource
from trainyard.client.store_errors import AwayError
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

LOCK = ".pull.lock"


@dataclass(frozen=True)
class Pulled:
    """The result of a pass."""

    records: int  # number of new or changed files outside checkpoints
    checkpoint: str  # name of the newest valid one; "" where the run has none yet
    transfer: str  # of the checkpoint, as "512 MB, 210 MB/s"; "" if it was here

    @property
    def brought(self) -> bool:
        """Whether anything was new."""
        return bool(self.records or self.transfer)


class Transfer:
    """Brings one run to a folder of this machine, pass by pass."""

    def __init__(self, store: Store, run: str, folder: Path) -> None:
        """Asks nothing yet; the first pass makes the folder of this run."""
        self._store = store
        self._run = run
        self._folder = folder
        self._source = RunSource(store, run)
        self._newest = Newest(self._source, folder)

    def run(self) -> Pulled | None:
        """Does one pass; returns None if the store has no run of this name.

        Raises:
            ClientError: the store went away, the folder cannot be written, has no room or another
                run of this name, or none of the run's checkpoints is valid. Complete files stay.
        """
        try:
            if not self._source.sizes():
                return None
            with self._locked():
                self._check_identity()
                pulled = Pulled(records.pull(self._source, self._folder), *self._newest.pull())
        except AwayError as error:
            if not self._source.answered:
                raise
            raise ClientError(
                f"{error}; received files are kept in {self._folder}: the same command goes on"
            ) from None
        except FileNotFoundError as error:
            raise ClientError(f"{error} was removed during the pull: pull again") from None
        except OSError as error:
            raise ClientError(
                f"cannot write to {error.filename or self._folder} ({error.strerror}): make room "
                "there or give yourself the folder, then pull again; or give another with --to"
            ) from None
        self._mark(pulled)
        return pulled

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps a second pull of the run out of the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ClientError(
                    f"another `train pull` writes to {self._folder}: let it end, or give another "
                    "folder with --to"
                ) from None
            yield

    def _check_identity(self) -> None:
        """Refuses to mix two runs of one name: runs of a stack that is gone cannot come back."""
        marks = {run_folder.STARTS: "time", run_folder.JOBS: "job"}  # of their first records
        both = [f for f in marks if (self._folder / f).exists() and f in self._source.files]
        if not both:
            return
        contents = (self._folder / both[0]).read_bytes(), self._source.read(both[0])
        first, there = (
            [record.get(marks[both[0]]) for record in run_folder.whole_records(content)[:1]]
            for content in contents
        )
        if first != there:
            raise ClientError(
                f"{self._folder} has another run of the name {self._run!r}, which began at another "
                "time: move it away, or give another folder with --to"
            )

    def _mark(self, pulled: Pulled) -> None:
        """Marks the run in the store as pulled; a failure of that does not fail the pull."""
        metrics = self._folder / run_folder.METRICS
        content = metrics.read_bytes() if metrics.exists() else b""
        epochs = len(run_folder.whole_records(content))
        mark = marks.PullMark(pulled.checkpoint, epochs, marks.inner(self._source.files))
        try:
            if marks.read(self._store, self._run) != mark:
                self._source.write(marks.MARK, mark.dump())
        except ClientError as error:
            warn(f"warning: the store does not know that run {self._run} was pulled: {error}")
