"""A run's files in the store under `<storage>/<run>/`.

config.json         the job's arguments at the run's last start
starts.jsonl        one line per start: time, arguments, git commit, package versions
metrics.jsonl       one line per epoch
curves.png          figures over the epochs (trainyard/report/curves.py), once the run has ended
jobs.jsonl          one line per job of the run: command, user, start, end, exit code
logs/<job>.txt      a job's log (trainyard/tracking/job_record.py)
logs/<job>.json     when its lines were written (trainyard/tracking/log_times.py)
logs/replica-*      the same of a service's replica (trainyard/serving/replica_log.py)
hangs/<time>.txt    the stacks of all workers when no batch ended (trainyard/resume/hangs.py)
usage/<job>.jsonl   what a job and its machines have used (trainyard/usage.py)
logged/             what processes of the run have logged (trainyard/figures.py)
code/<job>.diff     how files that git tracks differed from the commit, if that is at most 256 KiB
output/             what a job's command has left in $TRAINYARD_OUTPUT
code.signed         a script that answers requests (trainyard/serving/uploaded.py)
checkpoint_*/       the newest few (trainyard/resume/checkpoints.py)
tracking.json       the run of MLflow, if the stack has it (trainyard/tracking/tracking.py)

`<storage>/.trainyard/runs/<run>` is the run in short, for lists of thousands. It is stored when the
run has ended, and removed before the run changes again: while it is there, it says what the run's
own files say. A run that trains or was killed has none.

Jobs reach the store through trainyard/store/objects.py, which waits for an unavailable store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from trainyard import json_values
from trainyard.store.objects import MOST_BYTES, MOST_STATE_BYTES, StorageError, Store, open_folder

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

CONFIG = "config.json"
STARTS = "starts.jsonl"
METRICS = "metrics.jsonl"
JOBS = "jobs.jsonl"
LOGGED = "logged"
USAGE = "usage"
OUTPUT = "output"
CODE = "code"
DIRTY = "-dirty"  # at the end of a commit from which files differ
LOGS = "logs"
HANGS = "hangs"
CURVES = "curves.png"
TRACKED = "tracking.json"
LINES = ".jsonl"  # how a file's name ends
CHECKPOINT = "checkpoint_"  # how the name of a checkpoint's folder begins
CHECKPOINT_FILE = "checkpoint.pt"
ENDS = (SUCCEEDED, FAILED, STOPPED) = ("SUCCEEDED", "FAILED", "STOPPED")  # of a job, as Ray says
MOST_LOGGED = 64  # files that are read: processes of a run
# In the command of a job that stands for a notebook's kernel.
NOTEBOOK = "trainyard.client.notebook"
SILENT_S = 600.0  # without a sign of life, after which a notebook counts as lost
MODES = ("max", "min")  # of a goal: whether the most or the least of a figure is best
MOST_SHOWN = 1000  # pictures and texts that are listed
SHOWN = re.compile(r"[^/]+/(\d{8,15})-([^/]+)\.(?:png|txt)")
MOST_GOALS = 20  # of a run; the first one decides what is best
LONGEST_NAME = 200  # characters of a figure's name
RECORDS = (CONFIG, STARTS, METRICS, JOBS)
SUMMARIES = ".trainyard/runs"  # in the store; no run's name begins with a dot

RUN_VARIABLE = "TRAINYARD_RUN"
COMMIT_VARIABLE = "TRAINYARD_GIT_COMMIT"
STORAGE_VARIABLE = "TRAINYARD_STORAGE_URL"
PROGRESS_VARIABLE = "TRAINYARD_PROGRESS"
NODES_VARIABLE = "TRAINYARD_NODES"  # JSON: what each node declares, by Ray's names

Goals = Mapping[str, str]  # modes by figures
NO_GOALS: Goals = {}

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_name(name: str) -> str:
    """Returns a run's name.

    Raises:
        ValueError: it would not work everywhere as a folder and as an object's prefix.
    """
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(
            f"run name {name[:80]!r} is not 1 to 63 lower-case letters, digits, '.', '_' or '-' "
            "beginning with a letter or digit: choose another name"
        )
    return name


def whole_records(content: bytes | None) -> list[dict[str, Any]]:
    """Return the objects in lines of JSON, up to the first line without one."""
    records: list[dict[str, Any]] = []
    for line in (content or b"").splitlines():
        if (record := json_values.parse_object(line)) is None:
            break
        records.append(record)
    return records


class Logged(NamedTuple):
    """What a run's processes have logged: rows by step, each with `time` in s since 1970; goals.

    Also pictures and texts, each with `file` (its name in the run), `step` and `name`.
    """

    rows: list[dict[str, Any]]
    goals: Goals
    shown: list[dict[str, Any]]


NOTHING_LOGGED = Logged([], NO_GOALS, [])


def logged(store: Store, run: str, folder: str = LOGGED) -> Logged:
    """Return what a run has logged, or what it has used; later starts count more."""
    found: dict[float, dict[str, Any]] = {}
    goals: list[Any] = []
    files = store.listed(f"{run}/{folder}")
    lines = [n for n in sorted(files) if n.endswith(LINES) and files[n].size <= MOST_BYTES]
    for name in lines[-MOST_LOGGED:]:
        for row in whole_records(store.get(f"{run}/{folder}/{name}")):
            if (step := json_values.number(row.get("step"))) is not None:
                found.setdefault(step, {}).update(row)
            elif "goals" in row:
                goals.append(row["goals"])
    matches = [match for name in sorted(files) if (match := SHOWN.fullmatch(name))]
    shown = [
        {"file": f"{LOGGED}/{match[0]}", "step": int(match[1]), "name": unquote(match[2])}
        for match in matches[-MOST_SHOWN:]
    ]
    return Logged([found[step] for step in sorted(found)], known_goals(*goals), shown)


def shown_file(name: Any, step: int, ending: str) -> str:
    """Return the name of a picture's or text's file; ValueError if no file can have it."""
    quoted = str(name).replace("%", "%25").replace("/", "%2F")
    if not is_name(name) or len(quoted.encode()) > LONGEST_NAME or not 0 <= step < 10**15:
        raise ValueError(
            f"{str(name)[:40]!r} at step {step}: names have 1 to {LONGEST_NAME} printable letters, "
            "and steps begin at 0"
        )
    return f"{step:08d}-{quoted}.{ending}"


def is_name(name: Any) -> bool:
    """Return whether a figure may have this name."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()


