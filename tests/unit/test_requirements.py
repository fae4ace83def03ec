"""The locks: environments of conda install them, and all nodes have the same packages."""

import re
from pathlib import Path

import pytest
import yaml

from infra.settings import versions

FOLDER = Path(__file__).parents[2] / "requirements"
# PyTorch's dependencies, in the versions that go with it.
OF_PYTORCH = ("torch", "nvidia-", "cuda-", "triton", "libtpu", "setuptools")


def locked(name: str) -> dict[str, str]:
    text = (FOLDER / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([^\s;]+)", text, re.MULTILINE))


@pytest.mark.parametrize("accelerator", ["cpu", "gpu", "tpu"])
def test_an_environment_of_conda_installs_a_lock(accelerator):  # B4 B24
    path = FOLDER / "conda" / f"environment_{accelerator}.yaml"
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert found["name"] == f"trainyard-{accelerator}"
    # Nobody here can ask conda's registry, so nothing comes from there but what it surely has.
    assert found["channels"] == ["conda-forge"]
    *from_conda, of_pip = found["dependencies"]
    assert from_conda == [f"python={next(iter(versions.IMAGE_BASES))}", "pip"]
    ((option, lock),) = (line.split(" ") for line in of_pip.pop("pip"))
    assert (option, of_pip) == ("-r", {})
    assert "--hash=sha256:" in (path.parent / lock).read_text(encoding="utf-8")
    # As in the runtime environment of that name.
    runtime = FOLDER.parent / "training/config/runtime" / f"{accelerator}.yaml"
    assert found["variables"] == yaml.safe_load(runtime.read_text(encoding="utf-8"))["env_vars"]


def test_a_tpu_host_has_the_packages_of_the_others_but_for_pytorch():  # B24
    tpu, others = locked("tpu.txt"), locked("base.txt")
    assert {"ray", "lightning", "torch-xla", "libtpu"} <= tpu.keys()
    differ = {name for name in tpu.keys() & others.keys() if tpu[name] != others[name]}
    assert all(name.startswith(OF_PYTORCH) for name in differ)
