"""The environment of a machine from a file of conda: the script that runs there, a real solver."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.machines import environment, local
from infra.machines.bundle import bundle
from infra.settings import versions
from node.folders import FolderMark
from tests import ran
from tests.fakes import conda
from tests.fakes.machines import uv_cache
from tests.host_facts import machine

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
MARK = FolderMark(id="0123abcd", project="lab", stack="dev", by="ada@host")


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder next to uv's cache, whose packages are gigabytes: links have to reach it."""
    with tempfile.TemporaryDirectory(dir=uv_cache.folder().parent) as folder:
        uv = Path(folder) / ".trainyard/lab-dev/uv/bin/uv"
        uv.parent.mkdir(parents=True)
        uv.symlink_to(local.environment_program("uv"))
        yield Path(folder)


def _make(home: Path, own: Path) -> str:
    """Have the environment made from a file as `up` does it; what is said."""
    content = environment.own_file(str(own))
    shutil.copy(bundle(own=content), home / "lab-dev.tar.gz")
    args = environment.EnvironmentArgs(ray=versions.RAY, own=content)
    script = environment.install_script(machine(home=home), args, gpus=0, head=None, mark=MARK)
    return ran.output(
        ["/bin/sh", "-c", script],
        env={
            **os.environ,
            "HOME": str(home),
            "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin",
            "UV_CACHE_DIR": str(uv_cache.folder()),
        },
    )


def test_conda_makes_the_environment_and_the_services_packages_are_added(home, tmp_path):  # A5, B4
    conda.write(home)
    file = tmp_path / "environment.yaml"
    channel = f"name: mine\nchannels: [{conda.channel(tmp_path / 'channel')}]\n"
    file.write_text(f"{channel}dependencies: [python={conda.PYTHON}, canary]\n")
    assert "installing the" in _make(home, file)
    env = home / ".trainyard/lab-dev/env"
    look = "import canary, sys; from importlib import metadata as m; print(m.version('ray'), "
    found = subprocess.check_output(
        [env / "bin/python", "-c", f"{look}canary.SONG, sys.prefix)"], text=True
    )
    assert found == f"{versions.RAY} sung {env}\n"
    assert [path.name for path in (env / "conda-meta").glob("canary*")] == ["canary-1.0-0.json"]
