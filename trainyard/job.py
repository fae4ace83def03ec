"""The parts of a job besides training: start or resume, fail together, report, end.

A job has an argparse parser at its top, a function for the workers and a driver::

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20, help="epochs in all")

    def train_worker(session: job.Session) -> None: ...

    if __name__ == "__main__":
        job.run(train_worker, JOB, parser, goals={"valid_acc": "max"})

`train new NAME` writes one to start from.
"""

# ruff: noqa: T201 - a job prints

import argparse
import importlib
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import ray
import torch
from ray import train
from ray.train import TrainingFailedError
from ray.train.torch import TorchTrainer, get_device
from ray.train.v2.api.config import ScalingConfig
from ray.util import get_node_ip_address
from torch import distributed

from trainyard import options, ray_train
from trainyard.counted_gpus import torch_config
from trainyard.epochs import Totals
from trainyard.errors import JobError
from trainyard.housekeeping import housekeeping
from trainyard.json_values import plain
from trainyard.report import progress
from trainyard.resume import checkpoint_files as files
from trainyard.resume import checkpoints, code_faults, epoch_position, hangs
from trainyard.resume import optimizer_settings as settings
from trainyard.resume.epoch_position import Position
from trainyard.resume.notices import Notices
from trainyard.store.objects import StorageError
from trainyard.tracking import run_folder
from trainyard.tracking.run_folder import NO_GOALS, Goals
from trainyard.tracking.runs import Run
from trainyard.user_code import load_script, name_of_main

__all__ = [
    "JobError",
    "Session",
    "begin",
    "fit",
    "is_done",
    "one_message",
    "recorded_run",
    "run",
    "say_completed",
]

Config = dict[str, Any]
T = TypeVar("T")
_ASKED = "asked"
RAYS_LOG_OF_ERRORS = "ray.train.v2._internal.util"
RESERVED = {"job", "run", "storage"}  # in a job's configuration, next to its arguments
RESIZE_S = 60.0  # between two looks for room for more workers, if a job takes more
OWN = ("history", _ASKED, "position")  # in a checkpoint, next to its parts