def known_goals(*found: Any) -> Goals:
    """Return what is a goal in objects that anyone may have written; later ones count more."""
    pairs = [pair for each in found if isinstance(each, dict) for pair in each.items()]
    return dict([pair for pair in pairs if pair[1] in MODES and is_name(pair[0])][:MOST_GOALS])


def newest_checkpoint(folders: Iterable[str]) -> str:
    """Return the last of a run's folders that is a checkpoint's; "" without one."""
    found = (name for name in folders if name.startswith(CHECKPOINT))
    # Ray's own callbacks name theirs by the time, with more of these.
    return max(found, key=lambda name: (name.count("_") == 1, name), default="")


def best_first(rows: Iterable[Mapping[str, Any]], goals: Goals) -> dict[int, float | None]:
    """Return the values of the first goal's figure by the indexes of rows; None is last."""
    figure, mode = next(iter(goals.items()), ("", ""))
    sign = -1 if mode == "max" else 1
    found = {index: json_values.number(row.get(figure)) for index, row in enumerate(rows)}
    return dict(sorted(found.items(), key=lambda e: math.inf if e[1] is None else sign * e[1]))


def best(rows: Iterable[Mapping[str, Any]], goals: Goals) -> float | None:
    """Return the best value of the first goal's figure; None without one."""
    return next(iter(best_first(rows, goals).values()), None)


def is_open_notebook(job: Mapping[str, Any]) -> bool:
    """Return whether a job is a notebook's kernel, of which no cluster knows, and goes on."""
    with suppress(KeyError, TypeError, ValueError):  # a damaged record
        if "ended" not in job and NOTEBOOK in job["command"]:
            seen = datetime.fromisoformat(job.get("seen") or job["started"])
            return (datetime.now(UTC) - seen).total_seconds() < SILENT_S
    return False


