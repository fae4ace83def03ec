"""No job reads the settings of the user who runs the tests."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_settings_of_the_caller(monkeypatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TRAINYARD_", "RAY_", "AWS_")):
            monkeypatch.delenv(name)
