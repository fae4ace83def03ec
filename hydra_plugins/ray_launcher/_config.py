"""The settings of the launcher, `hydra.launcher.NAME`; docs/sweeps.md explains them."""

from dataclasses import dataclass
from enum import Enum

from hydra.core.config_store import ConfigStore
from omegaconf import SI


class Unit(Enum):
    """The form of a point on the cluster."""

    job = 0
    task = 1


class Direction(Enum):
    """The better end of the metric."""

    minimize = 0
    maximize = 1


@dataclass
class RayLauncherConf:
    """Hydra checks names and types of given settings against this.

    A configuration may contain the needs of its points: `accelerator` has amounts of these names,
    `sweep` has `metric` and `direction`. Settings that are given here take precedence. Requests are
    those of each point: memory in bytes, custom resources as {TPU: 1}.
    """

    _target_: str = "hydra_plugins.ray_launcher.launcher.RayLauncher"
    unit: Unit = Unit.job  # each point is a job, or a task of one job, which starts sooner
    num_cpus: float = SI("${oc.select:accelerator.num_cpus,1}")
    num_gpus: float = SI("${oc.select:accelerator.num_gpus,0}")
    memory: int | None = SI("${oc.select:accelerator.memory,null}")
    resources: dict[str, float] = SI("${oc.select:accelerator.resources,{}}")  # noqa: RUF009 - text
    runtime_env: str | None = SI("${oc.select:accelerator.runtime_env,null}")  # a name or a file
    metric: str | None = SI("${oc.select:sweep.metric,null}")  # the column to sort the table by
    direction: Direction = SI("${oc.select:sweep.direction,minimize}")  # noqa: RUF009 - text
    stack: str | None = None  # None: TRAINYARD_STACK, else the Ray of RAY_ADDRESS or RAY_IP, or dev
    outputs: str | None = None  # file with the stack's outputs; None is TRAINYARD_OUTPUTS
    working_dir: str | None = None  # folder to upload; None is the script's own


ConfigStore.instance().store(
    group="hydra/launcher", name="ray", node=RayLauncherConf, provider="ray_launcher"
)
