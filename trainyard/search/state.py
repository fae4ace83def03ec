"""The state to resume an interrupted search from: its trials' checkpoints and progress.

Tune keeps the newest checkpoints that its driver knows; the state in the store, from which the
search resumes, may name an older one, whose trial then fails. So here the stored states decide:
the last one and the previous one, which replaces it if it is damaged.
"""

# ruff: noqa: ARG002 - the signature is Tune's

import json
import re
import time
from typing import Any

from ray import tune
from ray.tune import schedulers

from trainyard.housekeeping import housekeeping
from trainyard.search.files import SearchFiles, StoredSearch
from trainyard.store import signed
from trainyard.store.objects import MOST_STATE_BYTES, Store, open_folder, open_url

TRIAL = r"[^/]*?_([0-9a-f]+_\d{5})_[^/]*"  # a trial's folder; its id
CHECKPOINT = re.compile(TRIAL + r"/checkpoint_(\d{6})/")
# Tune records a result first, and its checkpoint with the trial's next event: the trial may still
# resume from the previous one.
KEPT = 2
RESULTS = "result.json"  # in a trial's folder: one line per result
PAUSE_SECONDS = 10.0


def newest(state: bytes) -> dict[str, int]:
    """Return the number of each trial's newest checkpoint in a stored state, by the trial's id."""
    trials = json.loads(state)["trial_data"]  # pickled parts stay unchanged
    results = [json.loads(metadata)["last_result"] for _, metadata in trials]
    return {
        result["trial_id"]: int(result["checkpoint_dir_name"].rpartition("_")[2])
        for result in results
        if result.get("checkpoint_dir_name")
    }


def trial_id(folder: str) -> str:
    """Return the id of the trial whose folder has this name.

    Raises:
        ValueError: no trial has that folder.
    """
    found = re.fullmatch(TRIAL, folder)
    if found is None:
        raise ValueError(f"no trial has the folder {folder}")
    return found[1]


def stored_reports(folder: Store, trial_folder: str) -> list[dict[str, Any]]:
    """Return a trial's reports that are stored and readable.

    Raises:
        StorageError: the store stays unavailable.
    """
    try:
        content = folder.read(f"{trial_folder}/{RESULTS}", MOST_STATE_BYTES)
    except FileNotFoundError:  # stored after the state that names the trial
        return []
    whole, _, _ = content.rpartition(b"\n")  # Tune may be writing when it copies the file
    found = []
    for line in whole.splitlines():
        with housekeeping(f"a result of {trial_folder} is not taken into account"):
            found.append(dict(json.loads(line)))
    return found


def prune(folder: Store, run: str) -> None:
    """Removes checkpoints of a search that its stored states no longer need.

    Raises:
        JobError: a state is not ours.
        StorageError: the store stays unavailable.
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
    """Prunes from time to time during the search."""

    def __init__(self, url: str, run: str) -> None:
        self._url = url
        self._run = run
        self._last = 0.0

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Prunes if enough time has passed."""
        if time.monotonic() - self._last < PAUSE_SECONDS:
            return
        self.prune()
        self._last = time.monotonic()

    def prune(self) -> None:
        """Prunes now."""
        with housekeeping("old checkpoints stay for now"):
            prune(open_url(self._url), self._run)


class ASHAScheduler(schedulers.ASHAScheduler):
    """Ray's, which also knows the earlier results of a resumed search's trials.

    Tune does not store the scheduler, and starts a new one (Ray's issue 30838): ASHA would then
    compare a trial only with running ones, and let the weak ones go on.
    """

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Adds the earlier reports of a trial of the stored search.

        Raises nothing: Tune would take that for a search without a state, and restart it.
        """
        super().on_trial_add(tune_controller, trial)
        if "training_iteration" not in trial.last_result:
            return
        with housekeeping(f"ASHA misses the earlier reports of trial {trial.trial_id}"):
            for result in reports_of(trial):
                # The returned decision is ignored: the trial got it then.
                super().on_trial_result(tune_controller, trial, result)


def reports_of(trial: Any) -> list[dict[str, Any]]:
    """Return the stored reports of one of Tune's trials.

    Raises:
        StorageError: the store stays unavailable.
    """
    storage = trial.storage
    files = storage.storage_filesystem
    known = isinstance(files, SearchFiles)
    folder = files.search.folder if known else open_folder(files, storage.experiment_fs_path)
    return stored_reports(folder, storage.trial_dir_name)
