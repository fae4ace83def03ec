"""The loop that P7 times: ResNet-18 on random images of 64 pixels, two threads in all.

In one process with both threads, in two with one each under torchrun, or in two workers of Ray
Train: as a job of a stack, or with Ray alone (bench/ray_alone.py). Prints images per second of each
epoch, and the losses of some steps in double precision, as JSON. As a job it imports nothing of
bench.
"""

import argparse
import copy
import json
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

THREADS = 2  # of all processes together
BATCH_SIZE = 64  # of all processes together
SIDE = 64  # pixels
EPOCHS = 4
STEPS = 3  # whose losses are compared


def measure(image_count: int, prepare_model: Callable[[Any], Any] = lambda model: model) -> None:
    """Train, and print the figures in the first process.

    Args:
        image_count: images in an epoch, enough for at least STEPS steps.
        prepare_model: turns the model into DDP's.
    """
    import torch
    from torch import distributed, nn
    from torchvision.models import resnet18

    world = distributed.get_world_size() if distributed.is_initialized() else 1
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    torch.set_num_threads(THREADS // world)
    torch.manual_seed(1)
    # Norms of one image each: with norms of a batch, half a batch would train differently.
    network = resnet18(num_classes=10, norm_layer=partial(nn.GroupNorm, 32))
    images, labels = torch.rand(image_count, 3, SIDE, SIDE), torch.randint(10, (image_count,))

    def training(network: nn.Module, images: torch.Tensor) -> Callable[[int], torch.Tensor]:
        """Return a function that makes the step of a batch, and returns its loss."""
        model = prepare_model(network)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

        def step(first: int) -> torch.Tensor:
            share = slice(first + rank, first + BATCH_SIZE, world)
            loss = nn.functional.cross_entropy(model(images[share]), labels[share])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    exact = training(copy.deepcopy(network).double(), images.double())
    losses = torch.stack([exact(index * BATCH_SIZE) for index in range(STEPS)])
    if world > 1:
        distributed.all_reduce(losses)
    del exact
    step = training(network, images)
    step(0)
    figures = []
    for _ in range(EPOCHS):
        begun = time.perf_counter()
        for first in range(0, image_count, BATCH_SIZE):
            step(first)
        figures.append(image_count / (time.perf_counter() - begun))
    if rank == 0:
        losses /= world
        print(json.dumps({"figures": figures, "losses": losses.tolist()}), flush=True)


def under_ray_train(images: int, *, alone: bool) -> None:
    """Measure in two workers of Ray Train."""
    from ray import train
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer, prepare_model

    def worker() -> None:
        measure(images, prepare_model)
        train.report({})

    if alone:
        from bench import ray_alone

        ray_alone.fit(worker, workers=THREADS)
        return
    from trainyard import ray_train

    ray_train.connect()
    TorchTrainer(
        worker,
        scaling_config=ScalingConfig(num_workers=THREADS, resources_per_worker={"CPU": 1}),
        # Its default is a folder in the user's home.
        run_config=RunConfig(storage_path=os.environ["TRAINYARD_STORAGE_URL"]),
    ).fit()


def under_torchrun(images: int) -> None:
    """Measure in one of torchrun's processes."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo")
    measure(images, DistributedDataParallel)
    distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--ray", choices=("job", "alone"))
    parser.add_argument("--images", type=int, required=True)
    args = parser.parse_args()
    if args.ray:
        under_ray_train(args.images, alone=args.ray == "alone")
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        under_torchrun(args.images)
    else:
        measure(args.images)