def cost(jobs: Iterable[Mapping[str, Any]]) -> float | None:
    """Return what the jobs of a run have cost by their records, in $; None if none knows it."""
    known = [json_values.number(each.get("cost")) or 0.0 for each in jobs]
    return sum(each for each in known if each > 0) or None


def log_of(job: Mapping[str, Any]) -> str:
    """Return the name of a job's log in the folder of its run."""
    return f"{LOGS}/{job.get('job') or 'job'}.txt"


def times_of(log: str) -> str:
    """Return the name of the file that says when the lines of a log were written."""
    return f"{log.removesuffix('.txt')}.json"


def lines(records: Iterable[dict[str, Any]]) -> bytes:
    """Return records as lines of JSON."""
    return "".join(f"{json_values.text(each)}\n" for each in records).encode()


def last(metrics: Sequence[dict[str, Any]], logged: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the newest value of each figure; that of an epoch counts more than a logged one."""
    found: dict[str, Any] = {}
    for row in logged:
        found |= row
    return found | (metrics[-1] if metrics else {})


def sum_up(store: Store, run: str) -> bytes | None:
    """Return a run of a store in short: see RunRecord (trainyard/client/history.py).

    None if a record is damaged, of which a list tells.
    """
    config, *found_others = [store.get(f"{run}/{name}", MOST_STATE_BYTES) for name in RECORDS]
    others = [each or b"" for each in found_others]
    starts, metrics, jobs = found = [*map(whole_records, others)]
    settings = json_values.parse_object(b"{}" if config is None else config)
    if settings is None or sum(map(len, found)) < sum(len(each.splitlines()) for each in others):
        return None
    rows, goals, _ = logged(store, run)
    goals = known_goals(starts[-1].get("goals") if starts else None, goals)
    began = starts[-1]["time"] if starts else jobs[-1]["started"]
    summary = {
        "name": run,
        "config": settings or (jobs[-1].get("settings", {}) if jobs else {}),
        "started": int(datetime.fromisoformat(began).timestamp() * 1000),
        "checkpoint": newest_checkpoint(store.folders(run)),
        "epochs": len(metrics),
        "last": last(metrics, rows),
        "goals": goals,
        "best": best(metrics or rows, goals),
        "cost": cost(jobs),
        "job": {k: v for k, v in jobs[-1].items() if k != "left out"} if jobs else {},
    }
    return json_values.text(summary).encode()


class RunFolder:
    """A run's folder in the store; `storage` is the URL above it, `store` has its files."""

    def __init__(self, storage: str, name: str) -> None:
        """Opens the folder below s3://bucket[/prefix] or file:///folder; nothing is created.

        Raises:
            ValueError: a bad name.
        """
        from pyarrow.fs import FileSystem  # noqa: PLC0415 - the client imports this module too

        self.name = check_name(name)
        self.storage = storage.rstrip("/")
        self._files, root = FileSystem.from_uri(self.storage)
        self._folder = f"{root}/{name}"
        self.store = open_folder(self._files, self._folder)

    @property
    def url(self) -> str:
        """Address of the folder."""
        return f"{self.storage}/{self.name}"

    @property
    def place(self) -> tuple[FileSystem, str]:
        """The folder as pyarrow knows it."""
        return self._files, self._folder

    def config(self) -> dict[str, Any] | None:
        """Return the arguments of the last start, None before the first.

        Raises:
            StorageError: the file is not a configuration.
        """
        text = self.read(CONFIG)
        if text is None:
            return None
        if (found := json_values.parse_object(text)) is None:
            raise StorageError(
                f"{self.url}/{CONFIG} is not a JSON object: restore it, or take another --name"
            )
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """Return one record per epoch, oldest first, up to the first damaged one."""
        return whole_records(self.read(METRICS))

    def read(self, name: str) -> bytes | None:
        """Return one of the run's files; None if it does not exist."""
        return self.store.get(name, MOST_STATE_BYTES)

    def write(self, name: str, content: bytes) -> None:
        """Writes one of the run's files, which appears whole or not at all."""
        self.store.write(name, content)
