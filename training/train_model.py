"""Trains an MLP or a CNN on scikit-learn's digits, on one device: plain PyTorch, with Hydra.

    python -m trainyard.jobs.train_model model=cnn
    python -m trainyard.jobs.train_model --multirun hydra/launcher=ray accelerator=cpu
    python -m trainyard.jobs.train_model --multirun hydra/launcher=ray
        model=mlp,cnn optimizer.lr=1e-5,1e-4,1e-3                       (on one line)

The first runs here, the second on the cluster, the third as six jobs there: docs/sweeps.md.
"""

import tempfile
from pathlib import Path
from typing import Any

import hydra
import torch
from omegaconf import DictConfig
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from trainyard import data, devices
from trainyard.epochs import Totals, evaluate
from trainyard.housekeeping import housekeeping
from trainyard.models import digits
from trainyard.tracking.run_folder import CHECKPOINT_FILE
from trainyard.tracking.runs import keep_checkpoint


def load(folder: Path) -> digits.Served:
    """Return the model of a checkpoint, for `train serve`."""
    return digits.served(folder)


def predict(inputs: Any, model: digits.Served) -> Any:
    """Answers digits, each 64 pixels from 0 to 16, with their classes."""
    return model.answer(inputs)


@hydra.main(version_base="1.3", config_path="config", config_name="train")
def main(config: DictConfig) -> dict[str, float]:
    """Trains; returns the figures for the table of a sweep."""
    device = devices.find(config.accelerator.name)
    settings = config.train
    torch.manual_seed(settings.seed)
    splits = data.load("digits", config.data.side, settings.seed, config.data.limit)
    loader = DataLoader(splits.train, settings.batch_size, shuffle=True)
    held_out = DataLoader(splits.valid, settings.batch_size)
    model = digits.build(config.model, config.data.side).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.optimizer.lr)
    print(f"{digits.count(model):,} parameters on {device}")

    valid_acc = valid_loss = 0.0
    for epoch in range(settings.epochs):
        model.train()
        totals = Totals(device)
        for batch, (images, labels) in enumerate(loader, 1):
            logits = model(images.to(device))
            loss = cross_entropy(logits, labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals.add(logits, labels.to(device), loss)
            if settings.refresh_rate and batch % settings.refresh_rate == 0:
                print(f"epoch {epoch + 1}, batch {batch}/{len(loader)}: loss {loss.item():.4f}")
        _, train_loss = totals.means()
        valid_acc, valid_loss = evaluate(model, held_out, device).means()
        print(f"epoch {epoch + 1}: loss {train_loss:.4f}, valid. acc. {valid_acc:.2%}")
    with tempfile.TemporaryDirectory() as folder, housekeeping("the run has no checkpoint"):
        torch.save({"model": model.cpu().state_dict()}, Path(folder, CHECKPOINT_FILE))
        keep_checkpoint(Path(folder), digits.description("train_model", config))
    return {"valid_acc": valid_acc, "valid_loss": valid_loss}


if __name__ == "__main__":
    main()
