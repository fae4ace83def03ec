"""Where the services of a stack go: its runtime, and which services that runtime can run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pulumi

from cluster import (
    dataset,
    gateway,
    grafana,
    monitoring,
    notebook,
    object_store,
    ray_head,
    tracking,
)
from cluster.gateway import Route
from cluster.inputs import lift
from cluster.ray_node import NodeResources
from cluster.ray_worker import service as worker_service
from cluster.service import Runtime
from cluster.store_kind import StoreKind
from infra import tools, versions
from infra.config import Settings
from infra.hosts import accelerators, docker_engine, go_programs
from infra.hosts.machine import Machine
from infra.runtimes.process import ProcessRuntime, ProcessRuntimeArgs

if TYPE_CHECKING:
    from infra.ray_launcher import Launched

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A runtime and what it can run.

    Attributes:
        runtime: the runtime.
        store: which object store runs; None for a folder of this machine in its place.
        prometheus: whether Prometheus runs.
        grafana: whether Grafana runs.
        notebook: whether a notebook runs.
        routes: what others reach through the gateway; empty when they reach nothing.
        gpus: indexes of the accelerators of each worker.
        python: major.minor of the nodes' Python.
        workers: what each worker offers to jobs.
        data: folder of what outlives the stack, where the runtime has one.
        ssh: how users reach the machine that addresses are meant on; {} for this one.
        expires_at: when the machines end themselves, in ISO 8601; "" for never.
        launched: what Ray's own launcher needs, where the stack leaves Ray to it.
    """

    runtime: Runtime
    store: StoreKind | None
    prometheus: bool
    grafana: bool
    notebook: bool
    routes: tuple[Route, ...]
    gpus: tuple[tuple[int, ...], ...]
    python: str
    workers: Sequence[pulumi.Input[NodeResources]]
    data: str
    ssh: Mapping[str, pulumi.Input[Any]] = field(default_factory=dict)
    expires_at: pulumi.Input[str] = ""
    launched: Launched | None = None


def processes(settings: Settings) -> Place:
    """Declare the process runtime of this machine."""
    found = tools.find(settings.object_store, settings.data_dir)
    runtime = ProcessRuntime(
        "local",
        ProcessRuntimeArgs(
            folder=str(settings.state_dir),
            data=str(settings.data_dir),
            keep_data=settings.keep_data,
            identifier=f"{pulumi.get_project()}-{pulumi.get_stack()}",
            executables=found.paths,
            ports=settings.ports(object_store=found.store is not None, prometheus=found.prometheus),
            store=found.store.name if found.store else "",
            start_timeout=settings.start_timeout_seconds,
        ),
    )
    return Place(
        runtime=runtime,
        store=found.store,
        prometheus=found.prometheus,
        grafana=False,
        notebook=False,
        routes=(),
        gpus=((),) * len(settings.workers),
        python=PYTHON,
        workers=settings.workers,
        data=str(settings.data_dir),
    )


def hosts(settings: Settings) -> Place:
    """Declare the process runtime of other machines.

    Raises:
        pulumi.RunError: a machine that is there already cannot be used.
    """
    # Not at the top: what only other machines need costs a stack of this one.
    from infra.hosts import lambda_hosts, ssh_hosts  # noqa: PLC0415
    from infra.ray_launcher import Launched  # noqa: PLC0415
    from infra.runtimes.hosts import HostsRuntime, HostsRuntimeArgs  # noqa: PLC0415

    base = f".trainyard/{pulumi.get_project()}-{pulumi.get_stack()}"
    expires_at: pulumi.Input[str] = ""
    key_file = settings.ssh_key_file
    if settings.lambda_cloud:
        # What is missing is told before anything is rented.
        found = tools.for_hosts(settings.object_store, hosts=settings.on_hosts)
        fleet = lambda_hosts.Fleet("lambda", settings, base=base)
        machines, expires_at, key_file = fleet.machines, fleet.expires_at, fleet.key_file
    else:
        machines = ssh_hosts.machines(
            settings.hosts,
            settings.ssh_key_file,
            base=base,
            python_environment=settings.python_environment,
        )
        found = tools.for_hosts(settings.object_store, hosts=len(machines))
    head = machines[0]
    runtime = HostsRuntime(
        "hosts",
        HostsRuntimeArgs(
            machines=machines,
            setup_commands=settings.setup_commands,
            ray=versions.RAY,
            links_ray=not settings.start_ray,
            folder=str(settings.state_dir),
            data=str(settings.data_dir),
            keep_data=settings.keep_data,
            identifier=f"{pulumi.get_project()}-{pulumi.get_stack()}",
            store=found.store.name if found.store else "",
            programs=found.paths,
            ports=settings.ports(
                object_store=found.store is not None, prometheus=bool(head.prometheus)
            ),
            start_timeout=settings.start_timeout_seconds,
        ),
    )
    return Place(
        runtime=runtime,
        store=found.store,
        prometheus=bool(head.prometheus),
        grafana=False,
        notebook=False,
        routes=(),
        gpus=((),) * len(machines),
        python=PYTHON,
        workers=[
            lift(settings.worker_on, machine.cpus, machine.memory_mib, machine.gpus)
            for machine in machines
        ],
        ssh=_access(head, settings),
        data=head.path(str(settings.data_dir)),
        expires_at=expires_at,
        launched=None
        if settings.start_ray
        else Launched(machines=machines, key_file=str(key_file or ""), runtime=runtime),
    )


