"""train_tune.py with trials that learn nothing; three fail and one is weak: for test_food11.py."""

import os
import sys
import tempfile
import time
from pathlib import Path

from training.jobs.food11 import train_tune


def trial(config):
    from ray import tune

    name = tune.get_context().get_trial_name().rpartition("_")[2]
    checkpoint = tune.get_checkpoint()
    done = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            done = int((Path(folder) / "epoch").read_text())
    for epoch in range(done, config["total_epochs"]):
        time.sleep(0.3)
        if int(name) % 3 == 0:  # 0, 3 and 6
            note(f"{name} failed")
            sys.exit("a fault of the test")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "epoch").write_text(str(epoch + 1))
            # The less dropout the better; the last trial is worse than any.
            share = 0 if name == "00007" else 1 - config["dropout_probability"]
            accuracy = share * (epoch + 1) / config["total_epochs"]
            metrics = {"val_accuracy": accuracy, "val_loss": 1 - accuracy, "epoch": epoch}
            metrics |= {"train_accuracy": accuracy, "train_loss": 1 - accuracy, "generated": True}
            note(f"{name} {epoch + 1}")
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))


def note(line):
    with Path(os.environ["JOURNAL"]).open("a") as file:
        file.write(line + "\n")


train_tune.train_func = trial
resources = train_tune.resources
if __name__ == "__main__":
    train_tune.main()