class Part(Protocol):
    """A part of a checkpoint: a module, an optimizer, a scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object:
        """Loads them."""


class Session:
    """One worker's part of a run; each worker has one.

    Attributes:
        config: the job's arguments.
        rank: of this worker; 0 prints and writes.
        world: number of workers.
        device: of this worker.
        history: one record for each epoch that is done; at first those of the checkpoint.
    """

    def __init__(self, config: Config) -> None:
        """Begins with no epoch done; `config` has the job's arguments, `storage` and `run`."""
        context = train.get_context()
        self.config = config
        self.rank: int = context.get_world_rank()
        self.world: int = context.get_world_size()
        self.device: torch.device = get_device()
        self.history: list[dict[str, Any]] = []
        self.run = Run(config["storage"], config["run"])
        self._started = 0.0  # of the run's epochs, by the monotonic clock
        self._parts: dict[str, Part] = {}
        self._asked: settings.Settings = {}  # of the parts that this start made
        self._loads = False  # whether saved state is known to load
        self._description: dict[str, Any] = {"job": config.get("job", "")}
        self._position: Position | None = None  # where an earlier start left an epoch
        self._notices = Notices(self.rank, self.world)

    def together(self, work: Callable[[], T]) -> T:
        """Does work that may fail on only one worker, such as loading data. Each worker calls it.

        Raises:
            JobError: that of any worker, on all of them: otherwise the others would wait for the
                one that ended.
        """
        try:
            outcome: T | JobError = work()
        except JobError as error:
            outcome = error
        faults = [""] * self.world
        fault = str(outcome) if isinstance(outcome, JobError) else ""
        distributed.all_gather_object(faults, fault)
        if isinstance(outcome, JobError) or any(faults):
            checkpoints.settle()
            distributed.barrier()  # the first error ends all workers
            raise JobError(max(faults))
        return outcome

    def restore(self, **parts: Part) -> None:
        """Loads the run's last valid checkpoint, if it has one, and the records of its epochs.

        The parts are named as in `report`, and are also stored when a node of the run must go.
        What this start asks of an optimizer takes precedence
        (trainyard/resume/optimizer_settings.py).

        Raises:
            CheckpointError: checkpoints exist and none is valid.
            JobError: the job has a part that the checkpoint does not.
        """
        start = {"epochs": self.config.get("epochs", 0), "workers": self.world}
        start["batch_size"] = batch_size = self.config.get("batch_size")
        self._parts, self._asked = (
            parts,
            settings.current_settings(parts) | {settings.START: [start]},
        )
        made = settings.schedulers(parts)
        with checkpoints.restore_newest(_check_state) as folder:
            if folder is None:
                return
            state = files.load(folder / run_folder.CHECKPOINT_FILE, self.device)
            self._description = files.model(folder)
        if missing := parts.keys() - state.keys():
            raise JobError(
                f"checkpoint {folder.name} has no {', '.join(sorted(missing))}: the job was "
                "changed since; take another --name, or the job as it was"
            )
        for name, part in parts.items():
            part.load_state_dict(state[name])
        then = state.get(_ASKED, {})
        settings.apply(parts, then, self._asked, made)
        self.history = state["history"]
        done, earlier = len(self.history), then.get(settings.START, [start])[0]
        if start["epochs"] > earlier["epochs"]:  # a schedule may be too short
            is_like_it = earlier | {"epochs": start["epochs"]} == start and "position" not in state
            settings.check_length(parts, start["epochs"] / done - 1 if done and is_like_it else 0.0)
        left = Position(**state["position"]) if "position" in state else None
        if left is not None and (len(left.workers), left.batch_size) == (self.world, batch_size):
            self._position = left
        if self.rank == 0:
            where = f"{self.run.url}/{folder.name}"
            node = get_node_ip_address()  # type: ignore[no-untyped-call]
            progress.print_record(
                progress.Restored(where, len(self.history), node, self.batches_done)
            )
            if left is not None and not self._position:
                why = f"the run had {len(left.workers)} workers, and has {self.world}"
                if len(left.workers) == self.world:
                    why = f"their size was {left.batch_size}, and is {batch_size}"
                print(
                    f"warning: {left.batches} batches of epoch {left.epoch + 1} are trained twice: "
                    f"{why}"
                )
            # Epochs that only a damaged checkpoint has are trained again.
            self.run.write_metrics(self.history)

    def epochs_left(self) -> range:
        """Return the numbers of the epochs still to do, from 0. Starts the clock of the records."""
        earlier = self.history[-1]["minutes"] if self.history else 0
        self._started = time.monotonic() - 60 * earlier
        return range(len(self.history), self.config["epochs"])

    @property
    def batches_done(self) -> int:
        """Batches of the next epoch done by an earlier start, which `epoch_batches` omits."""
        return self._position.batches if self._position else 0

    def epoch_batches(
        self, batches: Iterable[T], epoch: int, totals: Totals | None = None
    ) -> Iterator[T]:
        """Passes an epoch's batches on and shows their progress, as a bar if a client watches.

        Each worker has the same number of batches. `totals` are the sums that the job keeps of the
        epoch. When a node of the run must go, it stores a checkpoint between two batches and
        leaves: the next workers get the remaining batches.
        """
        text = f"epoch {epoch + 1}/{self.config['epochs']}"
        before, done, self._position = self.batches_done, self._position, None
        left = self._left_of(batches, epoch, totals, done)
        total = progress.count(batches)
        tells = self.rank == 0
        told = progress.report_batches(left, text, tells=tells, total=total, before=before)
        return hangs.noted(told)

    def _left_of(
        self, batches: Iterable[T], epoch: int, totals: Totals | None, done: Position | None
    ) -> Iterator[T]:
        """Yields the batches after a place in the epoch, until a node of the run must go."""
        drawn = iter(batches)
        number = 0
        if done:
            for _ in islice(drawn, done.batches):
                pass
            number = done.batches
            epoch_position.take_back(done.workers[self.rank], self.device, totals)
        while True:
            if notice := self._notices.due():
                self._store_place(epoch, number, totals)
                self._notices.leave(notice)
            try:
                batch = next(drawn)
            except StopIteration:
                return
            yield batch
            number += 1

    def _store_place(self, epoch: int, number: int, totals: Totals | None) -> None:
        own = epoch_position.state(self.device, totals)
        workers = [own] * self.world
        distributed.all_gather_object(workers, own)
        here = Position(epoch, number, self.config.get("batch_size"), workers)
        folder = self.together(lambda: self._saved(self._parts, {"position": here.record()}))
        if folder is None:
            checkpoints.report({"epoch": epoch})
            return
        checkpoints.report({"epoch": epoch}, folder, self._description, wait=True)
        progress.print_record(progress.Noticed(epoch, number))

    def measured_batches(self, batches: Iterable[T]) -> Iterator[T]:
        """Passes on batches that are only measured; shows their progress every half minute."""
        every = progress.LINE_INTERVAL_S
        tells = self.rank == 0
        return hangs.noted(progress.report_batches(batches, "measuring", every, tells=tells))

    def report(self, record: dict[str, Any], description: dict[str, Any], /, **parts: Part) -> None:
        """Ends an epoch: reports its record and stores a checkpoint. Each worker calls it.

        Args:
            record: `epoch` (default: the next), `loss` and other figures. `minutes` since the start
                is added. Values that JSON lacks are converted, at first with a warning
                (trainyard/json_values.py).
            description: what is needed to use the weights without the job: `model` of
                trainyard/resume/checkpoint_files.py.
            **parts: the state to resume from; the first worker's is stored.

        Raises:
            JobError: on all workers: a value of the record is not plain and cannot be made so, or
                the state of a part could not be loaded by a later start.
        """
        minutes = (time.monotonic() - self._started) / 60

        def ready() -> Path | None:
            values = {str(key): plain(each, str(key)) for key, each in record.items()}
            first = self.rank == 0 and not self._loads  # the next ones hold the same types
            if type(values.get("epoch")) is not int:
                if first:
                    print(f"warning: the record has no number `epoch`: {len(self.history)} is used")
                values["epoch"] = len(self.history)
            if first and "minutes" in values:
                print("warning: minutes of the record are replaced by the run's: rename yours")
            for key, each in record.items() if first else ():
                kind, stored = type(each), values[str(key)]
                if kind is not type(stored):
                    name = f"{kind.__module__}.{kind.__qualname__}"
                    print(f"warning: {key} of the record is a {name}: {stored!r} is stored")
            self.history.append(values | {"minutes": minutes})
            self._description = {key: plain(each, key) for key, each in description.items()}
            return self._saved(parts)

        folder = self.together(ready)
        if folder is None:
            checkpoints.report(self.history[-1])
            return
        # Not before the checkpoint: an interrupted run repeats the epoch, with other `minutes`.
        told = partial(self.run.write_metrics, list(self.history))
        checkpoints.report(self.history[-1], folder, self._description, stored=told)
        progress.print_record(progress.Epoch(self.history[-1]["epoch"]))

    def _saved(self, parts: Mapping[str, Part], more: Mapping[str, Any] = {}) -> Path | None:
        """Return a new folder with the state of the run; None for workers that store nothing."""
        if self.rank != 0:
            return None
        if taken := sorted(parts.keys() & set(OWN)):
            raise JobError(
                f"parts {', '.join(taken)} of the checkpoint have reserved names: rename "
                "them in session.report and session.restore"
            )
        folder = checkpoints.new_folder()
        state = {name: part.state_dict() for name, part in parts.items()}
        own = {"history": self.history, _ASKED: self._asked, **more}
        torch.save(state | own, folder / run_folder.CHECKPOINT_FILE)
        if not self._loads:  # the next ones hold the same types
            self._check_loads(folder / run_folder.CHECKPOINT_FILE, state)
            self._loads = True
        return folder

    def _check_loads(self, file: Path, state: Mapping[str, Any]) -> None:
        try:
            files.load(file, mapped=True)
        except files.CheckpointError as error:
            fault = error
        else:
            return
        for name, part in state.items():
            torch.save({name: part}, file)
            try:
                files.load(file, mapped=True)
            except files.CheckpointError as error:
                raise JobError(
                    f"no later start could load the state of {name!r}: {error}; make it plain "
                    "values, or leave it out of session.report and session.restore"
                ) from None
        raise JobError(f"no later start could load the run's state: {fault}")


