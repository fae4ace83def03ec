"""A script to sweep over: its points return, fail or wait as their settings say."""

import importlib
import time
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig

ConfigStore.instance().store(name="swept", node={"x": 0, "wait_for": None, "module": None})


@hydra.main(version_base="1.3", config_path=None, config_name="swept")
def main(config: DictConfig) -> dict[str, float]:
    if config.wait_for:
        Path(f"{config.wait_for}.{config.x}").touch()
        while not Path(config.wait_for).exists():
            time.sleep(0.05)
    if config.x == 2:
        raise ValueError("two is too much")
    Path(hydra.core.hydra_config.HydraConfig.get().runtime.output_dir, "left.txt").write_text("x")
    print(f"x is {config.x}")  # noqa: T201
    if config.module:
        return {"loss": importlib.import_module(config.module).of(config.x)}
    return {"loss": 1 / (1 + config.x)}


if __name__ == "__main__":
    main()
