"""A job for drills: one worker and short epochs, which waits in the middle of one for a fault.

    train submit tests/integration/infra/drilled.py -- --epochs 8 --go FILE

In the middle of epoch HELD it waits until FILE exists, or for a notice. It does not use PyTorch,
which each of its processes would import for seconds: a drill's effects do not depend on PyTorch.
"""

import argparse
import json
import math
import os
import random
import time
from functools import partial
from pathlib import Path
from typing import Any

from ray.util import get_node_ip_address

from trainyard import ray_train
from trainyard.report import progress
from trainyard.resume import checkpoints
from trainyard.resume.notices import Notices
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from trainyard.tracking.runs import Run

STEPS = 10  # an epoch
STEP_S = 0.02
HELD = 3  # after so many epochs it waits
HELD_STEPS = 5  # and so many steps
SIGNS = 8  # that an example has
EXAMPLES = 16  # of a step
RATE = 0.1

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--go", required=True)
parser.add_argument("--workers", type=int, default=1, choices=[1])


def main() -> None:
    """Runs the job's driver."""
    args = parser.parse_args()
    run = Run(os.environ[STORAGE_VARIABLE], os.environ[RUN_VARIABLE])
    run.start({"job": "drilled"} | vars(args))
    connect()
    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    DataParallelTrainer(
        train_worker,
        train_loop_config=vars(args) | {"storage": run.storage, "run": run.name},
        scaling_config=ScalingConfig(num_workers=args.workers, resources_per_worker={"CPU": 1}),
        run_config=ray_train.run_config(run, max_failures=3),
    ).fit()


def connect() -> None:
    """Like ray_train.connect, but without PyTorch."""
    import ray

    os.environ.update(ray_train.SETTINGS)
    os.environ["RAY_COLOR_PREFIX"] = "0"
    ray.init(runtime_env={"env_vars": ray_train.SETTINGS})


def train_worker(config: dict[str, Any]) -> None:
    """Weights learn to tell the sign of a sum."""
    weights = [0.0] * SIGNS
    run = Run(config["storage"], config["run"])
    history: list[dict[str, Any]] = []
    notices, first, total = Notices(0, 1), 0, 0.0
    with checkpoints.restore_newest() as folder:
        if folder is not None:
            state = json.loads((folder / "state.json").read_text())
            weights, history = state["weights"], state["history"]
            first, total = state["step"], state["total"]
            where, node = f"{run.url}/{folder.name}", get_node_ip_address()
            progress.print_record(progress.Restored(where, len(history), node, first))
            run.write_metrics(history)
    noticed = first > 0

    def store(step: int, **told: Any) -> None:
        folder = checkpoints.new_folder()
        state = {"weights": weights, "history": history, "step": step, "total": total}
        (folder / "state.json").write_text(json.dumps(state))
        checkpoints.report({"epoch": len(history)}, folder, {"job": "drilled"}, **told)

    for epoch in range(len(history), config["epochs"]):
        drawn = random.Random(epoch)
        for _ in range(first):
            learn(list(weights), drawn)
        for step in range(first, STEPS):
            held = (epoch, step) == (HELD, HELD_STEPS) and not noticed
            while (notice := notices.due()) or (held and not Path(config["go"]).exists()):
                if notice:
                    store(step, wait=True)
                    progress.print_record(progress.Noticed(epoch, step))
                    notices.leave(notice)
                time.sleep(0.1)
            total += learn(weights, drawn)
            time.sleep(STEP_S)
            progress.print_record(
                progress.Batches(f"epoch {epoch + 1}", step + 1, STEPS, 1 / STEP_S)
            )
        history.append({"epoch": epoch, "loss": total})
        first, total = 0, 0.0
        store(0, stored=partial(run.write_metrics, list(history)))
        progress.print_record(progress.Epoch(epoch))


def learn(weights: list[float], drawn: random.Random) -> float:
    """Change the weights by one step's examples; their mean loss."""
    loss = 0.0
    for _ in range(EXAMPLES):
        example = [drawn.gauss(0, 1) for _ in weights]
        sure = 1 / (1 + math.exp(-sum(w * x for w, x in zip(weights, example, strict=True))))
        positive = sum(example) > 0
        loss -= math.log(sure if positive else 1 - sure) / EXAMPLES
        for index, x in enumerate(example):
            weights[index] += RATE * (positive - sure) * x
    return loss


if __name__ == "__main__":
    main()
