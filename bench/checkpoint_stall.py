"""The job of P9: seconds of each epoch of AlexNet, with or without a checkpoint.

An epoch is PASSES of digits by one thread; with 1,280 images it is about as long as one of the
course's AlexNet on its GPU (35 s). A checkpoint has weights and Adam's state, 690 MB. Prints
the seconds as JSON. Run as a file: it imports nothing of bench.
"""

import itertools
import json
import os
import sys
import time
from typing import Any

BATCH_SIZE = 64
PASSES = 2


def main() -> None:
    """Run the epochs in a worker of Ray Train."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from trainyard import ray_train
    from trainyard.tracking.runs import Run

    ray_train.connect()
    epochs, images, way = sys.argv[1:]
    run = Run(os.environ["TRAINYARD_STORAGE_URL"], os.environ["TRAINYARD_RUN"])
    TorchTrainer(
        measure,
        train_loop_config={
            "epochs": int(epochs),
            "images": int(images),
            "checkpoints": way == "checkpoints",
        },
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(resources_per_worker={"CPU": 1}),
        run_config=ray_train.run_config(run, 0),
    ).fit()


def measure(config: dict[str, Any]) -> None:
    """Measure each epoch from its first batch to the next one's; the first is not counted."""
    import torch
    from ray.train.torch import prepare_model
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

    from trainyard import data
    from trainyard.models.alexnet import IMAGE_SIZE, AlexNet
    from trainyard.resume import checkpoints

    torch.set_num_threads(1)
    torch.manual_seed(1)
    split = data.load("digits", IMAGE_SIZE, 1, config["images"]).train
    network = AlexNet(10)
    model = prepare_model(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    loader = DataLoader(split, BATCH_SIZE, shuffle=True)
    begun = []
    for _ in range(config["epochs"] + 1):
        begun.append(time.perf_counter())
        for _ in range(PASSES):
            for images, labels in loader:
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        if not config["checkpoints"]:
            checkpoints.report({})
            continue
        folder = checkpoints.new_folder()
        state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, folder / "checkpoint.pt")
        checkpoints.report({}, folder, {"file": "checkpoint.pt"})
    begun.append(time.perf_counter())
    seconds = [after - before for before, after in itertools.pairwise(begun)]
    print(json.dumps({"figures": seconds[1:]}), flush=True)


if __name__ == "__main__":
    main()
