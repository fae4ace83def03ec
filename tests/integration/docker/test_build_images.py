"""Images for a cluster's registry, built as docs/kubernetes.md says, on a real Docker Engine."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from infra import versions

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
REGISTRY = "127.0.0.1:5000/trainyard-test"
# In the place of a registry's; other tests build on them too, so the Engine has most steps cached.
BASES = ("BASE_IMAGE=trainyard-test/base", "GO_IMAGE=trainyard-test/go")


@pytest.fixture
def names(containers, versitygw_image, jupyter_image):
    command = [sys.executable, "-m", "infra.build_images", REGISTRY, "versitygw", "jupyter"]
    command += [f"--build-arg={each}" for each in BASES]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found = yaml.safe_load(done.stdout)["trainyard:images"]
    yield found
    containers.remove()  # they hold the images
    containers.docker("image", "rm", *found.values())


def test_the_images_of_the_page_are_built_by_one_command(containers, names):
    code, said = containers.run(names["versitygw"], "--version")
    assert code == 0, said
    look = (
        "import sys, pathlib; print(sys.version); print(*pathlib.Path('train/training').iterdir())"
    )
    code, said = containers.run(names["jupyter"], "-c", look, options=("--entrypoint=python",))
    assert code == 0
    assert said.startswith(versions.IMAGE_PYTHON)
    assert "train/training/__init__.py" in said
