"""Lightning's code for TPUs on PyTorch/XLA, which computes on its CPU device.

XLA's own environment has 8 GB, so this runs only where somebody has made it. Its CPU device has no
collective operations between several devices that end, so Lightning has one.
"""

import hashlib
import os
from pathlib import Path

import pytest

from tests import ran
from tests.integration.training.conftest import REPOSITORY

LOCK = REPOSITORY / "requirements/tpu.txt"
DIGEST = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:8]
FOLDER = Path.home() / f".cache/trainyard-tests/tpu-{DIGEST}"
PYTHON = FOLDER / "bin/python"
UV = ".venv/bin/uv"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not PYTHON.exists(),
        reason=f"no PyTorch/XLA (8 GB, a minute): {UV} venv --python 3.11 {FOLDER} && "
        f"{UV} pip install --require-hashes --python {FOLDER} -r requirements/tpu.txt",
    ),
]
# Lightning counts the chips that are attached to the machine.
COUNTED = """
import sys
from hydra import compose, initialize_config_dir
from lightning.fabric.accelerators.xla import XLAAccelerator
from trainyard.client import scripts
from trainyard.jobs import train_lightning

XLAAccelerator.auto_device_count = staticmethod(lambda: 1)
with initialize_config_dir(str(scripts.JOBS / "config"), version_base="1.3"):
    config = compose("train_lightning", sys.argv[1:])
print(train_lightning.main.__wrapped__(config))
"""
ON_CPU = {"PJRT_DEVICE": "CPU"}
FEW = ("accelerator=tpu", "data.limit=32", "train.epochs=1")


def test_lightning_trains_on_an_xla_device(tmp_path):  # B21 B24
    script = tmp_path / "counted.py"
    script.write_text(COUNTED)
    env = os.environ | ON_CPU | {"PYTHONPATH": str(REPOSITORY)}
    out = ran.output([PYTHON, script, *FEW, "devices=1"], cwd=tmp_path, env=env)
    assert "parameters on 1 x tpu" in out
    assert "valid_acc" in out
