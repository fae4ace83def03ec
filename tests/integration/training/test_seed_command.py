"""The command of the PoC on Lambda, from train/: Ray's own client, its `pip` list, no arguments."""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests import ran
from tests.unit.trainyard import cifar10_files
from trainyard.data import node_folder

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

TRAIN = Path(__file__).resolve().parents[3] / "train"
PACKAGES = ["numpy", "torch", "torchvision", "torchaudio", "matplotlib", "pandas", "ray[train]"]
JOB_DEADLINE_S = 300
LARGEST_ENVIRONMENT = 2**20  # bytes; a copy of the nodes' own would have 6 GB


def write_wheel(folder: Path, module: str) -> None:
    """Writes a package that pip finds instead of an index: torchaudio, which nodes do not have."""
    with zipfile.ZipFile(folder / "torchaudio-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("torchaudio.py", module)
        about = {
            "METADATA": "Metadata-Version: 2.1\nName: torchaudio\nVersion: 1\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }
        for name, text in about.items():
            wheel.writestr(f"torchaudio-1.dist-info/{name}", text)


def test_the_seeds_command_trains_on_cifar10(  # A30, A31, A32, A33, A34, A35
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(tmp_path, cifar10_files.write_for_others(tmp_path, monkeypatch))
    no_network = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    runtime = {
        "pip": PACKAGES,
        "env_vars": {node_folder.FOLDER_VARIABLE: str(tmp_path), **no_network},
        "worker_process_setup_hook": "torchaudio.begin",
    }
    ours = {k: v for k, v in cluster.ray_env.items() if k.startswith(("RAY_AUTH", "PATH"))}
    # This node counts a GPU, for which the job asks.
    with cluster.add_node("--num-cpus=1", "--num-gpus=1"):
        done = ran.run(
            [
                *(sys.executable, "-m", "ray.scripts.scripts", "job", "submit"),
                *(f"--runtime-env-json={json.dumps(runtime)}", "--working-dir", ".", "--"),
                *("python", "alexnet_cifar10_ray.py"),
            ],
            cwd=TRAIN,
            env=os.environ | ours | {"RAY_ADDRESS": cluster.outputs["dashboardUrl"]},
            timeout=JOB_DEADLINE_S,
        )
        listed = cluster.api("/api/v0/placement_groups?detail=1")["data"]["result"]["result"]
    out = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    assert done.returncode == 0, out
    bundles = [bundle["unit_resources"] for group in listed for bundle in group["bundles"]]
    assert {"CPU": 1.0, "GPU": 1.0} in bundles, listed
    assert "training on CPUs" not in out
    for item in (
        rf"Job submission server address: {cluster.outputs['dashboardUrl']}$",
        r"Uploading package gcs://_ray_pkg_\w+\.zip\.",
        r"Creating a file package for local (module|directory) '\.'\.",
        r"Job 'raysubmit_\w+' submitted successfully$",
        r"\(RayTrainWorker pid=\d+\) \{'loss': \d\.\d+, 'epoch': 0\}",
        r"Epoch: 001/001 \| Train\. Acc\.: \d+\.\d{3}% \| Loss: \d\.\d{4}",
        r"Epoch: 001/001 \| Valid\. Acc\.: \d+\.\d{3}% \| Loss: \d\.\d{4}",
        r"^Total Training Time: \d+\.\d\d min$",
        r"^Test ACC: \d+\.\d\d%$",
        r"Job 'raysubmit_\w+' succeeded$",
    ):
        assert re.search(item, out, re.MULTILINE), f"{item}\n{out}"
    made = [path for path in cluster.folder.rglob("runtime_resources/pip/*") if path.is_dir()]
    assert made
    for environment in made:
        files = [path for path in environment.rglob("*") if not path.is_symlink()]
        assert sum(path.stat().st_size for path in files) < LARGEST_ENVIRONMENT
