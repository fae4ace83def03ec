"""The training of the project that `train init` writes, without Ray: the effect of its settings."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trainyard.quickstart

SOURCE = Path(trainyard.quickstart.__file__).parent / "project/src"


def test_settings_force_the_cpu_and_shorten_the_data(  # C16 C21
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    class Trainer:
        def __init__(self, _: Any, **options: Any) -> None:
            asked.update(options)

        def fit(self, syncer: Any, **_: Any) -> Any:
            assert syncer is None  # trained here
            return SimpleNamespace(metrics={"accuracy": 0.5}, checkpoint="there")

    spec = importlib.util.spec_from_file_location("config", SOURCE / "config/__init__.py")
    assert spec is not None
    assert spec.loader is not None
    config: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    monkeypatch.setitem(sys.modules, "config", config)
    monkeypatch.setattr(trainyard.quickstart, "TorchTrainer", Trainer)
    monkeypatch.setattr(sys, "argv", ["train_digits.py", "--name", "first"])
    config.RUN_ON_RAY_CLUSTER = False

    def train() -> tuple[bool, int]:
        runpy.run_path(str(SOURCE / "train_digits.py"), run_name="__main__")
        return asked["scaling_config"].use_gpu, asked["train_loop_config"]["examples"]

    assert train() == (True, 0)
    config.FORCE_CPU, config.TRUNCATE_DATASET_TO_SIZE = True, 100
    assert train() == (False, 100)
    assert asked["run_config"].name == "first"
    assert "accuracy 50.00%; checkpoint there" in capsys.readouterr().out
