"""The table of frameworks: all its names are in the installed Ray and among our jobs."""

import ast
import re
from pathlib import Path

import pytest
import ray

from trainyard.client import runtimes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/frameworks.md").read_text(encoding="utf-8")
# Each with its package.
FRAMEWORKS = {
    "PyTorch": "torch",
    "Lightning": "lightning",
    "Hugging Face Transformers": "transformers",
    "Hugging Face Accelerate": "accelerate",
    "DeepSpeed": "deepspeed",
    "TensorFlow": "tensorflow",
    "Keras": "keras",
    "Horovod": "horovod",
    "XGBoost": "xgboost",
    "LightGBM": "lightgbm",
    "JAX": "jax",
}
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| framework", "| ---"))
]


def _names(module: str) -> set[str]:
    """Return a Ray module's names; it is read, because its framework may be missing."""
    path = Path(ray.__file__).parent.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
    return found


def test_the_table_has_each_framework():  # E1
    assert [row[0] for row in ROWS] == [*FRAMEWORKS]


def test_ray_has_what_the_table_names():  # E1
    named = re.findall(r"`(ray\.train[\w.]*)\.(\w+)`", PAGE)
    assert len(named) >= len(FRAMEWORKS)
    missing = [f"{module}.{name}" for module, name in named if name not in _names(module)]
    assert missing == []


def test_our_jobs_are_those_that_the_table_names():  # E1
    jobs = [job for row in ROWS for job in re.findall(r"`([\w/]+)`", row[3])]
    assert jobs
    missing = [job for job in jobs if not (ROOT / f"training/{job}.py").is_file()]
    assert missing == []


@pytest.mark.parametrize("environment", ["accelerate", "lightgbm", "xgboost"])
def test_a_runtime_environment_has_the_version_that_is_tested(environment):  # E1
    (package,) = runtimes.read(runtimes.find(environment))["pip"]
    assert re.match(rf"{environment}(-cpu)?==", package)
    locked = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    assert re.search(rf"^{re.escape(package)} ", locked, re.MULTILINE)


def test_horovod_is_refused_by_ray():  # E1
    path = Path(ray.__file__).parent / "train/v2/horovod/horovod_trainer.py"
    assert "raise DeprecationWarning" in path.read_text(encoding="utf-8")


def test_nodes_have_the_packages_that_the_table_says():  # E1
    locked = (ROOT / "docker/ray/requirements.txt").read_text(encoding="utf-8")
    locked += (ROOT / "docker/ray/torch.txt").read_text(encoding="utf-8")
    for row in ROWS:
        there = re.search(rf"^{FRAMEWORKS[row[0]]}==", locked, re.MULTILINE) is not None
        assert row[2].startswith("yes" if there else "no"), row[0]
