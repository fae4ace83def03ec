"""Prometheus' own tools, for tests: built by `make monitoring`, otherwise on PATH."""

import shutil

import pytest

from infra.machines.go_build import is_whole
from infra.machines.go_programs import TOOLS

PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}  # Debian's


def find(name: str) -> str:
    """Return the path of a tool, "" where the machine has none."""
    built = TOOLS[name].path
    return str(built) if is_whole(built) else shutil.which(name) or ""


def needs(name: str) -> pytest.MarkDecorator:
    """Skip a test where a tool is missing."""
    return pytest.mark.skipif(
        not find(name),
        reason=f"no {name}: run `make monitoring`, or install Debian's package {PACKAGES[name]}",
    )
