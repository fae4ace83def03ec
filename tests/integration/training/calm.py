"""Prints the history of an undisturbed training (tiny.py): two processes and no Ray.

    python -m tests.integration.training.calm EPOCHS FILE

The two meet at FILE, which must not exist.
"""

import json
import os
import sys

from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from tests.integration.training import tiny


def main() -> None:
    """Trains both ranks; the first one prints."""
    epochs, meeting = sys.argv[1:]
    rank = int(os.fork() == 0)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=tiny.parser.get_default("workers"),
    )
    network, optimizer = tiny.untrained()
    model = DistributedDataParallel(network)
    history = list(tiny.learn(model, optimizer, rank, range(int(epochs))))
    distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps(history))  # noqa: T201


if __name__ == "__main__":
    main()
