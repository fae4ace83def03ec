"""Lightning callbacks that jobs share; nothing here knows Ray."""

# ruff: noqa: ARG002, D102 - the methods are Lightning's

import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import BackboneFinetuning, Callback, Checkpoint

from trainyard.data.food11 import Food11
from trainyard.housekeeping import housekeeping
from trainyard.report.progress import LINE_INTERVAL_S, Epoch, Progress, interval, print_record
from trainyard.resume import optimizer_settings as settings
from trainyard.resume.checkpoints import new_folder
from trainyard.tracking.runs import keep_checkpoint

# It reports what these callbacks print.
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)

LIGHTNING_FILE = "checkpoint.ckpt"  # Ray's name too
Records = Sequence[dict[str, Any]]


class Finetuning(BackboneFinetuning):
    """Lightning's callback, fixed for several workers and for resumed runs.

    A model that is not pretrained learns as a whole: then this does nothing.

    Lightning freezes the base before the strategy wraps the model. DDP only sums the gradients of
    parameters that learn when it wraps: the base, thawed later, would learn separately on each
    worker. (In turn, DDP needs find_unused_parameters.) And where a run resumes after the thaw,
    Lightning freezes the base again and leaves it frozen.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Freezes nothing yet."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Freezes the base, unless it was learning when the run was interrupted."""
        if not pl_module.pretrained:
            return
        super().on_fit_start(trainer, pl_module)
        if len(trainer.optimizers[0].param_groups) == 1:
            self.freeze_before_training(pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Thaws the base when its epoch begins, and raises its rate in each later one."""
        if pl_module.pretrained:
            super().on_train_epoch_start(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for the checkpoint, with the rate that was asked for."""
        return super().state_dict() | {"asked": self.backbone_initial_lr}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a checkpoint's state; scales its rate where this start asks for another one."""
        super().load_state_dict(state_dict)
        rate, then, now = (
            self.previous_backbone_lr,
            state_dict.get("asked"),
            self.backbone_initial_lr,
        )
        if None not in (rate, then, now):
            self.previous_backbone_lr = settings.scale_rate(rate, then, now)


class EpochRecords(Callback):
    """One record an epoch (trainyard/tracking/run_folder.py), which the first worker writes.

    Attributes:
        history: the records, the oldest first; a checkpoint holds them too.
    """

    def __init__(
        self,
        epochs: int,
        *,
        generated: bool,
        write: Callable[[Records], None] = lambda _: None,
    ) -> None:
        """Begins with no epoch done.

        Printed lines name `epochs` as the last one. With `generated` each figure says that no real
        data was measured. `write` takes the history after each epoch, and after the test.
        """
        self.history: list[dict[str, Any]] = []
        self._epochs = epochs
        self._note = {"data": "generated"} if generated else {}
        self._mark = " | generated data" if generated else ""
        self._write = write
        self._started = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Starts the clock where it stood when the run was interrupted."""
        minutes = self.history[-1]["minutes"] if self.history else 0
        self._started = time.monotonic() - 60 * minutes

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins to count batches."""
        text = f"epoch {trainer.current_epoch + 1}/{self._epochs}"
        self._progress = Progress(text, trainer.num_training_batches, interval())

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:
            self._progress.step()

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begins to count measured batches: a line every half minute, never a bar."""
        batches = sum(trainer.num_val_batches)
        self._measuring = Progress("measuring", batches, LINE_INTERVAL_S)

    def on_validation_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.is_global_zero:
            self._measuring.step()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adds the epoch."""
        measured = {name: float(value) for name, value in trainer.callback_metrics.items()}
        record = {
            "loss": measured["train_loss"],
            "epoch": trainer.current_epoch,
            "train_acc": measured["train_accuracy"],
            "valid_acc": measured["val_accuracy"],
            "valid_loss": measured["val_loss"],
            "minutes": (time.monotonic() - self._started) / 60,
        }
        self.history.append(record | self._note)
        if trainer.is_global_zero:
            self._print(record)
            print_record(Epoch(trainer.current_epoch))
            self._record()

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Adds the test's accuracy to the last epoch."""
        accuracy = float(trainer.callback_metrics["test_accuracy"])
        self.history[-1]["test_acc"] = accuracy
        if trainer.is_global_zero:
            print(f"Total Training Time: {self.history[-1]['minutes']:.2f} min")  # noqa: T201
            print(f"Test ACC: {accuracy:.2%}{self._mark}", flush=True)  # noqa: T201
            self._record()

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = state_dict["history"]

    def _record(self) -> None:
        with housekeeping("the epochs' records are written with the next epoch"):
            self._write(self.history)

    def _print(self, record: dict[str, Any]) -> None:
        title = f"Epoch: {record['epoch'] + 1:03d}/{self._epochs:03d}"
        train = f"Train. Acc.: {record['train_acc']:.3%} | Loss: {record['loss']:.4f}"
        valid = f"Valid. Acc.: {record['valid_acc']:.3%} | Loss: {record['valid_loss']:.4f}"
        print({"loss": record["loss"], "epoch": record["epoch"]} | self._note)  # noqa: T201
        print(f"{title} | {train}{self._mark}")  # noqa: T201
        print(f"{title} | {valid}{self._mark}")  # noqa: T201
        print(f"Time elapsed: {record['minutes']:.2f} min", flush=True)  # noqa: T201


class KeptModel(Callback):
    """Stores the trained weights as a checkpoint of the job's run: `train serve` needs no more."""

    def __init__(self, description: dict[str, Any]) -> None:  # as of `write_manifest`
        self._description = description

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        state = {name: value.cpu() for name, value in pl_module.state_dict().items()}
        model = self._description | getattr(pl_module, "description", {})
        with tempfile.TemporaryDirectory() as folder, housekeeping("the run has no checkpoint"):
            saved = {"state_dict": state, "epoch": trainer.current_epoch - 1}
            torch.save(saved, Path(folder, LIGHTNING_FILE))
            keep_checkpoint(Path(folder), model | {"file": LIGHTNING_FILE})


class ResumableCheckpoints(Checkpoint):
    """Saves a checkpoint each epoch, and restores the state that Lightning leaves out.

    A `Checkpoint`, because Lightning calls these after EarlyStopping: before it, the file would
    count one epoch without progress too few. What this start asks of the optimizer and of
    EarlyStopping takes precedence over their stored state (trainyard/resume/optimizer_settings.py).
    """

    def __init__(self, data: Food11) -> None:
        self._data = data
        self._patience: int | None = None
        self._then: settings.Settings = {}  # of the start that stored the checkpoint
        self._now: settings.Settings = {}

    def report(self, metrics: dict[str, Any], folder: Path | None, model: dict[str, Any]) -> None:
        """Takes an epoch; each worker calls it, and the first one gives the checkpoint's folder.

        The folder is to be removed; `model` is its description for the manifest.
        """
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        return {"asked": self._now}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._then = state_dict.get("asked", {})

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Notes the patience that this start asks for, before a checkpoint's replaces it."""
        if stage == "fit" and trainer.early_stopping_callback:
            self._patience = trainer.early_stopping_callback.patience

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Tells the sampler the epoch before the loader's processes begin to read ahead."""
        self._data.sampler.set_epoch(checkpoint["epoch"] + 1)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Applies this start's settings; trains no further where the run had stopped early."""
        self._now = settings.current_settings({"optimizer": pl_module.configure_optimizers()})
        # Groups that were added since, for example by finetuning, are last.
        groups = trainer.optimizers[0].param_groups[: len(self._now["optimizer"])]
        optimizer = SimpleNamespace(param_groups=groups)
        settings.apply({"optimizer": optimizer}, self._then, self._now, {})
        stopping = trainer.early_stopping_callback
        if stopping and self._patience is not None:
            stopping.patience = self._patience
            trainer.should_stop = stopping.wait_count >= stopping.patience

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Saves and reports the epoch."""
        folder = new_folder() if trainer.is_global_zero else None
        trainer.save_checkpoint((folder or Path()) / LIGHTNING_FILE)  # the first worker writes
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        own: Any = pl_module.description
        model = self._data.description | own | {"file": LIGHTNING_FILE}
        self.report(metrics | {"epoch": trainer.current_epoch}, folder, model)
