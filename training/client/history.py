"""What runs have left in the store: read for `train runs` and `train show`."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from training import run_folder
from training.client.errors import ClientError
from training.client.store import Store

READERS = 8


@dataclass(frozen=True)
class RunRecord:
    """One run: its configuration, one record a start and one an epoch, its newest checkpoint."""

    name: str
    config: dict[str, Any]
    starts: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    checkpoint: str | None


def list_runs(store: Store) -> list[RunRecord]:
    """All runs of a store, by name."""
    with ThreadPoolExecutor(READERS) as pool:
        found = pool.map(lambda name: _read(store, name), store.folders())
        return [run for run in found if run is not None]


def read_run(store: Store, name: str) -> RunRecord:
    """One run.

    Raises:
        ClientError: there is none of that name.
    """
    try:
        run = _read(store, run_folder.check_name(name))
    except ValueError as error:
        raise ClientError(str(error)) from None
    if run is None:
        raise ClientError(f"no run is called {name!r} in {store.url}: `train runs` lists them")
    return run


def _read(store: Store, name: str) -> RunRecord | None:
    config = store.get(f"{name}/{run_folder.CONFIG}")
    if config is None:
        return None
    checkpoints = [each for each in store.folders(name) if each.startswith("checkpoint_")]
    return RunRecord(
        name=name,
        config=json.loads(config),
        starts=_lines(store.get(f"{name}/{run_folder.STARTS}")),
        metrics=_lines(store.get(f"{name}/{run_folder.METRICS}")),
        checkpoint=f"{store.url}/{name}/{checkpoints[-1]}" if checkpoints else None,
    )


def _lines(content: bytes | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (content or b"").splitlines()]
