"""The record of one job of a run: command, user, start, end, log, and the files that it left."""

# ruff: noqa: T201 - its lines stand in the job's log

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainyard import json_values, yielding
from trainyard.housekeeping import housekeeping
from trainyard.serving.uploaded import MOST_BYTES, keep
from trainyard.store.objects import open_url, regular_files
from trainyard.tracking import cost, run_folder
from trainyard.tracking.log_times import LogTimes
from trainyard.usage import Usage

MOST_OUTPUT = 2 * 2**30  # bytes of $TRAINYARD_OUTPUT that are kept
MOST_WORKING = 50 * 2**20  # and of the working folder, which other jobs may share
MOST_FILES = 1000  # of each
LOG_HEAD, LOG_TAIL = 2**20, 4 * 2**20  # bytes that are kept of a log
YIELD_TAIL = 2**14  # bytes at its end in which a job says that the queue has ended it
LOG = "/proc/self/fd/1"  # Ray has a job's standard output in a file, which is read here
NAMED = 5  # files in a message
COST_S = 600.0  # between two questions of what the job costs: the queue adds up all jobs

Files = Mapping[str, os.stat_result]


class JobRecord:
    """The record of a job of a run; `storage` is the store's URL.

    `job` is Ray's description: its metadata and runtime environment. `log` is the file with its
    log, of a run that is a part of a process.
    """

    def __init__(
        self, storage: str, run: str, command: Sequence[str], job: Mapping[str, Any], log: str = LOG
    ) -> None:
        facts = self._facts = job.get("metadata", {})
        self._usage = Usage(facts.get("job_submission_id", ""))
        self._environment = job.get("runtime_env", {})
        self._log, self._times = log, LogTimes()
        self._is_notebook = run_folder.NOTEBOOK in command
        self._run, self._store, self._logged = run, open_url(storage), -1
        self._asked = time.monotonic()  # what it costs
        self._record: dict[str, Any] = {
            "job": facts.get("job_submission_id", ""),
            "command": list(command),
            **{name: facts.get(name, "") for name in ("user", "commit", "changed", "diff")},
            "upload": self._environment.get("working_dir", ""),
            "settings": json_values.parse_object(facts.get("settings", "{}")) or {},
            "node": socket.gethostname(),
            "started": _now(),
        }

    def begin(self, files: Files) -> None:
        """Records the start and the code; what sums up an earlier job of the run goes.

        `files` are those of the working folder, with their status, if it was uploaded.
        """
        # Not for a part of a process, which the thread would outlive, nor for a kernel's recorder.
        if self._log == LOG and not self._is_notebook:
            self._usage.start()
        self._store.delete(f"{run_folder.SUMMARIES}/{self._run}")
        self._write()
        command, (names, _) = self._record["command"], _fitting(files, MOST_BYTES)
        if found := keep(self._store, self._run, command, Path.cwd(), names, self._environment):
            self._record["answers"] = found  # requests
            self._write()

    def stopping(self) -> None:
        """Records that the job is told to stop: Ray may kill it before its command has ended."""
        self._record |= {"ended": _now(), "status": run_folder.STOPPED}
        self._write()
        self._note_cost()

    def look(self) -> None:
        """Notes the time if the log has grown."""
        with suppress(OSError), open(self._log, "rb") as log:  # noqa: PTH123 - as below
            if log.seekable():
                self._times.look(log)

    def log(self) -> None:
        """Stores what the job uses and costs, and its log without its middle where it is long.

        And that a notebook goes on, since no cluster knows of it.
        """
        if self._is_notebook and "ended" not in self._record:
            self._record["seen"] = _now()
            self._write()
        if time.monotonic() - self._asked > COST_S:
            self._note_cost()
        if rows := [*self._usage.rows]:
            name = f"{self._run}/{run_folder.USAGE}/{self._record['job'] or 'job'}.jsonl"
            self._store.write(name, run_folder.lines(rows))
        try:
            with open(self._log, "rb") as log:  # noqa: PTH123 - a path of the kernel
                size = os.fstat(log.fileno()).st_size
                if size == self._logged or not log.seekable():
                    return
                content = log.read(LOG_HEAD + LOG_TAIL)
                if size > len(content):
                    left = size - LOG_HEAD - LOG_TAIL
                    log.seek(-LOG_TAIL, os.SEEK_END)
                    middle = f"\n[{left:,} bytes of the log are left out here]\n".encode()
                    content = content[:LOG_HEAD] + middle + log.read(LOG_TAIL)
                self._times.look(log)  # last: it counts no fewer lines than are stored
        except OSError:  # standard output is not a file
            return
        name = f"{self._run}/{run_folder.log_of(self._record)}"
        self._store.write(name, content)
        self._store.write(
            run_folder.times_of(name), self._times.record(content, content[:LOG_HEAD])
        )
        self._logged = size

    def end(self, code: int, output: Path, made: Files) -> None:
        """Records the end, then what the command has left in the folder of $TRAINYARD_OUTPUT.

        The exit code is below 0 for a signal. `made` are files of the working folder that the
        command has made or changed, with their status.
        """
        ended = run_folder.FAILED if code else run_folder.SUCCEEDED
        if code and self._is_told_to_yield():
            ended = run_folder.STOPPED
        status = self._record.get("status", ended)
        self._record |= {"ended": _now(), "exit": code, "status": status}
        if code == -signal.SIGKILL:
            last = [{}, *self._usage.rows][-1]
            for name in (each for each in last if f"{each} size" in last):
                used, size = last[name] / 2**30, last[f"{name} size"] / 2**30
                print(f"killed: {name} {used:.1f} of {size:.1f} GiB in use", flush=True)
        self._write()
        self._note_cost()
        self.log()
        kept, left = _fitting(dict(regular_files(output)), MOST_OUTPUT)
        more, others = _fitting(made, MOST_WORKING)
        self._upload(output, kept)
        self._upload(Path.cwd(), [name for name in more if name not in kept])
        if names := [*kept, *more]:
            self._record["files"] = len(names)
            print(f"kept {_named(names)}: train pull {self._run}", flush=True)
        if left or others:
            self._record["left out"] = [*left, *others][:MOST_FILES]
            print(
                f"left out of the run: {_named([*left, *others])}; it takes {MOST_FILES} files and "
                f"{MOST_OUTPUT >> 30} GiB of $TRAINYARD_OUTPUT, and {MOST_WORKING >> 20} MiB of "
                "the working folder",
                flush=True,
            )
        self._write()
        self.log()
        if summary := run_folder.sum_up(self._store, self._run):
            self._store.write(f"{run_folder.SUMMARIES}/{self._run}", summary)

    def _is_told_to_yield(self) -> bool:
        with suppress(OSError), open(self._log, "rb") as log:  # noqa: PTH123 - as above
            log.seek(max(0, os.fstat(log.fileno()).st_size - YIELD_TAIL))
            return yielding.is_said(log.read().decode(errors="replace"))
        return False

    def _note_cost(self) -> None:
        self._asked = time.monotonic()
        if found := cost.so_far(self._facts, self._run):
            self._record["cost"] = round(found, 4)
            self._write()

    def _upload(self, folder: Path, names: Iterable[str]) -> None:
        for name in names:
            with housekeeping(f"{name} is not kept"), (folder / name).open("rb") as file:
                self._store.upload(f"{self._run}/{run_folder.OUTPUT}/{name}", file)

    def _write(self) -> None:
        name = f"{self._run}/{run_folder.JOBS}"
        earlier = run_folder.whole_records(self._store.get(name))
        others = [each for each in earlier if each.get("job") != self._record["job"]]
        self._store.write(name, run_folder.lines([*others, self._record]))


def _fitting(files: Files, most: int) -> tuple[list[str], list[str]]:
    """Return Python's files and the smallest that fit into a number of bytes, and the others."""
    kept, left, room = list[str](), list[str](), most
    order = sorted(files.items(), key=lambda f: (not f[0].endswith(".py"), f[1].st_size, f[0]))
    for name, status in order:
        fits = status.st_size <= room and len(kept) < MOST_FILES
        room -= status.st_size * fits
        (kept if fits else left).append(name)
    return kept, left


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
