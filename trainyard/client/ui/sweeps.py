"""Sweeps: those of Hydra, whose records are files here, and searches with Tune in the store."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainyard.client import fields, history
from trainyard.client.errors import ClientError
from trainyard.client.history import READERS
from trainyard.client.sweep import records
from trainyard.client.sweep.point import settings, values
from trainyard.client.ui.run_cache import TRIAL_RESULTS
from trainyard.json_values import number
from trainyard.store.objects import Store
from trainyard.tracking import run_folder
from trainyard.tracking.run_folder import Goals

DEPTH = 4  # folders below this one: Hydra's default is multirun/DATE/TIME
HYDRA, TUNE = "hydra", "tune"
MOST_POINTS = 2000
MOST_FOLDERS = 20_000  # a working folder may have a data set in it
# Of Tune's results: neither sampled values nor figures of a model.
NOISE = (
    *("time_", "timestamp", "iterations_since", "training_iteration"),
    *("trial_id", "pid", "node_ip", "done", "should_checkpoint"),
)


def listed(here: Path, searches: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Return the sweeps: `kind`, `sweep` (its folder, or run) and `points`, the newest first.

    Hydra's are `here`, and `searches` has the trials of each search with Tune.
    """
    folders = sorted(_folders(here), key=lambda path: -path.stat().st_mtime)
    found = [
        {"kind": HYDRA, "sweep": path.relative_to(here).as_posix(), "points": _count(path)}
        for path in folders
    ]
    return found + [
        {"kind": TUNE, "sweep": run, "points": len(trials)} for run, trials in searches.items()
    ]


def points(
    kind: str, sweep: str, here: Path, store: Store | None, searches: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the points of a sweep, and the goals that rank them, as in the sweep's own report.

    Each of `rows` has `point`, `settings`, `values` and `error`. The sweep is one of `listed`; the
    store has the results of the searches.

    Raises:
        ClientError: it is not one of the listed sweeps, or cannot be read.
    """
    if all((each["kind"], each["sweep"]) != (kind, sweep) for each in listed(here, searches)):
        raise ClientError(f"no sweep is called {sweep[:80]!r} here: choose one of the list")
    if kind == HYDRA:
        return {"rows": _of_hydra(here / sweep), "goals": records.goals(here / sweep)}
    assert store is not None  # noqa: S101 - the searches are in it
    run = history.find_run(store, sweep)
    goals = run.goals if run else {}
    return {"rows": _of_tune(sweep, store, searches[sweep], goals), "goals": goals}


def _of_hydra(folder: Path) -> list[dict[str, Any]]:
    rows = fields.decoded(records.paths(folder)[:MOST_POINTS], _point, _damaged_point)
    return sorted(filter(None, rows), key=lambda row: (len(row["point"]), row["point"]))


def _point(path: Path) -> dict[str, Any] | None:
    if (record := records.read_record(path)) is None:
        return None
    return {
        "point": str(record.number),
        "settings": settings(record.overrides),
        "values": values(record.value),
        "error": record.error or ("" if record.done else "not ended yet"),
    }


def _damaged_point(path: Path, why: str) -> dict[str, Any]:
    return {"point": path.stem, "settings": {}, "values": {}, "error": f"UNREADABLE: {why}"}


def _of_tune(run: str, store: Store, trials: Sequence[str], goals: Goals) -> list[dict[str, Any]]:
    trials = sorted(trials)[:MOST_POINTS]
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(lambda trial: _trial(trial, run, store, goals), trials))


def _trial(name: str, run: str, store: Store, goals: Goals) -> dict[str, Any]:
    error = "no result yet"
    try:
        results = run_folder.whole_records(store.get(f"{run}/{name}/{TRIAL_RESULTS}"))
    except ClientError as found:  # of this trial
        results, error = [], str(found)
    last = results[-1] if results else {}
    config = last.get("config")
    figures = {
        key: value
        for key, value in last.items()
        if number(value) is not None and not key.startswith(NOISE)
    }
    for figure, mode in goals.items():  # of these the best, as in the search's own report
        if (best := run_folder.best(results, {figure: mode})) is not None:
            figures[figure] = best
    return {
        "point": name,
        "settings": config if isinstance(config, dict) else {},
        "values": figures,
        "error": "" if results else error,
    }


def _folders(here: Path) -> Iterator[Path]:
    """Yield the folders of sweeps below a folder; those of Python and git have none."""
    left = MOST_FOLDERS
    for top, names, _ in os.walk(here):
        path = Path(top)
        if records.FOLDER in names:
            yield path
        deep = len(path.relative_to(here).parts) >= DEPTH
        names[:] = [] if deep else [name for name in names if not name.startswith(".")]
        left -= 1 + len(names)
        if left < 0:
            return


def _count(folder: Path) -> int:
    return len(list((folder / records.FOLDER).glob("*.json"))) - 1
