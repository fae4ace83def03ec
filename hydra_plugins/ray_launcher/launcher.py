"""The launcher that Hydra calls.

Hydra imports this module whenever it looks for plugins: `launch` imports the slow modules.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from hydra.core.config_loader import ConfigLoader
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.ray_launcher import _config  # noqa: F401 - registers the settings
from hydra_plugins.ray_launcher._once import Once


class RayLauncher(Launcher):
    """Runs points on a stack's cluster."""

    def __init__(self, **settings: Any) -> None:
        """Takes the settings of `RayLauncherConf`; each point has its own amounts of them."""
        self._settings = settings

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Takes the needs of a launch."""
        self._function, self._config = task_function, config
        self._context = replace(hydra_context)
        self._loader = Once(hydra_context.config_loader)
        hydra_context.config_loader = cast(ConfigLoader, self._loader)  # the sweeper's too

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Runs points to their end; one that fails stops no other.

        Raises:
            CompactHydraException: with one message for the user.
            SystemExit: 130, the user pressed Ctrl-C.
        """
        from hydra_plugins.ray_launcher import _launching  # noqa: PLC0415 - slow

        return _launching.launch(
            self._settings,
            _launching.Task(self._context, self._loader, self._function, self._config),
            job_overrides,
            initial_job_idx,
        )
