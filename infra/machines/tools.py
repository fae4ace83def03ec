"""The programs that the services of this machine need, and the fallbacks where one is missing."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi

from cluster import object_store
from cluster.descriptor import Descriptor, Source
from cluster.store_kind import StoreKind
from infra.machines import go_tool, local
from infra.machines.go_programs import DEFAULT, MONITORING, STORES
from infra.machines.go_tool import GoTool
from infra.operate.checkout import ROOT
from infra.settings import versions

DOCKER = ROOT / "docker"
AUTO, DIRECTORY = "auto", "directory"
GO = ".".join(str(part) for part in versions.GO_FOR_STORES)
HAVE_STORE = f"install Go {GO} or later (go.dev/dl) to have it built"


@dataclass(frozen=True, kw_only=True)
class Tools:
    """Paths of the programs, by the name that services know them by.

    Attributes:
        paths: executables, without those that this machine lacks.
        store: which object store runs, None for a folder.
    """

    paths: Mapping[str, pulumi.Input[str]]
    store: StoreKind | None


def find(setting: str, data: Path, wanted: Iterable[Descriptor]) -> Tools:
    """Find the programs of the wanted services; declare the builds of those that Go builds.

    Raises:
        pulumi.RunError: a store is asked for and not available.
    """
    store, store_paths = _store(setting, chosen(setting, data))
    for name in object_store.STORES:
        if store and name != store.name and has_results(data, name):
            pulumi.log.warn(
                f"{data}/{name} holds results of {name}, which {store.name} cannot read: they stay "
                f"there, and are back with objectStore = {name!r}"
            )
    paths: dict[str, pulumi.Input[str]] = dict(store_paths)
    for service in wanted:
        match service.source:
            case Source.ENVIRONMENT | Source.MODULE:
                paths[service.program] = local.environment_program(service.program)
            case Source.MACHINE:
                if found := _monitoring(service):
                    paths[service.program] = found
            case Source.CHECKOUT:
                paths[service.program] = str(DOCKER / service.program / f"{service.program}.py")
    return Tools(paths=paths, store=store)


def for_hosts(setting: str, *, hosts: int) -> Tools:
    """Find the object store of this machine, for the first of other machines.

    Raises:
        pulumi.RunError: a store is asked for or needed, and not available.
    """
    store, paths = _store(setting, DEFAULT if setting == AUTO else setting)
    if hosts > 1 and store is None:
        raise pulumi.RunError(
            f"{hosts} hosts need an object store: the others cannot read a folder of one; "
            f"on this machine, {HAVE_STORE}"
        )
    return Tools(paths=paths, store=store)


def chosen(setting: str, data: Path) -> str:
    """Return the chosen store: for `auto` the one that has results already."""
    if setting != AUTO:
        return setting
    return next((name for name in object_store.STORES if has_results(data, name)), DEFAULT)


def in_container(setting: str) -> str:
    """Return the name of the object store of a stack in containers."""
    return DEFAULT if setting == AUTO else setting


def has_results(data: Path, name: str) -> bool:
    """Return whether a data folder holds data of a store."""
    folder = data / name / "data"
    return folder.is_dir() and any(folder.iterdir())


def _monitoring(service: Descriptor) -> pulumi.Input[str] | None:
    """Return the program that `make monitoring` built, else that on PATH; None without either.

    In this order: an older Prometheus on PATH may be unable to read the data of the built one.
    Where an earlier version was built, the pinned one is built.
    """
    program = MONITORING[service.program]
    if program.was_built and program.obtainable:
        return GoTool(program.name, go_tool.properties(program)).path
    return next(filter(None, map(shutil.which, service.names)), None)


def _store(setting: str, name: str) -> tuple[StoreKind | None, dict[str, pulumi.Input[str]]]:
    if name == DIRECTORY:
        return None, {}
    program, kind = STORES[name], object_store.STORES[name]
    if program.obtainable:
        return kind, {name: GoTool(name, go_tool.properties(program)).path}
    if setting != AUTO:
        raise pulumi.RunError(
            f"objectStore = {setting!r}, and no Go {GO} or later is on PATH: {HAVE_STORE}; or set "
            "objectStore to auto or directory"
        )
    pulumi.log.info(
        f"No object store: results go to a folder of this machine. To have {kind.title}, "
        f"{HAVE_STORE}"
    )
    return None, {}
