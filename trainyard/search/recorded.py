"""The driver of a search with Ray Tune: its run, a state to resume from, the table at the end.

A script ends like this::

    if __name__ == "__main__":
        goal = Objective({"lr": ".3g"}, "valid_acc", "max")
        with recorded_search("mine", parser, goal) as search:
            if search.resumes:
                tuner = Tuner.restore(search.folder, trainable, storage_filesystem=search.files)
            else:
                tuner = Tuner(trainable, ..., run_config=RunConfig(storage_filesystem=search.files))
            search.show(tuner.fit())

Trials load the script again, without what is below `if __name__`: pass values from there with
`tune.with_parameters`. A script without this line is sent as Ray sends it.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from ray import tune

from trainyard import job, options, ray_train
from trainyard.search import state as search_state
from trainyard.search import trials
from trainyard.search.files import SearchFiles
from trainyard.store import signed
from trainyard.tracking.runs import Run

OF_THE_MACHINE = ("gpus_per_trial", "cpus_per_trial", "cpu")  # may change when a search resumes

Check = Callable[[job.Config], object]


@dataclass(frozen=True)
class Search:
    """A search that has begun."""

    run: Run
    goal: trials.Objective
    config: job.Config  # values of the arguments
    resources: dict[str, float]  # what each trial gets, by Ray's names
    resumes: bool  # whether the store has a state to resume from
    files: SearchFiles  # the store, where a state is signed and whole (trainyard/search/files.py)
    pruning: search_state.Pruning  # removes old checkpoints

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.run.name

    @property
    def callbacks(self) -> list[tune.Callback]:
        """Callbacks of Tune: they print and draw each epoch, and remove old checkpoints."""
        shown = trials.TrialLines(self.config["epochs"], self.goal)
        return [shown, trials.TrialCurves(self.run.url, self.goal), self.pruning]

    @property
    def folder(self) -> str:
        """The run's folder in `files`."""
        return self.run.place[1]

    @property
    def storage_path(self) -> str:
        """The folder in `files` that has the run's folder."""
        return self.run.storage_path

    def show(self, results: tune.ResultGrid) -> None:
        """Prints the table and the best trial, and writes the files for `train show` and `pull`.

        Raises:
            JobError: no trial has a result.
        """
        self.pruning.prune()
        if fault := trials.finish(self.run, results, self.goal):
            raise job.JobError(fault)


@contextmanager
def recorded_search(
    name: str,
    parser: argparse.ArgumentParser,
    goal: trials.Objective,
    *,
    epochs: str = "epochs",
    check: Check | None = None,
) -> Iterator[Search]:
    """Begins or resumes a search. An error that a user can fix ends the process with one line.

    Trials report `val_accuracy`, `val_loss`, `train_accuracy`, `train_loss` and `epoch`. `epochs`
    is the argument with the most epochs that a trial gets. `check` runs on a node before the first
    trial; its JobError ends the search, whereas that of a trial would only end the trial.
    """
    with job.one_message():
        fixed = sorted(options.parse(parser).keys() - {*OF_THE_MACHINE})
        goals = {goal.figure: goal.mode, goal.metric: goal.mode}
        run, config = job.begin(name, parser, fixed, epochs=epochs, goals=goals)
        trials.send_by_name()
        # Nodes of one machine share Ray's folders: one that unpacks the job's code replaces this
        # copy.
        os.chdir(tempfile.gettempdir())
        # An interrupted search resumes from its stored state: at most a second old, plus the time
        # to store it.
        os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")
        ray_train.connect()
        trials.end_trials_at_faults()
        files = SearchFiles(run, signed.cluster_key())
        resumes = files.search.take_up()
        resources = next(iter(ray_train.resources(config)), {})
        if check is not None:
            _check(check, config, resources.get("CPU", 0))
        run.start(config)
        pruning = search_state.Pruning(run.url, run.name)
        yield Search(run, goal, config, resources, resumes, files, pruning)


def _check(check: Check, config: job.Config, cpus: float) -> None:
    def fault() -> str:
        try:
            check(config)
        except job.JobError as error:
            return str(error)
        return ""

    task = ray.remote(fault).options(num_cpus=cpus)
    if said := str(ray.get(task.remote())):
        raise job.JobError(said)
