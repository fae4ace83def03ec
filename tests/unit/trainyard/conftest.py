"""No job reads the settings of the user who runs the tests; and a run that logs."""

import os
from collections.abc import Iterator

import pytest

from tests.client import Train
from trainyard import figures
from trainyard.store.objects import FolderStore


@pytest.fixture(scope="session", autouse=True)
def anyio_backend() -> str:
    """Tests and fixtures that are coroutines run in one loop each test, by the plugin of anyio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _no_settings_of_the_caller(monkeypatch) -> None:
    for name in list(os.environ):
        if name.startswith(("TRAINYARD_", "RAY_", "AWS_")):
            monkeypatch.delenv(name)


@pytest.fixture
def train(monkeypatch, capsys) -> Train:
    return Train(monkeypatch, capsys)


@pytest.fixture
def store(tmp_path, monkeypatch) -> Iterator[FolderStore]:
    """The store of the run `mine`, which this process logs into."""
    found = FolderStore(tmp_path)
    monkeypatch.setenv("TRAINYARD_STORAGE_URL", found.where)
    monkeypatch.setenv("TRAINYARD_RUN", "mine")
    monkeypatch.setattr(figures, "_kept", {})
    monkeypatch.setattr(figures, "PAUSE_S", 0.05)
    yield found
    figures.finish()  # its thread would write on
