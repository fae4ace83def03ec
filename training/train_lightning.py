"""Trains the models of train_model with Lightning: DDP over all devices of one node.

    python -m trainyard.jobs.train_lightning devices=2
    python -m trainyard.jobs.train_lightning --multirun hydra/launcher=ray accelerator=tpu
    python -m trainyard.jobs.train_lightning --multirun hydra/launcher=ray accelerator=gpu
        model=mlp model.hidden_dims='[4096,4096,4096,4096]' train.refresh_rate=1
                                                                        (on one line)

The last one has about 50 million parameters. On CPUs a device is a process.
"""

from pathlib import Path
from typing import Any

import hydra
import lightning as L  # noqa: N812 - Lightning's own short name
import torch
from lightning.pytorch.callbacks import Callback, TQDMProgressBar
from omegaconf import DictConfig
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from trainyard import data, devices
from trainyard.callbacks import KeptModel
from trainyard.models import digits


class Digits(L.LightningModule):
    """A model with its losses; Lightning averages gradients and metrics over the devices."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__()
        self.model, self.lr = model, lr

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return cross_entropy(self.model(images), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Logs loss and accuracy of a batch."""
        images, labels = batch
        logits = self.model(images)
        accuracy = (logits.argmax(1) == labels).float().mean()
        self.log("valid_loss", cross_entropy(logits, labels), sync_dist=True)
        self.log("valid_acc", accuracy, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def load(folder: Path) -> digits.Served:
    """Return the model of a checkpoint, for `train serve`."""
    return digits.served(folder)


def predict(inputs: Any, model: digits.Served) -> Any:
    """Answers digits, each 64 pixels from 0 to 16, with their classes."""
    return model.answer(inputs)


@hydra.main(version_base="1.3", config_path="config", config_name="train_lightning")
def main(config: DictConfig) -> dict[str, float]:
    """Trains; returns the figures for the table of a sweep."""
    settings = config.train
    L.seed_everything(settings.seed, verbose=False)
    splits = data.load("digits", config.data.side, settings.seed, config.data.limit)
    network = digits.build(config.model, config.data.side)
    model = Digits(network, config.optimizer.lr)
    print(f"{digits.count(model):,} parameters on {config.devices} x {config.accelerator.name}")
    described = digits.description("train_lightning", config) | {"prefix": "model."}
    bar: list[Callback] = [TQDMProgressBar(settings.refresh_rate)] if settings.refresh_rate else []
    kind = devices.lightning_name(config.accelerator.name)
    trainer = L.Trainer(
        max_epochs=settings.epochs,
        accelerator=kind,
        devices=config.devices,
        # Forks: a script in a job has no command line to start again. Chips of a TPU have their own
        # strategy.
        strategy="ddp_fork" if config.devices > 1 and kind != "tpu" else "auto",
        callbacks=[*bar, KeptModel(described)],
        enable_progress_bar=bool(bar),
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(
        model,
        DataLoader(splits.train, settings.batch_size, shuffle=True),
        DataLoader(splits.valid, settings.batch_size),
    )
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


if __name__ == "__main__":
    main()
