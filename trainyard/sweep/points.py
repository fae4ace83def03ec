"""A sweep's data for the nodes, in the package `trainyard_sweep`, uploaded with each job.

Not in `point`: that runs as __main__, and unpickled objects would belong to another module.
"""

import importlib.resources
from dataclasses import dataclass
from typing import Any

import cloudpickle
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from trainyard.user_code import load_script

PACKAGE = "trainyard_sweep"
FILE = "points.pickle"


@dataclass(frozen=True)
class ScriptFunction:
    """A function of an uploaded script: pickled by value it would include its modules."""

    command: tuple[str, ...]  # starts the script, as `python -m MODULE` or `python FILE`
    name: str  # of the function
    layers: int  # decorators around the function, Hydra's among them

    def find(self) -> TaskFunction:
        """Loads the script, and returns the function that Hydra has wrapped."""
        function = getattr(load_script(self.command[-1]), self.name)
        for _ in range(self.layers):
            function = function.__wrapped__
        found: TaskFunction = function
        return found


@dataclass(frozen=True, kw_only=True)
class Points:
    """Everything that the nodes must know of a sweep."""

    sweep: str  # its name
    function: TaskFunction | ScriptFunction  # each point calls it with its configuration
    context: HydraContext  # Hydra's, with the user's callbacks
    state: dict[str, Any]  # Hydra's singletons and the user's resolvers
    configs: dict[int, DictConfig]  # of the points, by their numbers


def load_points() -> Points:
    """Return the points that were uploaded with this job."""
    # The content is the user's own, sent with the job like the code.
    packed = importlib.resources.files(PACKAGE).joinpath(FILE).read_bytes()
    points: Points = cloudpickle.loads(packed)
    return points
