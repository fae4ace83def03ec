"""The output of a search with Ray Tune: running trials, table, best trial and picture."""

# ruff: noqa: ARG002, D102, T201 - the methods are Tune's, and a job prints

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from ray import tune
from ray.tune.experiment import Experiment, Trial

from trainyard import job
from trainyard.errors import JobError
from trainyard.housekeeping import housekeeping
from trainyard.report import curves
from trainyard.report.progress import LINE_INTERVAL_S
from trainyard.resume import code_faults
from trainyard.search import best_trial
from trainyard.search import state as search_state
from trainyard.tracking.run_folder import CURVES, Goals, best, best_first
from trainyard.tracking.runs import Run
from trainyard.user_code import is_defined, name_of_main

PAUSE_SECONDS = 10.0  # between two pictures: each stops the search for 0.3 s
TITLES = {"valid_acc": "Valid. Acc.", "valid_loss": "Valid. Loss"}


@dataclass(frozen=True)
class Objective:
    """The sampled arguments of a search, and the figure that determines its best trial."""

    searched: Mapping[str, str]  # the layout of a sampled value in the table, by argument
    figure: str  # `valid_acc` or `valid_loss`
    mode: str  # Tune's: whether the most is best (`max`) or the least (`min`)

    @property
    def metric(self) -> str:
        """The name under which trials report the figure."""
        return "val_accuracy" if self.figure == "valid_acc" else "val_loss"

    def said(self, config: Mapping[str, Any]) -> str:
        """Return a trial's sampled values, for a line."""
        return ", ".join(f"{name} {config[name]:.4g}" for name in self.searched)

    def shown(self, figure: float) -> str:
        """Return an accuracy in %, or a loss."""
        return f"{figure:.3%}" if self.figure == "valid_acc" else f"{figure:.4f}"

    @property
    def goals(self) -> Goals:
        """The goal as runs have it."""
        return {self.figure: self.mode}


class TrialLines(tune.Callback):
    """Prints each sampled configuration once, and a line for each epoch of a trial.

    After half a minute without output, a line reports the progress of the search.
    """

    def __init__(self, epochs: int, goal: Objective) -> None:
        self._epochs = epochs  # the most that a trial gets
        self._goal = goal
        self._sampled: set[str] = set()
        self._printed = time.monotonic()

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Prints the trials sampled since the last step."""
        for trial in trials:
            if trial.trial_id not in self._sampled:
                self._sampled.add(trial.trial_id)
                with housekeeping(f"the values of {_title(trial.trial_id)} are not shown"):
                    self._print(f"{_title(trial.trial_id)}: {self._goal.said(trial.config)}")

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Prints a line about the running search after a while without output."""
        if time.monotonic() - self._printed < LINE_INTERVAL_S:
            return
        self._printed = time.monotonic()  # also if nothing can be shown: it is tried again later
        with housekeeping("the progress of the search is not shown"):
            ended = sum(trial.is_finished() for trial in trials)
            running = sum(trial.status == trial.RUNNING for trial in trials)
            self._print(f"search: {ended} of {len(trials)} trials have ended, {running} run")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        with housekeeping(f"an epoch of {_title(trial.trial_id)} is not shown"):
            self._print(
                f"{_title(trial.trial_id)} | "
                f"Epoch: {result['training_iteration']:03d}/{self._epochs:03d} | "
                f"Valid. Acc.: {result['val_accuracy']:.3%} | Loss: {result['val_loss']:.4f}"
                f"{_mark(result)}"
            )

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._print(f"{_title(trial.trial_id)} failed; the others go on")

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        print(line, flush=True)


def end_trials_at_faults() -> None:
    """Has Tune end a trial at a fault of its code; it would restart the trial as if it were lost.

    Tune 2.60 has no setting for it.
    """
    handle = Trial.handle_error

    def handle_error(trial: Trial, exc: Any = None) -> None:
        cause = getattr(exc, "cause", None)
        if isinstance(cause, JobError) or (cause is not None and code_faults.is_one(cause)):
            trial.max_failures = 0
        handle(trial, exc)

    Trial.handle_error = handle_error  # type: ignore[method-assign, assignment]


def send_by_name() -> None:
    """Has Tune send a script's function by its name, so that a trial has the script too."""
    register, script = Experiment.register_if_needed, name_of_main()  # a search leaves its folder

    def register_by_name(trainable: Any) -> Any:
        own = isinstance(trainable, FunctionType) and trainable.__module__ == "__main__"
        is_named = own and is_defined(trainable.__qualname__)
        return register(job.by_name(trainable, script) if is_named else trainable)

    Experiment.register_if_needed = register_by_name  # type: ignore[method-assign, assignment]


