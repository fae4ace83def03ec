"""A search with Ray Tune for jobs: sampled arguments, ASHA, and a state to resume from."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray import tune
from ray.tune.search import BasicVariantGenerator

from trainyard import job, options, ray_train, search_state, signed, trials
from trainyard.runs import Run
from trainyard.search_files import SearchFiles

OF_THE_MACHINE = ("gpus_per_trial", "cpus_per_trial")  # may change when a search resumes

Check = Callable[[dict[str, Any]], object]


class Space(NamedTuple):
    """What Tune samples, and the goal that determines the best trial."""

    sampled: Mapping[str, Any]
    goal: trials.Goal


def run(
    trial: Callable[[dict[str, Any]], None],
    name: str,
    parser: argparse.ArgumentParser,
    space: Space,
    *,
    epochs: str = "epochs",
    given: Sequence[str] | None = None,
    check: Check | None = None,
) -> None:
    """Runs a search's driver: begins or resumes the search, and shows the best trial.

    Args:
        trial: what each trial runs; it reports `val_accuracy`, `val_loss`, `train_accuracy`,
            `train_loss` and `epoch`.
        name: of the job.
        parser: of the job; `num_samples`, `seed` and those of OF_THE_MACHINE are among its
            arguments.
        space: to search.
        epochs: the argument with the most epochs that a trial gets.
        given: arguments in place of the command line's.
        check: runs on a node before the first trial; its JobError ends the search, whereas that of
            a trial would only end the trial.
    """
    with job.one_message():
        fixed = sorted(options.parse(parser, given).keys() - {*OF_THE_MACHINE})
        _search(trial, space, check, job.begin(name, parser, fixed, given, epochs=epochs))


def _search(
    trial: Callable[[dict[str, Any]], None],
    space: Space,
    check: Check | None,
    begun: tuple[Run, job.Config],
) -> None:
    the_run, config = begun
    # Nodes of one machine share Ray's folders: one that unpacks the job's code replaces this copy.
    os.chdir(tempfile.gettempdir())
    # An interrupted search resumes from its stored state: at most a second old, plus the time to
    # store it.
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")
    ray_train.connect()
    [bundle] = options.workers(config)
    files = SearchFiles(the_run, signed.cluster_key())
    goes_on = files.search.take_up()
    if check is not None:
        _check(check, config, bundle)
    the_run.start(config)
    pruning = search_state.Pruning(the_run.url, the_run.name)
    _, folder = the_run.place  # without s3://, as Tune expects it along with a file system
    trainable = tune.with_resources(trial, bundle)
    if goes_on:
        tuner = tune.Tuner.restore(folder, trainable, storage_filesystem=files)
    else:
        tuner = tune.Tuner(
            trainable,
            param_space=config | dict(space.sampled),
            tune_config=tune.TuneConfig(
                metric=space.goal.metric,
                mode=space.goal.mode,
                num_samples=config["num_samples"],
                scheduler=search_state.Halving(
                    the_run.url, max_t=config["epochs"], grace_period=1, reduction_factor=2
                ),
                search_alg=BasicVariantGenerator(random_state=config["seed"]),
            ),
            run_config=tune.RunConfig(
                name=the_run.name,
                storage_path=str(Path(folder).parent),
                storage_filesystem=files,
                failure_config=tune.FailureConfig(max_failures=1),  # for lost nodes
                callbacks=[trials.TrialLines(config["epochs"], space.goal), pruning],
                verbose=0,
            ),
        )
    found = tuner.fit()
    pruning.prune()
    if fault := trials.finish(the_run, found, space.goal):
        raise job.JobError(fault)


def _check(check: Check, config: job.Config, bundle: Mapping[str, float]) -> None:
    def fault() -> str:
        try:
            check(config)
        except job.JobError as error:
            return str(error)
        return ""

    task = ray.remote(fault).options(num_cpus=bundle.get("CPU", 0))
    if said := str(ray.get(task.remote())):
        raise job.JobError(said)
