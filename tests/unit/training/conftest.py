"""No job reads the settings of anyone who runs the tests; a run that is done, for drivers."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.trainyard.conftest import _no_settings_of_the_caller
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from trainyard.tracking.runs import Run

__all__ = ["_no_settings_of_the_caller"]


@pytest.fixture
def done(tmp_path, monkeypatch) -> Callable[..., Run]:
    """Makes the run `first` of a driver, which is not to train it again."""
    monkeypatch.setenv(STORAGE_VARIABLE, tmp_path.as_uri())
    monkeypatch.setenv(RUN_VARIABLE, "first")
    monkeypatch.setattr("trainyard.ray_train.connect", lambda: pytest.fail("was trained"))

    def make(config: dict[str, Any], records: list[dict[str, Any]]) -> Run:
        run = Run(tmp_path.as_uri(), "first")
        run.start(config)
        run.write_metrics(records)
        return run

    return make
