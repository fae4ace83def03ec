"""A stack of Ray's own image and a folder of the node: nothing is built, and no store runs."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from infra.settings import versions
from infra.settings.images import CONTEXTS
from node import packages
from tests.integration.infra.kubernetes.conftest import GROUP, give_to_pods, train

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

JOB = ("submit", "pytorch_distributed_training", "--name", "shirts", "--")
JOB += ("--data", "digits", "--epochs", "1", "--workers", "1")


def test_a_job_trains_with_rays_own_image_and_another_image_is_one_message(  # E2 E6
    namespace, make_lab, tmp_path, wait_for
):
    where = {"shared": {"hostPath": str(tmp_path)}, "image": "trainyard-test/ray-alone:latest"}
    # Pods here reach no package index: this machine installs by their module, from uv's cache.
    files, of_stack = packages.files(CONTEXTS / "ray"), tmp_path / "test"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    target = of_stack / "packages" / packages.version(files)
    cached = {packages.BASE: str(target), "UV_CACHE_DIR": str(Path.home() / ".cache/uv")}
    cached["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # has uv
    python = "{}.{}".format(*sys.version_info)
    command = [sys.executable, tmp_path / packages.FILE, versions.RAY, python, "none"]
    subprocess.run(command, env={**os.environ, **cached}, check=True)
    for path in (tmp_path, of_stack, target.parent, target.parent / "lock"):
        give_to_pods(path)
    start = datetime.now(UTC)
    reserved = {"start": start, "end": start + timedelta(hours=2)}
    lab = make_lab(
        namespace,
        reservation={key: f"{time:%Y-%m-%dT%H:%MZ}" for key, time in reserved.items()},
        idleEnd={"minutes": 1},
        kubernetes=where,
        images={"prometheus": "trainyard-test/prometheus:latest"},
        objectStore="directory",
        accelerator="none",
        nodeGroups=[GROUP],
    )
    try:
        lab.stack.engine("up", "--yes")
        train(lab, lab.stack.write_outputs(tmp_path), *JOB)
        assert [*of_stack.glob("storage/shirts/checkpoint_*/manifest.json")]
        wait_for(lambda: not lab.pods(), 240)  # B27
        lab.stack.engine("up", "--yes")
        assert lab.pods("head")
        lab.stack.change("reservation", "idleEnd")
        wrong = {**lab.stack.settings["kubernetes"], "image": "trainyard-test/base:latest"}
        lab.stack.change(kubernetes=wrong, startTimeoutSeconds=30)
        done = lab.stack.engine("up", "--yes", check=False)
        assert "The image has no python: set kubernetes.image" in done.stdout + done.stderr
    finally:
        lab.stack.engine("destroy", "--yes")
