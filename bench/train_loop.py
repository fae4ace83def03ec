"""The loop that P6 times: AlexNet on digits, one thread, in a plain process or under Ray Train.

Under Ray Train it is a job of a stack, or runs with Ray alone (bench/ray_alone.py).
Prints images per second of each epoch as JSON. As a job it imports nothing of bench.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

BATCH_SIZE = 64
EPOCHS = 3


def throughput(
    images: int,
    prepare_model: Callable[[Any], Any] = lambda model: model,
    prepare_loader: Callable[[Any], Any] = lambda loader: loader,
) -> list[float]:
    """Return images per second of each epoch.

    Args:
        images: how many an epoch has.
        prepare_model: what Ray Train does to a model.
        prepare_loader: what Ray Train does to a loader.
    """
    import torch
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

    from trainyard import data
    from trainyard.epochs import Totals
    from trainyard.models.alexnet import IMAGE_SIZE, AlexNet

    torch.set_num_threads(1)
    torch.manual_seed(1)
    split = data.load("digits", IMAGE_SIZE, 1, images).train
    model = prepare_model(AlexNet(10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loader = prepare_loader(DataLoader(split, BATCH_SIZE, shuffle=True))
    model.train()
    figures = []
    for _ in range(EPOCHS):
        begun = time.perf_counter()
        totals = Totals(torch.device("cpu"))
        for batch, labels in loader:
            logits = model(batch)
            loss = cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals.add(logits, labels, loss)
        figures.append(float(totals.sums[2]) / (time.perf_counter() - begun))
    return figures


def under_ray_train(images: int, *, alone: bool) -> None:
    """Measure in a worker of Ray Train, which prepares the model and the loader."""
    from ray import train
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model

    def worker() -> None:
        show(throughput(images, prepare_model, prepare_data_loader))
        train.report({})

    if alone:
        from bench import ray_alone

        ray_alone.fit(worker)
        return
    from trainyard import ray_train

    ray_train.connect()
    TorchTrainer(
        worker,
        scaling_config=ScalingConfig(resources_per_worker={"CPU": 1}),
        # Its default is a folder in the user's home.
        run_config=RunConfig(storage_path=os.environ["TRAINYARD_STORAGE_URL"]),
    ).fit()


def show(figures: list[float]) -> None:
    """Print the figures; Ray passes a worker's lines on to its driver."""
    print(json.dumps({"figures": figures}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ray", choices=("job", "alone"))
    parser.add_argument("--images", type=int, required=True)
    args = parser.parse_args()
    if args.ray:
        under_ray_train(args.images, alone=args.ray == "alone")
    else:
        show(throughput(args.images))