Worker = Callable[[Session], None]


def _check_state(folder: Path) -> None:
    """Checks that a checkpoint holds the state that `Session.restore` reads."""
    state: Any = files.load(folder / run_folder.CHECKPOINT_FILE, mapped=True)
    try:
        history = [
            {key: plain(each, key) for key, each in record.items()} for record in state["history"]
        ]
        good = history == state["history"] and all(
            isinstance(record["minutes"], int | float) for record in history
        )
        if "position" in state:
            Position(**state["position"])
    except (JobError, LookupError, TypeError, AttributeError) as error:
        raise files.CheckpointError(
            f"{run_folder.CHECKPOINT_FILE} is not a run's checkpoint: {error!r}"
        ) from None
    if not good:
        raise files.CheckpointError(f"{run_folder.CHECKPOINT_FILE} has no records of epochs")


def run(
    train_worker: Worker,
    name: str,
    parser: argparse.ArgumentParser,
    fixed: Sequence[str] = (),
    given: Sequence[str] | None = None,
    goals: Goals = NO_GOALS,
) -> Run:
    """Runs a job's driver: begins or resumes the run, trains, and ends it.

    Args:
        train_worker: what each worker runs.
        name: of the job.
        parser: of the job; `epochs`, `workers` and `max_failures` are among its arguments.
        fixed: arguments that a resumed run keeps.
        given: arguments in place of the command line's.
        goals: see `trainyard.goal`; the first one decides which epoch is the best.

    Returns:
        The run, with all epochs done. An error that a user can fix ends the process with a line.
    """
    with one_message():
        the_run, config = begin(name, parser, fixed, given, goals=goals)
        if not is_done(the_run, config):
            ray_train.connect()
            fit(train_worker, the_run, config)
            the_run.end()
        say_completed(the_run)
    return the_run


