"""Boosts trees on scikit-learn's digits with XGBoost; the workers share the digits.

    train submit digits_xgboost
    train submit digits_xgboost --runtime-env xgboost    # where nodes lack the package

A round of trees counts as an epoch. The run's checkpoint has the trees, in `model.ubj`.
"""

import argparse
from pathlib import Path
from typing import Any

from ray.train import LoggingConfig, RunConfig, ScalingConfig, get_context

from trainyard.data import digits
from trainyard.data.splits import cut
from trainyard.job import recorded_run
from trainyard.options import at_least
from trainyard.tracking.runs import write_metrics

parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
parser.add_argument("--total-epochs", type=at_least(1), default=20, help="rounds of trees")
parser.add_argument("--learning-rate", type=at_least(0.0), default=0.3, help="weight of a round")
parser.add_argument("--seed", type=at_least(0), default=1, help="fixes the split")
parser.add_argument("--workers", type=at_least(1), default=2, help="processes that train")


def train_func(config: dict[str, Any]) -> None:
    """Boosts, on each worker; XGBoost adds up what all of them find."""
    import xgboost
    from ray.train.xgboost import RayTrainReportCallback

    rank, world = get_context().get_world_rank(), get_context().get_world_size()
    pixels, labels = digits.read_pixels()
    train, valid, _ = cut(len(labels), config["seed"], held_out=2)
    own, held_out = (
        xgboost.DMatrix(pixels[part].flatten(1).numpy(), labels[part].numpy())
        for part in (train[rank::world], valid)
    )
    seen: dict[str, dict[str, list[float]]] = {}
    xgboost.train(
        {
            "objective": "multi:softprob",
            "num_class": 10,
            "eta": config["learning_rate"],
            "max_depth": 4,
            "nthread": 1,
            "eval_metric": ["mlogloss", "merror"],
        },
        own,
        config["total_epochs"],
        evals=[(own, "train"), (held_out, "valid")],
        evals_result=seen,
        verbose_eval=False,
        callbacks=[RayTrainReportCallback()],
    )
    if rank == 0:
        figures = zip(seen["train"]["mlogloss"], *seen["valid"].values(), strict=True)
        records = [
            {"loss": loss, "epoch": epoch, "valid_loss": valid_loss, "valid_acc": 1 - error}
            for epoch, (loss, valid_loss, error) in enumerate(figures)
        ]
        write_metrics(records)
        print(records[-1], flush=True)


def load(folder: Path) -> Any:
    """Return the trees of a checkpoint, for `train serve`."""
    import xgboost

    return xgboost.Booster(model_file=folder / "model.ubj")


def predict(inputs: Any, model: Any) -> Any:
    """Answers digits, each 64 pixels from 0 to 16, with their classes."""
    return digits.predictions(model.inplace_predict(digits.given(inputs).flatten(1).numpy()))


def main() -> None:
    """Runs the driver."""
    with recorded_run("digits_xgboost", parser, goals={"valid_acc": "max"}) as (run, config):
        from ray.train.xgboost import XGBoostTrainer

        XGBoostTrainer(
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
