"""The memory growth of a training worker from step to step, with each allocator of its node."""

import json
import os
import sys
from pathlib import Path

import pytest
from ray._private.services import JEMALLOC_SO

from cluster.job_processes import JobProcesses
from tests import ran
from trainyard.ray_train import SETTINGS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STEPS = 6
GROWTH_MB = 85.0  # up to 50 with the settings, 120 and more without
# Anonymous memory at the beginning of each step.
LOOP = f"""
import json, psutil, torch
from torch.nn.functional import cross_entropy

from trainyard.models.resnet import resnet18

torch.set_num_threads(1)
torch.manual_seed(0)
network = resnet18(10)
process, seen = psutil.Process(), []

def batches():
    for _ in range({STEPS}):
        memory = process.memory_info()
        seen.append((memory.rss - memory.shared) / 1e6)
        images = torch.randint(0, 255, (48, 96, 96, 3), dtype=torch.uint8)
        yield images.permute(0, 3, 1, 2).float().div_(255), torch.randint(0, 10, (48,))

optimizer = torch.optim.SGD(network.parameters(), 1e-3)
for images, labels in batches():
    loss = cross_entropy(network(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(json.dumps(seen))
"""


@pytest.mark.parametrize("allocator", ["jemalloc", "system"])
def test_a_worker_does_not_grow_from_step_to_step(allocator):  # E7
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", LOOP]
    known = SETTINGS | JobProcesses(allocator=allocator).environment
    if allocator == "jemalloc":  # as Ray does it
        known["LD_PRELOAD"] = str(JEMALLOC_SO)
    seen = json.loads(ran.output(command, env=os.environ | known, cwd=root, timeout=280))
    assert len(seen) == STEPS
    # The first two steps make lasting objects: gradients, and the libraries' caches.
    assert seen[-1] - seen[2] < GROWTH_MB, seen