@contextmanager
def one_message() -> Iterator[None]:
    """Turns an error that a user can fix into one line, and ends the process with exit code 1."""
    try:
        yield
    except (JobError, StorageError) as error:
        ray.shutdown()  # its thread prints the workers' lines, and the message would be among them
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        ray.shutdown()
        sys.exit(f"error: {code_faults.error_line(error)}")


@contextmanager
def recorded_run(
    name: str, parser: argparse.ArgumentParser, fixed: Sequence[str] = (), goals: Goals = NO_GOALS
) -> Iterator[tuple[Run, Config]]:
    """The run of a driver in plain Ray: recorded in the store, with its curves at the end.

    An error that a user can fix ends the process with a line.

    Args:
        name: of the job.
        parser: of the job; `total_epochs` is among its arguments.
        fixed: arguments that a resumed run keeps; with them, a finished run is not trained again.
        goals: as of `run`.

    Yields:
        The run, and the values of its arguments.
    """
    with one_message():
        the_run, config = begin(name, parser, fixed, epochs="total_epochs", goals=goals)
        if fixed:
            _end_if_finished(the_run, config)
        ray_train.connect()
        ray_train.forget_checkpoints(the_run.storage, the_run.name)
        the_run.start(config)
        before = files.candidates(the_run.store)
        try:
            yield the_run, config
        except TrainingFailedError as error:
            raise ray_train.failure(error) from None
        if files.candidates(the_run.store).keys() <= before.keys():
            with housekeeping("the run has no checkpoint that `train serve` and `pull` take"):
                files.adopt(the_run.store, {"job": name})
        the_run.end()
        say_completed(the_run)


def _end_if_finished(the_run: Run, config: Config) -> None:
    """Ends the process if the run was tested, and no more epochs are asked for."""
    earlier, history = the_run.config() or {}, the_run.metrics()
    if history and "test_acc" in history[-1] and config["epochs"] <= earlier["epochs"]:
        print(
            f"run {the_run.name} has finished: {len(history)} epochs are done, at most "
            f"{earlier['epochs']} were asked for; ask for more --total-epochs, or take another "
            f"--name: {the_run.url}"
        )
        sys.exit()


def begin(
    name: str,
    parser: argparse.ArgumentParser,
    fixed: Sequence[str] = (),
    given: Sequence[str] | None = None,
    *,
    epochs: str = "epochs",
    goals: Goals = NO_GOALS,
) -> tuple[Run, Config]:
    """Return the run that the client named, and its configuration.

    Without the client a run gets a new name. Arguments that are not given are those of the run's
    last start. A line says which ones differ from it. `epochs` is the argument that says how many
    there are; for the others see `run`.

    Raises:
        JobError: the run was started with other arguments.
        StorageError: the run's files in the store cannot be read.
        ValueError: an argument has a name of the configuration's own.
    """
    storage = os.environ.get(run_folder.STORAGE_VARIABLE) or (Path.home() / "ray_results").as_uri()
    own = f"{name.replace('/', '-')}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    the_run = Run(storage, os.environ.get(run_folder.RUN_VARIABLE) or own.replace("_", "-"), goals)
    earlier = the_run.config() or {}
    parser.prog = f"train submit {name} --"
    values = options.parse(parser, given, earlier)
    if taken := sorted(RESERVED & values.keys()):
        raise ValueError(f"a job's configuration has {', '.join(taken)}: rename these arguments")
    config = {"job": name} | values
    if other := options.differences(earlier, config, ("job", *fixed)):
        raise JobError(
            f"run {the_run.name!r} was started with other arguments ({other}): "
            "take another --name, or the same arguments"
        )
    if changed := options.differences(earlier, config, [*filter(earlier.__contains__, values)]):
        print(f"resuming with other arguments: {changed}", flush=True)
    return the_run, config | {"epochs": config[epochs]}


