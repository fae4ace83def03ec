"""Fine-tunes beyond the thaw in two processes.

    python -m tests.integration.training.thaw FOLDER

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
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import DDPStrategy
from torch import distributed, multiprocessing
from torchvision.models import mobilenet_v2

from tests.ports import free_ports
from trainyard.callbacks import Finetuning
from trainyard.data import food11
from trainyard.models.mobilenet import Classifier

EPOCHS = 3
THAW = 1  # the epoch that the base learns from; test_thaw.py has both again, to do without torch
WORKERS = 2


class Digests(Callback):
    """A digest of the base's parameters: its buffers are each worker's own."""

    def __init__(self) -> None:
        self.digests: list[str] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        digest = hashlib.sha256()
        for parameter in pl_module.backbone.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        self.digests.append(digest.hexdigest())


def work(rank: int, folder: Path, port: int) -> None:
    """One worker's training."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": str(rank)}
    os.environ.update(place)  # Lightning starts no processes then
    distributed.init_process_group("gloo", rank=rank, world_size=WORKERS)
    data = food11.load(side=32, batch_size=11, seed=1)
    weights = str(folder / "base.pt")
    model = Classifier(11, weights=weights, dropout=0.5, lr=1e-2, scratch_lr=1e-3, seed=1)
    digests = Digests()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        devices=WORKERS,
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
    assert trainer.world_size == WORKERS
    (folder / f"{rank}.json").write_text(json.dumps(digests.digests))


def main(folder: Path) -> None:
    """Runs the workers, with all modules imported: that costs more than their work."""
    torch.manual_seed(0)
    torch.save(mobilenet_v2().state_dict(), folder / "base.pt")
    [port] = free_ports(1)
    multiprocessing.start_processes(work, (folder, port), WORKERS, start_method="fork")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
