"""What a search that was cut off goes on from: its trials' checkpoints, and how far each had come.

Tune keeps the newest checkpoints by what its driver knows; the state in the store, from which the
search goes on, may name an older one, whose trial then fails. So here what is stored decides:
the last state and the one before, which takes its place where it is damaged.
"""

# ruff: noqa: ARG002 - the signature is Tune's

from __future__ import annotations

import json
import re
import time
from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler

from training import signed
from training.housekeeping import housekeeping
from training.objects import Folder, open_url
from training.search_files import StoredSearch

TRIAL = r"[^/]*?_([0-9a-f]+_\d{5})_[^/]*"  # a trial's folder; its id
CHECKPOINT = re.compile(TRIAL + r"/checkpoint_(\d{6})/")
# Tune records a result first, and its checkpoint with the trial's next event: the one before may
# still be what the trial goes on from.
KEPT = 2
RESULTS = "result.json"  # in a trial's folder: one line for each result
PAUSE_SECONDS = 10.0


def newest(state: bytes) -> dict[str, int]:
    """The number of each trial's newest checkpoint in a stored state, by the trial's id."""
    trials = json.loads(state)["trial_data"]  # what is pickled in there stays as it is
    results = [json.loads(metadata)["last_result"] for _, metadata in trials]
    return {
        result["trial_id"]: int(result["checkpoint_dir_name"].rpartition("_")[2])
        for result in results
        if result.get("checkpoint_dir_name")
    }


def trial_id(folder: str) -> str:
    """The id of the trial whose folder has this name, as Tune makes them.

    Raises:
        ValueError: no trial has.
    """
    found = re.fullmatch(TRIAL, folder)
    if found is None:
        raise ValueError(f"no trial has the folder {folder}")
    return found[1]


def reported(folder: Folder, trial_folder: str) -> list[dict[str, Any]]:
    """What a trial has reported, as far as it is stored and can be read.

    Raises:
        StorageError: the store stays away.
    """
    try:
        content = folder.read(f"{trial_folder}/{RESULTS}")
    except FileNotFoundError:  # stored after the state that names the trial
        return []
    whole, _, _ = content.rpartition(b"\n")  # Tune may be writing when it copies the file
    found = []
    for line in whole.splitlines():
        with housekeeping(f"a result of {trial_folder} is not taken into account"):
            found.append(dict(json.loads(line)))
    return found


def prune(folder: Folder, run: str) -> None:
    """Removes what the stored states no longer need.

    Args:
        folder: of the search.
        run: its name.

    Raises:
        SearchError: a state is not ours.
        StorageError: the store stays away.
    """
    states = [newest(each) for each in StoredSearch(folder, run, signed.cluster_key()).states()]
    if not states:
        return
    old = []
    for name in folder.sizes():
        found = CHECKPOINT.match(name)
        if found is None:
            continue
        needed = min(state.get(found[1], 0) for state in states)
        if int(found[2]) <= needed - KEPT:
            old.append(name)
    if old:
        folder.delete(*old)


class Pruning(tune.Callback):
    """Prunes from time to time while the search goes on."""

    def __init__(self, url: str, run: str) -> None:
        """Nothing is removed yet.

        Args:
            url: of the search's folder.
            run: its name.
        """
        self._url = url
        self._run = run
        self._last = 0.0

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Prunes if it is time to; what is kept now is removed the next time."""
        if time.monotonic() - self._last < PAUSE_SECONDS:
            return
        self.prune()
        self._last = time.monotonic()

    def prune(self) -> None:
        """Prunes now."""
        with housekeeping("old checkpoints stay for now"):
            prune(open_url(self._url), self._run)


class Halving(ASHAScheduler):
    """ASHA that knows, in a search that goes on, what its trials had reached before.

    Tune stores no scheduler, and starts one anew (Ray's issue 30838): ASHA would then compare a
    trial only with those that still run, and let the weak ones go on.
    """

    def __init__(self, url: str, **settings: Any) -> None:
        """No trial has reached anything yet.

        Args:
            url: of the search's folder.
            settings: ASHA's own.
        """
        super().__init__(**settings)
        self._url = url

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Takes in what a trial of the stored search had reported.

        Raises nothing: Tune would take that for a search without a state, and begin it anew.
        """
        super().on_trial_add(tune_controller, trial)
        if "training_iteration" not in trial.last_result:
            return
        with housekeeping(f"ASHA does without what trial {trial.trial_id} had reported"):
            for result in reported(open_url(self._url), trial.storage.trial_dir_name):
                # What the trial is to do now was told it then.
                super().on_trial_result(tune_controller, trial, result)