class TrialCurves(tune.Callback):
    """Draws the trials during the search, so that a stopped one has its picture too."""

    def __init__(self, url: str, goal: Objective) -> None:
        self._url = url
        self._goal = goal
        self._trials: dict[str, curves.Trial] = {}
        self._is_drawn = True
        self._last = 0.0

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Notes new trials, and the earlier epochs of resumed ones."""
        for trial in trials:
            if trial.trial_id in self._trials:
                continue
            history: list[dict[str, Any]] = []
            with housekeeping(f"earlier epochs of {_title(trial.trial_id)} are not drawn"):
                if "training_iteration" in trial.last_result:
                    history = [_record(each) for each in search_state.reports_of(trial)]
            values = {name: trial.config.get(name, "-") for name in self._goal.searched}
            number = _number(trial.trial_id)
            self._trials[trial.trial_id] = curves.Trial(number, values, history)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        with housekeeping(f"an epoch of {_title(trial.trial_id)} is not drawn"):
            self._trials[trial.trial_id].history.append(_record(result))
            self._is_drawn = False

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Draws the trials if there are new epochs and enough time has passed."""
        if self._is_drawn or time.monotonic() - self._last < PAUSE_SECONDS:
            return
        self._is_drawn = True
        with housekeeping(f"{CURVES} of the trials is not up to date"):
            drawn = [trial for trial in self._trials.values() if trial.history]
            storage, _, name = self._url.rpartition("/")
            picture = curves.of_search(name, self._goal.goals, drawn)
            Run(storage, name).write(CURVES, picture)
        self._last = time.monotonic()


def finish(run: Run, found: tune.ResultGrid, goal: Objective) -> str:
    """Prints the table and the best trial, and writes the files for `train show` and `train pull`.

    Returns why the search has no best trial; "" if it has one.
    """
    print("  ".join(("trial", *goal.searched, "epochs", goal.figure)))
    # A resumed search has its trials in another order.
    results = sorted(
        (found[index] for index in range(len(found))),
        key=lambda result: _number(search_state.trial_id(Path(result.path).name)),
    )
    histories: list[list[dict[str, Any]]] = []
    for number, result in enumerate(results):
        history: list[dict[str, Any]] = []
        with housekeeping(f"the results of trial {number:05d} are not shown"):
            history = _history(result)
        shown = (
            f"{goal.shown(history[-1][goal.figure]):>9}{_mark(result.metrics)}"
            if history
            else "        -"
        )
        failed = " | failed" if result.error else ""
        config = result.config or {}
        cells = (_cell(config, name, layout) for name, layout in goal.searched.items())
        print("  ".join((f"{number:05d}", *cells, f"{len(history):6d}", f"{shown}{failed}")))
        histories.append(history)
    if not any(histories):
        return f"all {len(found)} trials failed: the log above says why"
    tops = [{goal.figure: best(history, goal.goals)} for history in histories]
    top, figure = next(iter(best_first(tops, goal.goals).items()))
    if figure is None:
        return f"no epoch of the {len(found)} trials has a finite {goal.figure}: lower their rates"
    result = results[top]
    with housekeeping("the search has no checkpoint of its best trial"):
        best_trial.keep(run, Path(result.path).name)
    run.write_metrics(histories[top])
    run.end()  # draws the best trial's curves, which the picture of all then replaces
    with housekeeping(f"{CURVES} of all trials is missing"):
        drawn = [
            curves.Trial(
                f"{number:05d}",
                {name: (results[number].config or {}).get(name, "-") for name in goal.searched},
                history,
            )
            for number, history in enumerate(histories)
            if history
        ]
        run.write(CURVES, curves.of_search(run.name, goal.goals, drawn))
    print(
        f"Best trial: {top:05d} ({goal.said(result.config or {})}), "
        f"{TITLES[goal.figure]}: {goal.shown(figure)}"
        f"{_mark(result.metrics)}"
    )
    print(f"Search completed after {len(found)} trials, {found.num_errors} failed: {run.url}")
    return ""


def _history(result: tune.Result) -> list[dict[str, Any]]:
    """Return one record per epoch, as in trainyard/tracking/run_folder.py."""
    table = result.metrics_dataframe
    if table is None or "val_accuracy" not in table:
        return []
    # In a trial that resumed from its checkpoint, a repeated epoch comes last.
    rows = table.drop_duplicates("epoch", keep="last").to_dict("records")
    generated = {"generated": bool(_mark(result.metrics))}
    return [_record(row | generated) for row in rows]


def _record(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a trial's report as a record of trainyard/tracking/run_folder.py."""
    return {
        "loss": result["train_loss"],
        "epoch": result["epoch"],
        "train_acc": result["train_accuracy"],
        "valid_acc": result["val_accuracy"],
        "valid_loss": result["val_loss"],
        "minutes": result["time_total_s"] / 60,
    } | ({"data": "generated"} if _mark(result) else {})


def _title(trial_id: str) -> str:
    return f"trial {_number(trial_id)}"


def _number(trial_id: str) -> str:
    return trial_id.rpartition("_")[2]


def _cell(config: dict[str, Any], name: str, layout: str) -> str:
    """Return a value of a trial; Tune lacks it if the trial failed before its first report."""
    return f"{f'{config[name]:{layout}}' if name in config else '-':>{len(name)}}"


def _mark(metrics: Mapping[str, Any] | None) -> str:
    return " | generated data" if (metrics or {}).get("generated") else ""
