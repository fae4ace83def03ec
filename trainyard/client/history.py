"""The records of a run in the store, for `train show`; trainyard/client/run_list.py lists runs."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from trainyard import json_values
from trainyard.access.terminal import clean
from trainyard.client import fields
from trainyard.client.errors import ClientError, guess
from trainyard.resume import checkpoint_files
from trainyard.serving import REPLICA, lacking
from trainyard.store.objects import Listed, Store
from trainyard.tracking import log_times, run_folder
from trainyard.tracking.run_folder import Goals

READERS = 8
DIGITS = 4
USUAL = ("loss", "valid_acc", "test_acc")
NO_FIGURES = ("epoch", "step", "time", "minutes")  # columns of rows that tell where they belong
MOST_FIGURES = 6  # in a table
LONGEST_COMMAND = 200  # characters
LONGEST_CELL = 20  # characters of a setting in a table
LEFT_OUT = re.compile(r"\[(\d{1,12}) lines before these are left out\]")  # of a replica's log


class NoTimesError(ClientError):
    """It is not known when the lines of a log were written."""


@dataclass(frozen=True)
class RunRecord:
    """One run, as far as it can be read; in a list of runs some of it stays empty."""

    name: str
    config: dict[str, Any]  # of its last start; the settings of a point of a sweep
    # One record a start: texts `time`, `commit` and `python`; `packages` by name.
    starts: list[dict[str, Any]]
    # One record an epoch, or a row of what was logged in a run without epochs; in a list of runs
    # perhaps only the newest figures.
    metrics: list[dict[str, Any]]
    checkpoint: str | None  # the newest one's address
    fault: str = ""  # the parts that cannot be read
    started: int = 0  # when its newest start began, in ms since 1970; 0 if that is not known
    epochs: int = 0  # number of their records
    # Of figures, whether the most (`max`) or the least (`min`) is best; the first one decides.
    goals: Goals = field(default_factory=dict)
    best: float | None = None  # value of the first goal's figure
    unservable: str = ""  # why `train serve` cannot serve it; not in a list of runs
    # The rows of `trainyard.log`, by step; not in a list of runs.
    logged: list[dict[str, Any]] = field(default_factory=list)
    # Pictures and texts that it has logged: `file`, `step` and `name` of each.
    shown: list[dict[str, Any]] = field(default_factory=list)
    # A record for each (trainyard/tracking/job_record.py); in a list of runs perhaps the newest.
    jobs: list[dict[str, Any]] = field(default_factory=list)
    # Rows of what its jobs have used (trainyard/usage.py); not in a list of runs.
    usage: list[dict[str, Any]] = field(default_factory=list)
    cost: float | None = None  # of all its jobs, in $; None if that is not known
    # Files with the stacks of hangs (trainyard/resume/hangs.py); not in a list of runs.
    hangs: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """How its newest job ended; "" if that is not recorded."""
        found = self.jobs[-1].get("status") if self.jobs else ""
        return found if found in run_folder.ENDS else ""

    @property
    def user(self) -> str:
        """Who submitted its newest job; "" if that is not recorded."""
        return str(self.jobs[-1].get("user") or "")[: fields.LONGEST_ID] if self.jobs else ""


def read_run(store: Store, name: str) -> RunRecord:
    """Return one run; ClientError if no run has that name."""
    run = find_run(store, name)
    if run is None:
        raise no_run(store, name)
    return run


def no_run(store: Store, name: str) -> ClientError:
    """Return the error about a run that a store does not have."""
    near = guess(name, store.folders())
    return ClientError(f"no run is called {name!r} in {store.where}: {near}`train runs` lists them")


def find_run(store: Store, name: str) -> RunRecord | None:
    """Return one run; None if no run has that name.

    Raises:
        ClientError: the name is invalid, or the store cannot be read.
    """
    return _read(store, valid_name(name))


def epochs(run: RunRecord, done: int) -> str:
    """Return a number of epochs of all that a run is to have: `3/10`; the step of one without."""
    if not ("epochs" in run.config or run.epochs):
        step = json_values.number(run.metrics[-1].get("step")) if run.metrics else None
        return "" if step is None else f"step {step:g}"
    return f"{done}/{str(run.config.get('epochs', '?'))[:LONGEST_CELL]}"


def figures(rows: Iterable[Mapping[str, Any]], most: int = MOST_FIGURES) -> list[str]:
    """Return the names of figures in rows of metrics, the most usual ones first."""
    found = Counter(
        name
        for row in rows
        for name, value in row.items()
        if isinstance(value, int | float) and json_values.number(value) is not None
    )
    first = [name for name in USUAL if name in found]
    others = [name for name, _ in found.most_common() if name not in {*USUAL, *NO_FIGURES}]
    return [*first, *others][:most]


def best(run: RunRecord) -> str:
    """Return a run's best value in words, `max valid_acc 0.9712`; "" without one."""
    figure, mode = next(iter(run.goals.items()), ("", ""))
    return "" if run.best is None else clean(f"{mode} {figure} {run.best:.4g}")


