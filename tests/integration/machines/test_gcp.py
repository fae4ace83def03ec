"""The set-up of nodes in the file for Google Cloud, run in a home folder of this machine."""

import os
import re
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from infra.settings import versions
from tests import ran
from tests.fakes.machines import uv_cache
from trainyard.quickstart import gcp

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

CLUSTER = {"project": "my-project-1", "zone": "us-central1-a", "cidr": "192.0.2.0/24"}
INSTALLED = re.compile(r"^ \+ ([\w-]+)==", re.MULTILINE)
USE = "import ray, torch; m = torch.ones(3, 3); print(ray.__version__, (m @ m).sum().item())"


def test_nodes_compute_with_the_packages_of_their_group(tmp_path):  # B24 B29
    file, _ = gcp.write(gcp.GcpCluster(name="trainyard", **CLUSTER), tmp_path / "c.yaml")
    config = yaml.safe_load(file.read_text())
    # Next to uv's cache, whose packages are gigabytes: links have to reach it.
    with tempfile.TemporaryDirectory(dir=uv_cache.folder().parent) as folder:
        home = Path(folder)
        for each in ("trainyard", "bin"):
            (home / each).mkdir()
        lists = config["file_mounts"]["~/trainyard/requirements"]
        (home / "trainyard/requirements").symlink_to(lists)  # where the launcher copies it
        (home / "bin/rsync").touch(mode=0o755)  # what the machine's own packages would bring
        path = f"{home}/bin:{sys.base_prefix}/bin:/usr/bin:/bin"
        environment = os.environ | {"HOME": folder, "PATH": path}
        environment |= {"UV_CACHE_DIR": str(uv_cache.folder())}

        def run(command: str) -> str:
            return ran.output(["/bin/bash", "-c", f"exec 2>&1; {command}"], env=environment)

        *first, sync, _ = config["available_node_types"]["tpu"]["worker_setup_commands"]
        for command in first:
            run(command)
        # PyTorch/XLA has 8 GB, so here uv finds out only that these packages fit together.
        tried = sync.replace("sync --quiet", "install --dry-run", 1)
        said = run(tried.replace("~/trainyard/requirements/", "-r ~/trainyard/requirements/"))
        assert {"libtpu", "ray", "torch", "torch-xla"} <= {*INSTALLED.findall(said)}
        for command in config["setup_commands"]:
            run(command)
        said = run(f'~/trainyard/env/bin/python -c "{USE}" && ~/.local/bin/ray --version')
        assert said.splitlines() == [f"{versions.RAY} 27.0", f"ray, version {versions.RAY}"]
