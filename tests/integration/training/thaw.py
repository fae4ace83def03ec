"""Fine-tunes beyond the thaw, one of the processes that torchrun starts.

    torchrun --standalone --nproc-per-node 2 thaw.py WEIGHTS FOLDER

FOOD11_DATA_DIR has the images. It writes FOLDER/<rank>.json: a digest of the base's parameters
after each epoch.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy

from training.callbacks import Finetuning
from training.data import food11
from training.models.mobilenet import Classifier

EPOCHS = 3
THAW = 1  # the epoch that the base learns from


class Digests(Callback):
    """Of the parameters of the base: its buffers are each worker's own."""

    def __init__(self) -> None:
        self.digests: list[str] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        digest = hashlib.sha256()
        for parameter in pl_module.backbone.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        self.digests.append(digest.hexdigest())


def main(weights: str, folder: Path) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    data = food11.load(side=32, batch_size=11, seed=1, rank=rank, world=world)
    model = Classifier(11, weights=weights, dropout=0.5, lr=1e-2, scratch_lr=1e-3, seed=1)
    digests = Digests()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        devices=world,
        accelerator="cpu",
        strategy=DDPStrategy(find_unused_parameters=True, process_group_backend="gloo"),
        callbacks=[Finetuning(THAW, backbone_initial_lr=1e-3), digests],
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data.train)
    (folder / f"{rank}.json").write_text(json.dumps(digests.digests))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
