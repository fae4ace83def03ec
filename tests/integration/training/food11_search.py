"""train_tune.py with four trials of which one learns: for test_food11.py.

00000    fails whenever it is started
00001    learns, as the first to report
00002    is better; stops in the middle until the file FOLDER/go is there
00003    is worse; begins when that file is there

FOLDER/journal gets a line for each epoch of the last two, and for each failure.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from trainyard.jobs.food11 import train_tune

ACCURACIES = {"00002": 1.0, "00003": 0.0}


def trial(config):
    from ray import tune

    from trainyard.resume.checkpoint_files import write_manifest

    name = tune.get_context().get_trial_name().rpartition("_")[2]
    folder = Path(os.environ["FOLDER"])
    learned, go = folder / "learned", folder / "go"

    def note(what):
        with (folder / "journal").open("a") as file:
            file.write(f"{name} {what}\n")

    if name == "00000":
        note("failed")
        sys.exit("a fault of the test")
    if name == "00001":
        report = tune.report

        def report_and_tell(metrics, **options):
            # Tune has handled the epochs before; the last one's report does not return.
            if metrics["epoch"] == config["total_epochs"] - 1:
                learned.touch()
            report(metrics, **options)

        tune.report = report_and_tell
        train_tune.train_func(config)  # its own: only the driver has another one by this name
        return
    checkpoint = tune.get_checkpoint()
    done = 0
    if checkpoint is not None:
        with checkpoint.as_directory() as stored:
            done = int((Path(stored) / "epoch").read_text())
    for epoch in range(done, config["total_epochs"]):
        # What ASHA compares with is reported by then.
        halfway = name == "00002" and epoch < config["total_epochs"] // 2
        while not (learned if halfway else go).exists():
            time.sleep(0.2)
        with tempfile.TemporaryDirectory() as saved:
            (Path(saved) / "epoch").write_text(str(epoch + 1))
            write_manifest(Path(saved), {"job": "test"})
            accuracy = ACCURACIES[name]
            metrics = {"val_accuracy": accuracy, "val_loss": 1 - accuracy, "epoch": epoch}
            metrics |= {"train_accuracy": accuracy, "train_loss": 1 - accuracy, "generated": True}
            note(epoch + 1)
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(saved))


if __name__ == "__main__":
    train_tune.train_func = trial
    train_tune.main()
