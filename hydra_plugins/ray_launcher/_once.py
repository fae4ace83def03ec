"""Composes each point once, though Hydra's sweeper composes all of a batch to look for mistakes."""

from collections.abc import Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from omegaconf import DictConfig


class Once:
    """Hydra's loader, which keeps the sweeper's points for the launcher."""

    def __init__(self, loader: ConfigLoader) -> None:
        self.loader = loader  # Hydra's own
        self._kept: dict[tuple[str, ...], DictConfig] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def load_sweep_config(
        self, master_config: DictConfig, sweep_overrides: list[str]
    ) -> DictConfig:
        """Composes a point, for a sweeper that checks whether it can be composed."""
        composed = self.loader.load_sweep_config(master_config, sweep_overrides)
        self._kept[tuple(sweep_overrides)] = composed
        return composed

    def take(self, master_config: DictConfig, overrides: Sequence[str]) -> DictConfig:
        """Return a point's configuration, which no other caller gets."""
        kept = self._kept.pop(tuple(overrides), None)
        if kept is not None:
            return kept
        return self.loader.load_sweep_config(master_config, list(overrides))
