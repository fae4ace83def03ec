"""Points as Hydra composes them, and their results for Hydra."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import cast

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobRuntime, JobStatus, filter_overrides
from hydra.errors import CompactHydraException
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from hydra_plugins.ray_launcher._once import Once
from trainyard.client import runtimes
from trainyard.client.errors import ClientError
from trainyard.client.sweep import records
from trainyard.client.sweep.point import Point, PointOutcome

IDENTITY_LENGTH = 16  # hexadecimal digits
_NO_FOLDERS = {(), *((name,) for name in records.OWN)}
UNSENT = ("launcher", "sweeper")  # typed by plugins, which nodes do not have


@dataclass(frozen=True)
class ComposedPoint:
    """A point and its configuration."""

    point: Point
    config: DictConfig


def compose(
    loader: Once,
    config: DictConfig,
    batch: Sequence[Sequence[str]],
    first: int,
    code: Callable[[Path | None], str],
) -> list[ComposedPoint]:
    """Composes the points of a batch, each from its overrides; `first` is the first one's number.

    `code` returns a digest of the code for a runtime environment. With another digest a point is
    another point.
    """
    found = []
    for number, overrides in enumerate(batch, first):
        each = loader.take(config, overrides)
        with open_dict(each):
            each.hydra.job.num = number
            each.hydra.job.id = ""
        env = each.hydra.launcher.runtime_env
        file = runtimes.find(env) if env else None
        folder = _folder(str(each.hydra.sweep.subdir))
        point = Point(
            number=number,
            overrides=tuple(filter_overrides(overrides)),
            identity=_identity(each, folder, code(file)),
            folder=folder,
            bundle=_bundle(each.hydra.launcher),
            runtime_env=file,
        )
        found.append(ComposedPoint(point, each))
    return found


def sendable(config: DictConfig) -> DictConfig:
    """The configuration without types that the nodes cannot import."""
    sent = config.copy()
    with read_write(sent), open_dict(sent):
        for name in UNSENT:
            plain = OmegaConf.to_container(sent.hydra[name], resolve=False)
            sent.hydra[name] = OmegaConf.create(plain)
    return sent


def state() -> dict[str, object]:
    """Return the singletons that a point needs: job's name, version_base, the user's resolvers."""
    found: dict[str, object] = Singleton.get_state()
    return found | {"instances": {kind: kind.instance() for kind in (JobRuntime, VersionBase)}}


def returned(composed: ComposedPoint, outcome: PointOutcome) -> JobReturn:
    """Return a point's outcome in Hydra's form, with its folder on this machine."""
    config = composed.config
    folder = Path(config.hydra.sweep.dir, str(config.hydra.sweep.subdir)).absolute()
    with read_write(config), open_dict(config):
        config.hydra.job.id = outcome.job or "not sent"
        config.hydra.runtime.output_dir = str(folder)
    ours = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    hydra_config = HydraConfig.instance().cfg
    HydraConfig.instance().cfg = ours
    task = config.copy()
    with read_write(task), open_dict(task):
        del task["hydra"]
    found = JobReturn(
        overrides=list(config.hydra.overrides.task),
        cfg=task,
        hydra_cfg=cast(DictConfig, hydra_config),
        working_dir=str(folder),
        task_name=JobRuntime.instance().get("name"),
        status=JobStatus.FAILED if outcome.error else JobStatus.COMPLETED,
    )
    failure = CompactHydraException(f"error: point {composed.point.label}: {outcome.error}")
    found.return_value = failure if outcome.error else outcome.value
    return found


def _identity(config: DictConfig, folder: str, code: str) -> str:
    """An id that is the same for the same place in a sweep, code, overrides and configuration."""
    unresolved = {
        "number": config.hydra.job.num,
        "folder": folder,
        "name": config.hydra.job.name,
        "code": code,
        "variables": OmegaConf.to_container(config.hydra.job.env_set, resolve=False),
        "chdir": config.hydra.job.chdir,
        "overrides": OmegaConf.to_container(config.hydra.overrides.task),
        "config": {
            str(key): OmegaConf.to_container(value, resolve=False)
            if OmegaConf.is_config(value := config._get_node(key))
            else str(value)
            for key in config
            if key != "hydra"
        },
    }
    text = json.dumps(unresolved, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:IDENTITY_LENGTH]


def _folder(subdir: str) -> str:
    """A point's folder below the sweep's."""
    folder = PurePosixPath(subdir)
    if folder.is_absolute() or ".." in folder.parts or folder.parts[:1] in _NO_FOLDERS:
        raise ClientError(
            f"hydra.sweep.subdir={subdir[:80]} is not a folder of one point below the sweep's: "
            "leave it out, or give one such as '${hydra.job.num}'"
        )
    return folder.as_posix()


def _bundle(launcher: DictConfig) -> dict[str, float]:
    amounts = {"CPU": launcher.num_cpus, "GPU": launcher.num_gpus, "memory": launcher.memory}
    amounts |= launcher.resources
    return {str(name): float(amount) for name, amount in amounts.items() if amount}
