"""The records of a run in the store, for `train show`; trainyard/client/run_list.py lists runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainyard import json_values
from trainyard.client import fields
from trainyard.client.errors import ClientError, guess
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

READERS = 8
DIGITS = 4
LONGEST_CELL = 20  # characters of a setting in a table


@dataclass(frozen=True)
class RunRecord:
    """One run, as far as it can be read.

    Attributes:
        name: of the run.
        config: of its last start.
        starts: one record a start: texts `time`, `commit` and `python`; `packages` by name.
        metrics: one record an epoch; in a list of runs perhaps only the newest.
        checkpoint: the newest one's address.
        epochs: number of these records.
        best: the best `valid_acc`; None without one.
        started: when its newest start began, in milliseconds since 1970; 0 if that is not known.
        fault: the parts that cannot be read; "" for a whole run.
    """

    name: str
    config: dict[str, Any]
    starts: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    checkpoint: str | None
    fault: str = ""
    started: int = 0
    epochs: int = 0
    best: float | None = None


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
    """Return a number of epochs of all that a run is to have: `3/10`."""
    return f"{done}/{str(run.config.get('epochs', '?'))[:LONGEST_CELL]}"


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
    if content is None:
        return None
    faults = []
    config = json_values.parse_object(content)
    if config is None:
        faults.append(f"{run_folder.CONFIG} is not a JSON object")
    lines: dict[str, list[dict[str, Any]]] = {}
    for file in (run_folder.STARTS, run_folder.METRICS):
        content = store.get(f"{name}/{file}")
        lines[file] = run_folder.whole_records(content)
        if len(lines[file]) < len((content or b"").splitlines()):
            faults.append(f"{file} is damaged after line {len(lines[file])}")
    starts, started = [_start(record) for record in lines[run_folder.STARTS]], 0
    try:
        started = fields.milliseconds(starts[-1]["time"]) if starts else 0
    except fields.FAULTS as error:
        faults.append(f"the time in {run_folder.STARTS} cannot be read: {fields.reason(error)}")
    checkpoint = run_folder.newest_checkpoint(store.folders(name))
    return RunRecord(
        name=name,
        config=config or {},
        starts=starts,
        metrics=(metrics := lines[run_folder.METRICS]),
        checkpoint=f"{store.where}/{name}/{checkpoint}" if checkpoint else None,
        fault="; ".join(faults),
        started=started,
        epochs=len(metrics),
        best=run_folder.best(metrics),
    )


def _start(record: dict[str, Any]) -> dict[str, Any]:
    """A start whose texts are texts: a writer of the bucket could store other types."""
    packages = record.get("packages")
    texts = {name: str(record.get(name, "")) for name in ("time", "commit", "python")}
    return record | texts | {"packages": packages if isinstance(packages, dict) else {}}
