"""The training of the project that `train init` writes, without Ray: the effect of its settings."""

import importlib.util
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

import trainyard.quickstart
from trainyard.models.char_gpt import SIZES

SOURCE = Path(trainyard.quickstart.__file__).parent / "project/src"


def _settings() -> Any:
    """The module of the project's settings."""
    spec = importlib.util.spec_from_file_location("config", SOURCE / "config/__init__.py")
    assert spec is not None
    assert spec.loader is not None
    config: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    return config


def test_the_model_and_its_training_are_nanogpts():  # C14
    config = _settings()
    model = (config.LAYERS, config.HEADS, config.WIDTH, config.BLOCK, config.BATCH, config.DROPOUT)
    assert (*model, config.STEPS * config.EPOCHS) == SIZES["full"]
    assert config.LEARNING_RATE == 1e-3
    assert (config.TEXT, config.RUN_ON_RAY_CLUSTER) == ("shakespeare", True)


def test_settings_force_the_cpu_and_shorten_the_data(tmp_path, monkeypatch, capsys):  # C15 C16 C21
    asked: dict[str, Any] = {}

    class Trainer:
        def __init__(self, loop: Any, **options: Any) -> None:
            asked.update(options, module=loop.__globals__)

        def fit(self, syncer: Any, **_: Any) -> Any:
            assert syncer is None  # trained here
            model = asked["module"]["network"](asked["train_loop_config"]["characters"])
            torch.save({"model": model.state_dict()}, tmp_path / "state.pt")
            return SimpleNamespace(metrics={"valid_loss": 0.5}, checkpoint=tmp_path)

    config = _settings()
    monkeypatch.setitem(sys.modules, "config", config)
    monkeypatch.setattr(trainyard.quickstart, "TorchTrainer", Trainer)
    monkeypatch.setattr(sys, "argv", ["train_chargpt.py", "--name", "first"])
    monkeypatch.setenv("TRAINYARD_DATA_DIR", str(tmp_path / "texts"))
    config.RUN_ON_RAY_CLUSTER, config.TEXT, config.DATA = False, "python", tmp_path / "data"
    config.LAYERS, config.HEADS, config.WIDTH, config.BLOCK = 1, 1, 8, 16

    def train() -> tuple[bool, int]:
        runpy.run_path(str(SOURCE / "train_chargpt.py"), run_name="__main__")
        batches = asked["module"]["batches"]("val.bin", config.STEPS, torch.device("cpu"))
        sizes = [tuple(batch.shape) for batch in batches]
        assert {*sizes} == {(config.BATCH, config.BLOCK)}
        return asked["scaling_config"].use_gpu, len(sizes)

    assert train() == (True, config.STEPS)
    config.FORCE_CPU, config.TRUNCATE_DATASET_TO_SIZE = True, 100
    assert train() == (False, 1)
    assert asked["run_config"].name == "first"
    assert f"valid. loss 0.5000; checkpoint {tmp_path}" in capsys.readouterr().out
    # Files of nanoGPT's own have the same format: all of the text, two bytes for each character.
    size = sum((config.DATA / name).stat().st_size for name in ("train.bin", "val.bin"))
    assert size > 2 * 400_000