def _access(head: Machine, settings: Settings) -> dict[str, pulumi.Input[Any]]:
    """Return how users reach the head's machine: a key of theirs by its file, one of ours whole."""
    fields = ("host", "port", "user", "hostKey")
    theirs = settings.ssh_key_file is not None and not settings.lambda_cloud
    return {key: head.connection[key] for key in fields} | {
        "keyFile": str(settings.ssh_key_file) if theirs else "",
        "privateKey": "" if theirs else head.connection["privateKey"],
    }


def containers(settings: Settings) -> Place:
    """Declare the docker runtime on the Engine of this machine.

    Raises:
        pulumi.RunError: no Engine answers, or this machine lacks the accelerators.
    """
    # Not at the top: pulumi-docker costs a stack of processes a third of a second.
    from infra.runtimes.docker import DockerRuntime, DockerRuntimeArgs  # noqa: PLC0415

    engine = docker_engine.info()
    name = settings.object_store
    store = object_store.STORES[go_programs.DEFAULT if name == tools.AUTO else name]
    access, gpus = accelerators.choose(
        settings.accelerator, [worker.gpus for worker in settings.workers], engine
    )
    bounds = docker_engine.bounds(engine)
    if not (bounds.memory and bounds.processes):
        pulumi.log.warn(
            "The kernel of the Docker Engine's machine bounds no memory or no processes: one "
            "container can take all of it (`docker info` ends with what is missing)"
        )
    services = [
        store.name,
        monitoring.SERVICE,
        ray_head.SERVICE,
        *(worker_service(index) for index in range(len(settings.workers))),
        *([grafana.SERVICE] if settings.grafana else []),
        *([notebook.SERVICE] if settings.notebook else []),
        *([dataset.SERVICE] if settings.dataset else []),
        *([tracking.SERVICE] if settings.tracks else []),
        *([gateway.SERVICE] if settings.allowed_cidrs else []),
    ]
    ports = settings.ports(
        object_store=True,
        prometheus=True,
        grafana=settings.grafana,
        notebook=settings.notebook,
    )
    runtime = DockerRuntime(
        "local",
        DockerRuntimeArgs(
            prefix=settings.container_prefix,
            images=settings.images,
            build_args={**versions.BUILD_ARGUMENTS, **settings.build_args},
            store=store.name,
            services=services,
            ports=[port for port in ports if port.published],
            access=access,
            keep_data=settings.keep_data,
            volume_names={dataset.VOLUME.name: settings.dataset.volume} if settings.dataset else {},
            publish_address=settings.publish_address,
            limits=settings.container_limits,
            bounds=bounds,
            start_timeout=settings.start_timeout_seconds,
        ),
    )
    return Place(
        runtime=runtime,
        store=store,
        prometheus=True,
        grafana=settings.grafana,
        notebook=settings.notebook,
        routes=_routes(settings, store.name) if settings.allowed_cidrs else (),
        gpus=gpus,
        python=versions.IMAGE_PYTHON,
        workers=settings.workers,
        data="",
    )


def _routes(settings: Settings, store: str) -> tuple[Route, ...]:
    head = ray_head.SERVICE
    routes = [
        Route(service=head, port=settings.dashboard_port, setting="dashboardPort"),
        Route(service=head, port=settings.serve_port, setting="servePort"),
        Route(service=store, port=settings.object_store_port, setting="objectStorePort"),
        Route(
            service=store,
            port=settings.object_store_console_port,
            setting="objectStoreConsolePort",
        ),
        # Whoever reaches Prometheus may read it, so the gateway asks in its place.
        Route(
            service=monitoring.SERVICE,
            port=settings.prometheus_port,
            setting="prometheusPort",
            password=True,
        ),
    ]
    if settings.grafana:
        name, port = grafana.SERVICE, settings.grafana_port
        routes.append(Route(service=name, port=port, setting="grafanaPort"))
    if settings.notebook:
        name, port = notebook.SERVICE, settings.notebook_port
        routes.append(Route(service=name, port=port, setting="notebookPort"))
    if settings.tracks:
        name, port = tracking.SERVICE, settings.tracking_port
        routes.append(Route(service=name, port=port, setting="trackingPort"))
    return tuple(routes)