def unservable(store: Store, run: str, checkpoint: str, jobs: Sequence[Mapping[str, Any]]) -> str:
    """Return why a run cannot be served, by its records and a checkpoint's manifest; "" if it can.

    `checkpoint` is its name, "" for none.
    """
    job = jobs[-1] if jobs else {}
    if not checkpoint and not job.get("ended"):
        return f"it has no checkpoint yet: `train show {run}` tells how far it is"
    if job.get("answers"):
        return ""
    if not checkpoint:
        return "its script does not define predict(inputs): add it and submit again (docs/serve.md)"
    model = None  # a manifest may be damaged, and the one before not
    with suppress(ClientError):
        content = store.get(f"{run}/{checkpoint}/{checkpoint_files.MANIFEST}") or b""
        model = (json_values.parse_object(content) or {}).get("model")
    return lacking(model) if isinstance(model, dict) else ""


def told(job: Mapping[str, Any]) -> str:
    """Return the record of a job in words: how it ended, how long it took, who ran what."""
    ended = str(job.get("status", "no end is recorded"))
    if job.get("exit"):
        ended += f" (exit code {job['exit']})"
    parts = [ended]
    with suppress(*fields.FAULTS):
        began, end = (fields.milliseconds(job[name]) for name in ("started", "ended"))
        parts.append(f"{(end - began) / 1000:.0f} s")
    if job.get("user"):
        parts.append(f"by {job['user']}")
    if job.get("files"):
        parts.append(f"files: {job['files']}")
    if found := str(job.get("commit") or ""):
        parts.append(f"commit {found.removesuffix(run_folder.DIRTY)[:7]}")
    if found.endswith(run_folder.DIRTY):
        diff = "train pull has the diff" if job.get("diff") else "their diff is not kept"
        count = str(job.get("changed") or "some")[:9]
        parts[-1] += f" with {count} changed file{'' if count == '1' else 's'} ({diff})"
    command = job.get("command")
    said = " ".join(map(str, command)) if isinstance(command, list) else ""
    return clean(f"{', '.join(parts)}; {said[:LONGEST_COMMAND]}")


def stored_log(store: Store, name: str, since: float = 0) -> str | None:
    """Return the log of a run's newest job, or of a job, as far as the store has it; or None.

    `since` is in s since 1970, 0 for all lines; NoTimesError if it is not known which they are.
    """
    jobs = run_folder.whole_records(store.get(f"{name}/{run_folder.JOBS}"))
    of_job = f"/{run_folder.log_of({'job': name})}"
    files = [each for each in store.listed() if each.endswith(of_job)] if not jobs else []
    files += [f"{name}/{run_folder.log_of(job)}" for job in jobs[-1:]]
    content = store.get(files[0]) if files else None
    if content is None:
        return None
    before = lines_before(store, files[0], since, stored=True)
    return "".join(log_times.as_read(content).split("\n", before)[before:])


def replica_logs(
    store: Store, run: str, since: float = 0, seen: dict[str, tuple[Listed, int]] | None = None
) -> Iterator[str]:
    """Yield the logs of a service's replicas, from its run; each line names its replica.

    `since` is as for `stored_log`. With `seen`, which is kept from call to call, only new lines.
    """
    folder, seen = f"{run}/{run_folder.LOGS}", {} if seen is None else seen
    for name, listed in sorted(store.listed(folder).items()):
        last, shown = seen.get(name, (None, 0))
        if name.startswith(REPLICA) and name.endswith(".txt") and listed != last:
            before = lines_before(store, f"{folder}/{name}", since, stored=True)
            *lines, _ = log_times.as_read(store.get(f"{folder}/{name}") or b"").split("\n")
            told = LEFT_OUT.match(lines[0]) if lines else None
            left = int(told[1]) - 1 if told else 0  # the first line stands for them
            replica = name.removesuffix(".txt").rpartition("-")[2]
            new = lines[max(before, shown - left) :]
            seen[name] = listed, left + len(lines)
            yield "".join(f"({REPLICA}{replica}) {line}\n" for line in new)


