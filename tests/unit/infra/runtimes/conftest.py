"""What this machine has in common for all stacks is each test's own here."""

from pathlib import Path

import pytest

from infra.runtimes import claims


@pytest.fixture(autouse=True)
def claimed(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of claims."""
    folder = tmp_path_factory.mktemp("claims")
    monkeypatch.setattr(claims, "FOLDER", folder)
    monkeypatch.setattr(claims, "TURN", "\0" + str(folder)[-100:])
    return folder
