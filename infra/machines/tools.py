"""The programs that the services of this machine need, and the fallbacks where one is missing."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi

from cluster import object_store
from cluster.descriptor import Descriptor, Source
from cluster.storage import FOLDER
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
        paths: executables by program, or by service; without those that this machine lacks.
        store: which object store runs, None for a folder.
    """

    paths: Mapping[str, pulumi.Input[str]]
    store: StoreKind | None


def find(setting: str, data: Path, wanted: Iterable[Descriptor]) -> Tools:
    """Find the programs of the wanted services; declare the builds of those that Go builds.

    Raises:
        pulumi.RunError: a store is asked for and not available.
    """
    kind = chosen(setting, data)
    store, store_paths = _store(kind)
    for name, folder in _results(data).items():
        if name != kind:
            pulumi.log.warn(
                f"{folder} holds results that this stack's store, {kind!r}, does not show: they "
                f"stay there, and are back with objectStore = {name!r} and without storeFrom"
            )
    paths: dict[str, pulumi.Input[str]] = dict(store_paths)
    for service in wanted:
        match service.source:
            case Source.ENVIRONMENT | Source.MODULE:
                paths[service.program] = local.environment_program(service.program)
            case Source.MACHINE:
                if found := _monitoring(service):
                    paths[service.program] = found
            case Source.CHECKOUT if service.commands:
                paths[service.name] = local.environment_program(service.commands[0])
            case Source.ADDED:
                if Path(local.environment_program(service.commands[0])).exists():
                    paths[service.program] = str(DOCKER / service.program / f"{service.program}.sh")
            case Source.CHECKOUT:
                paths[service.program] = str(DOCKER / service.program / f"{service.program}.py")
    return Tools(paths=paths, store=store)


def for_hosts(setting: str, *, hosts: int) -> Tools:
    """Find the object store of this machine, for the first of other machines.

    Raises:
        pulumi.RunError: a store is asked for or needed, and not available.
    """
    name = in_container(setting)
    if hosts == 1 and setting == AUTO and not STORES[name].obtainable:
        pulumi.log.info(
            "No object store: results go to a folder of the host. To have "
            f"{object_store.STORES[name].title}, {HAVE_STORE}"
        )
        name = DIRECTORY
    store, paths = _store(name, hosts)
    return Tools(paths=paths, store=store)


def chosen(setting: str, data: Path) -> str:
    """Return the chosen store: for `auto` the one that has results already, else a folder.

    A folder does on one machine, and Go takes minutes to build a store.
    """
    if setting != AUTO:
        return setting
    return next(iter(_results(data)), DIRECTORY)


def in_container(setting: str) -> str:
    """Return the name of the object store of a stack in containers or on other machines."""
    return DEFAULT if setting == AUTO else setting


def _results(data: Path) -> dict[str, Path]:
    """Return where a data folder holds results, by the choice of objectStore that reads them."""
    folders = {name: data / name / "data" for name in object_store.STORES}
    folders[DIRECTORY] = data / FOLDER
    return {name: at for name, at in folders.items() if at.is_dir() and any(at.iterdir())}


def _monitoring(service: Descriptor) -> pulumi.Input[str] | None:
    """Return the program that `make monitoring` built, else that on PATH; None without either.

    In this order: an older Prometheus on PATH may be unable to read the data of the built one.
    Where an earlier version was built, the pinned one is built.
    """
    program = MONITORING[service.program]
    if program.was_built and program.obtainable:
        return GoTool(program.name, go_tool.properties(program)).path
    return next(filter(None, map(shutil.which, service.names)), None)


def _store(name: str, machines: int = 1) -> tuple[StoreKind | None, dict[str, pulumi.Input[str]]]:
    if name == DIRECTORY:
        return None, {}
    program = STORES[name]
    if program.obtainable:
        return object_store.STORES[name], {name: GoTool(name, go_tool.properties(program)).path}
    instead = f"{machines} hosts cannot share a folder of one"
    if machines == 1:
        instead = f"or set objectStore to directory, which does not show results of {name}"
    raise pulumi.RunError(
        f"the object store is {name}, and no Go {GO} or later is on PATH: {HAVE_STORE}; {instead}"
    )
