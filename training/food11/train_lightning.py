"""Trains GourmetGram's food classifier on Food-11: plain Lightning, no Ray.

    cd train
    ray job submit --runtime-env runtime.json --entrypoint-num-gpus 1 --entrypoint-num-cpus 8
        --verbose --working-dir . -- python training/food11/train_lightning.py   (on one line)

Each epoch it prints its report, as `{'loss': 1.8459, 'epoch': 0}`, and lines as

    Epoch: 001/020 | Train. Acc.: 30.842% | Loss: 1.8459
    Epoch: 001/020 | Valid. Acc.: 30.700% | Loss: 1.8269
    Time elapsed: 0.58 min

at the end the time and the test's accuracy, and with each figure `generated data` if the images are
generated, not photographs. The best checkpoint is in checkpoints/ on the node, and disappears with
the job's folder.
"""

import argparse
from typing import Any

import lightning as L  # noqa: N812 - Lightning's own short name
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from trainyard.callbacks import EpochRecords, Finetuning, KeptModel
from trainyard.data import food11
from trainyard.models.mobilenet import Classifier
from trainyard.options import absolute_path, at_least, between

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--initial-epochs", type=at_least(0), default=5, help="epochs of the head only")
parser.add_argument("--total-epochs", type=at_least(1), default=20, help="epochs in all")
parser.add_argument("--patience", type=at_least(1), default=5, help="epochs without a smaller loss")
parser.add_argument("--batch-size", type=at_least(1), default=32, help="images of a batch")
parser.add_argument("--lr", type=at_least(0.0), default=1e-4, help="learning rate of the head")
parser.add_argument("--fine-tune-lr", type=at_least(0.0), default=1e-6, help="of the base; doubles")
parser.add_argument("--scratch-lr", type=at_least(0.0), default=1e-3, help="of all, if no weights")
parser.add_argument(
    "--dropout-probability", type=between(0.0, 1.0), default=0.5, help="before the head"
)
parser.add_argument("--weights", default="imagenet", help="imagenet, none, or a file on each node")
parser.add_argument("--images", type=absolute_path, help="your own, in place of Food-11")
parser.add_argument("--image-side", type=at_least(32), default=224, help="pixels")
parser.add_argument("--loader-processes", type=at_least(0), default=2, help="processes that read")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes order, crops and dropout")


def train_func(config: dict[str, Any]) -> None:
    """Trains and tests."""
    data = food11.load(
        images=config["images"],
        side=config["image_side"],
        batch_size=config["batch_size"],
        seed=config["seed"],
        processes=config["loader_processes"],
    )
    model = Classifier(
        len(data.classes),
        weights=config["weights"],
        dropout=config["dropout_probability"],
        lr=config["lr"],
        scratch_lr=config["scratch_lr"],
        seed=config["seed"],
    )
    trainer = L.Trainer(
        max_epochs=config["total_epochs"],
        devices="auto",
        accelerator="auto",
        callbacks=[
            EarlyStopping(monitor="val_loss", patience=config["patience"], mode="min"),
            Finetuning(config["initial_epochs"], backbone_initial_lr=config["fine_tune_lr"]),
            EpochRecords(config["total_epochs"], generated=data.generated),
            ModelCheckpoint("checkpoints", monitor="val_loss", mode="min"),
            KeptModel(data.description),
        ],
        num_sanity_val_steps=0,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, data.train, data.valid)
    trainer.test(model, data.test, verbose=False)


def main() -> None:
    """Runs the job."""
    config = vars(parser.parse_args())
    train_func(config)


if __name__ == "__main__":
    main()
