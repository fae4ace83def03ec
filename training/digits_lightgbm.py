"""Boosts trees on scikit-learn's digits with LightGBM; the workers share the digits.

    train submit digits_lightgbm
    train submit digits_lightgbm --runtime-env lightgbm    # where nodes lack the package

A round of trees counts as an epoch. The run's checkpoint has the trees, in `model.txt`.
"""

import argparse
import re
from pathlib import Path
from typing import Any

from ray.train import LoggingConfig, RunConfig, ScalingConfig, get_context

from trainyard.data import digits
from trainyard.data.splits import cut
from trainyard.job import recorded_run
from trainyard.options import at_least
from trainyard.tracking.runs import write_metrics

LOOPBACK = re.compile(r"\b127(?:\.[0-9]+){3}\b")
parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--total-epochs", type=at_least(1), default=20, help="rounds of trees")
parser.add_argument("--learning-rate", type=at_least(0.0), default=0.1, help="weight of a round")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes the split")
parser.add_argument("--workers", type=at_least(1), default=2, help="processes that train")


def train_func(config: dict[str, Any]) -> None:
    """Boosts, on each worker; LightGBM adds up what all of them find."""
    import lightgbm
    from ray.train.lightgbm import RayTrainReportCallback, get_network_params

    rank, world = get_context().get_world_rank(), get_context().get_world_size()
    pixels, labels = digits.read_pixels()
    train, valid, _ = cut(len(labels), config["seed"], held_out=2)
    own, held_out = (
        lightgbm.Dataset(pixels[part].flatten(1).numpy(), labels[part].numpy())
        for part in (train[rank::world], valid)
    )
    network = get_network_params()
    # Each finds itself in this list by an address of an interface. Workers of one machine may have
    # other addresses of loopback.
    network["machines"] = LOOPBACK.sub("127.0.0.1", network["machines"])
    seen: dict[str, dict[str, list[float]]] = {}
    lightgbm.train(
        {
            "objective": "multiclass",
            "num_class": 10,
            "learning_rate": config["learning_rate"],
            "num_threads": 1,
            "metric": ["multi_logloss", "multi_error"],
            "verbosity": -1,
            "tree_learner": "data_parallel",
            "pre_partition": True,  # each worker has other digits
            **network,
        },
        own,
        config["total_epochs"],
        valid_sets=[own, held_out],
        valid_names=["train", "valid"],
        callbacks=[lightgbm.record_evaluation(seen), RayTrainReportCallback()],
    )
    if rank == 0:
        figures = zip(seen["train"]["multi_logloss"], *seen["valid"].values(), strict=True)
        records = [
            {"loss": loss, "epoch": epoch, "valid_loss": valid_loss, "valid_acc": 1 - error}
            for epoch, (loss, valid_loss, error) in enumerate(map(float, row) for row in figures)
        ]
        write_metrics(records)
        print(records[-1], flush=True)


def load(folder: Path) -> Any:
    """Return the trees of a checkpoint, for `train serve`."""
    import lightgbm

    return lightgbm.Booster(model_file=folder / "model.txt")


def predict(inputs: Any, model: Any) -> Any:
    """Answers digits, each 64 pixels from 0 to 16, with their classes."""
    return digits.predictions(model.predict(digits.given(inputs).flatten(1).numpy()))


def main() -> None:
    """Runs the driver."""
    with recorded_run("digits_lightgbm", parser, goals={"valid_acc": "max"}) as (run, config):
        from ray.train.lightgbm import LightGBMTrainer

        LightGBMTrainer(
            train_func,
            train_loop_config=config,
            scaling_config=ScalingConfig(num_workers=config["workers"]),
            run_config=RunConfig(
                name=run.name,
                storage_path=run.storage,
                logging_config=LoggingConfig(log_level="WARNING"),
            ),
        ).fit()


if __name__ == "__main__":
    main()