def lines_before(store: Store, log: str, since: float, *, stored: bool = False) -> int:
    """Return how many lines a log had at a time, in s since 1970; 0 if that is 0.

    `log` is its name in the store. `stored` counts those of the stored log, which lacks the middle
    of a long one. Raises a NoTimesError if it is not known when they were written.
    """
    if not since:
        return 0
    found = log_times.lines_before(store.get(run_folder.times_of(log)), since, stored=stored)
    if found is None:
        raise NoTimesError(
            f"when the lines of {log} were written is not in {store.where}: "
            "leave --since out, or give --tail"
        )
    return found


def rounded(value: Any) -> Any:
    """Return a figure with few digits; other values as they are."""
    return round(value, DIGITS) if isinstance(value, float) else value


def valid_name(name: str) -> str:
    """Return a name that a run can have; ClientError if no run can have it."""
    try:
        return run_folder.check_name(name)
    except ValueError as error:
        raise ClientError(str(error)) from None


def tried(store: Store, name: str) -> tuple[RunRecord | None, ClientError | None]:
    """Return one run, and why it cannot be read; None for each that is missing."""
    try:
        return _read(store, name), None
    except ClientError as error:
        return RunRecord(name, {}, [], [], None, f"cannot be read: {error}"), error


def _read(store: Store, name: str) -> RunRecord | None:
    content = store.get(f"{name}/{run_folder.CONFIG}")
    of_jobs = store.get(f"{name}/{run_folder.JOBS}")
    if content is None and of_jobs is None:
        return None
    faults = []
    config = json_values.parse_object(b"{}" if content is None else content)
    if config is None:
        faults.append(f"{run_folder.CONFIG} is not a JSON object")
    lines: dict[str, list[dict[str, Any]]] = {}
    for file in (run_folder.STARTS, run_folder.METRICS, run_folder.JOBS):
        content = of_jobs if file == run_folder.JOBS else store.get(f"{name}/{file}")
        lines[file] = run_folder.whole_records(content)
        if len(lines[file]) < len((content or b"").splitlines()):
            faults.append(f"{file} is damaged after line {len(lines[file])}")
    starts, started = [_start(record) for record in lines[run_folder.STARTS]], 0
    jobs, metrics = lines[run_folder.JOBS], lines[run_folder.METRICS]
    try:
        if starts or jobs:
            began = starts[-1]["time"] if starts else jobs[-1]["started"]
            started = fields.milliseconds(began)
    except fields.FAULTS as error:
        file = run_folder.STARTS if starts else run_folder.JOBS
        faults.append(f"the time in {file} cannot be read: {fields.reason(error)}")
    folders = store.folders(name)
    (logged, goals, shown), (usage, *_) = (
        run_folder.logged(store, name, each) if each in folders else run_folder.NOTHING_LOGGED
        for each in (run_folder.LOGGED, run_folder.USAGE)
    )
    goals = run_folder.known_goals(starts[-1].get("goals") if starts else None, goals)
    checkpoint = run_folder.newest_checkpoint(folders)
    hangs = store.listed(f"{name}/{run_folder.HANGS}") if run_folder.HANGS in folders else {}
    return RunRecord(
        name=name,
        config=config or (jobs[-1].get("settings") if jobs else None) or {},
        starts=starts,
        metrics=metrics or logged,
        checkpoint=f"{store.where}/{name}/{checkpoint}" if checkpoint else None,
        fault="; ".join(faults),
        started=started,
        epochs=len(metrics),
        goals=goals,
        best=run_folder.best(metrics or logged, goals),
        unservable=unservable(store, name, checkpoint, jobs),
        logged=logged,
        shown=shown,
        jobs=jobs,
        usage=usage,
        cost=run_folder.cost(jobs),
        hangs=[f"{store.where}/{name}/{run_folder.HANGS}/{each}" for each in sorted(hangs)],
    )


def _start(record: dict[str, Any]) -> dict[str, Any]:
    """A start whose texts are texts: a writer of the bucket could store other types."""
    packages = record.get("packages")
    texts = {name: str(record.get(name, "")) for name in ("time", "commit", "python")}
    return record | texts | {"packages": packages if isinstance(packages, dict) else {}}