def is_done(the_run: Run, config: Config) -> bool:
    """Whether all epochs are done; says so if they are."""
    done = len(the_run.metrics())
    if done < config["epochs"]:
        return False
    print(
        f"run {the_run.name} has finished: {done} epochs are done and {config['epochs']} were "
        "asked for; ask for more epochs, or take another --name"
    )
    return True


def fit(train_worker: Worker, the_run: Run, config: Config, **trainer: Any) -> None:
    """Trains with Ray Train; the process is connected already.

    Args:
        train_worker: what each worker runs; a function at the top level of a module or script.
        the_run: to train.
        config: the job's arguments. Their names give the workers' resources (`options.workers`);
            `max_failures` is how often lost workers are restarted, and `hang_minutes` for how
            long a batch may take.
        **trainer: more arguments for Ray's TorchTrainer.

    Raises:
        JobError: the training failed.
        StorageError: the store stays unavailable.
    """
    the_run.start(config)
    bundles, (least, most) = ray_train.resources(config), options.worker_range(config)
    torch_trainer = TorchTrainer(
        partial(_work, by_name(train_worker)),
        train_loop_config=config | {"storage": the_run.storage, "run": the_run.name},
        torch_config=torch_config(use_gpu="GPU" in bundles[0]),
        scaling_config=ScalingConfig(
            num_workers=least if least == most else (least, most),
            elastic_resize_monitor_interval_s=RESIZE_S,
            use_gpu="GPU" in bundles[0],
            resources_per_worker=bundles[0],
        ),
        run_config=ray_train.run_config(
            the_run, config["max_failures"], config.get("hang_minutes", hangs.MINUTES)
        ),
        **trainer,
    )
    try:
        torch_trainer.fit()
    except TrainingFailedError as error:
        raise ray_train.failure(error) from None


def say_completed(the_run: Run) -> None:
    """Says that the run is done, and where it is stored."""
    print(f"Training completed after {len(the_run.metrics())} epochs: {the_run.url}")


def by_name(function: Callable[..., T], script: str | None = None) -> Callable[..., T | None]:
    """Return a function that loads another's module, or this script, where it is called.

    Ray would send a script's function without its script, and with all modules that it seems to
    name: `torch` and any `x.classes` would bring torch.classes, which cannot be sent.
    """
    module, name = function.__module__, function.__name__
    if function.__qualname__ != name:
        raise ValueError(f"{function.__qualname__} is not at the top level of its script")
    load: Callable[[str], Any] = importlib.import_module
    if module == "__main__":
        load, module = load_script, script or name_of_main()

    def call(*args: Any) -> T | None:
        try:
            found: T = getattr(load(module), name)(*args)
        except SystemExit as end:
            if end.code in (None, 0):
                return None
            raise code_faults.exit_reason(end) from None
        return found

    # Tune's resources; what a decorator wraps would be sent by value.
    vars(call).update({k: v for k, v in vars(function).items() if k != "__wrapped__"})
    call.__name__ = name
    return call


def _work(train_worker: Callable[[Session], object], config: Config) -> None:
    """Runs on each worker."""
    logging.getLogger().setLevel(logging.WARNING)  # Ray Train logs each report it gets
    try:
        train_worker(Session(config))
    except JobError as error:
        # Its message ends the run (trainyard/resume/lost_workers.py): Ray Train need not log a
        # traceback.
        logging.getLogger(RAYS_LOG_OF_ERRORS).disabled = True
        checkpoints.settle()
        raise JobError(code_faults.message(error)) from None
    except Exception as error:
        code_faults.note(error)
        raise
