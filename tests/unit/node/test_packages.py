"""What jobs need comes into a pod whose image has Ray alone: once, whole, and for that Ray only."""

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from node import packages
from tests import ran

REQUIREMENTS = Path(__file__).parents[3] / "docker" / "ray"
PYTHON, RAY = ".".join(platform.python_version_tuple()[:2]), version("ray")
UV = """echo ran $3 $4 >> "$(dirname "$0")/log"
for word; do case $word in --target=*) to=${word#*=}; mkdir -p $to && touch $to/by_uv.py; esac; done
"""


@pytest.fixture
def pod(tmp_path):
    """Start the module as a pod does; its uv says that it ran, and installs one file."""
    for name, text in packages.files(REQUIREMENTS).items():
        (tmp_path / name).write_text(text)

    def start(uv=UV, ray=RAY, python=PYTHON, path=f"{tmp_path}:{os.defpath}"):
        for name, text in {"uv": uv, "python": f'exec {sys.executable} "$@"\n'}.items():
            (new := tmp_path / f"new-{name}").write_text(f"#!/bin/sh\n{text}")
            new.chmod(0o755)
            new.replace(tmp_path / name)  # the one before may run
        arguments = ["sh", tmp_path / packages.FILE, ray, python, "take rayproject/ray:2"]
        return subprocess.Popen(
            ["/bin/sh", "-c", packages.START, *arguments],
            env={"PATH": path, packages.BASE: str(tmp_path / "packages" / "1")},
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def test_all_packages_of_our_image_come_but_ray():  # E2
    found = packages.files(REQUIREMENTS)
    before, _, rest = (REQUIREMENTS / "requirements.txt").read_text().partition(f"\nray=={RAY}")
    assert found["requirements.txt"] == before + rest[rest.index("\nray-haproxy==") :]


def test_pods_of_one_volume_install_once_and_their_python_finds_it(pod, tmp_path):  # E2
    volume = tmp_path / "packages"
    (volume / "new" / "lib").mkdir(parents=True)  # of a pod that was killed
    failed = pod(uv=f"{UV}exit 2\n")
    assert "uv ended with 2): nodes need a package index" in failed.communicate()[1]
    assert not (volume / "1").exists()
    both = [pod(), pod()]
    assert [(each.communicate()[1], each.returncode) for each in both] == [("", 0)] * 2
    assert (tmp_path / "log").read_text() == "ran --no-deps --require-hashes\n" * 2
    assert sorted(each.name for each in volume.iterdir()) == ["1", "lock"]
    python = Path(sys.base_prefix, "bin", f"python{PYTHON}")  # no virtual environment, as in pods
    ran.output([python, "-c", "import by_uv"], env={packages.BASE: str(volume / "1")})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ray": "1.0"}, f"The image has Ray {RAY}, not 1.0: take rayproject/ray:2"),
        ({"python": "2.7"}, f"The image has Python {PYTHON}, not 2.7: take rayproject/ray:2"),
        ({"path": "/none"}, "The image has no python: take rayproject/ray:2"),
    ],
)
def test_an_image_without_that_ray_says_which_one_it_should_be(pod, changes, said):  # E2
    done = pod(**changes)
    assert (done.communicate()[1], done.returncode) == (f"{said}\n", 1)
