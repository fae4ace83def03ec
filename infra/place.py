"""Where the services of a stack go: its runtime, and which services that runtime can run."""

import sys
from dataclasses import dataclass

import pulumi

from cluster import dataset, gateway, grafana, monitoring, notebook, object_store, ray_head
from cluster.gateway import Route
from cluster.ray_worker import service as worker_service
from cluster.service import Runtime
from infra import tools, versions
from infra.config import Settings
from infra.hosts import accelerators, docker_engine
from infra.runtimes.process import ProcessRuntime, ProcessRuntimeArgs


@dataclass(frozen=True, kw_only=True)
class Place:
    """A runtime and what it can run.

    Attributes:
        runtime: the runtime.
        minio: whether MinIO runs; a folder of this machine takes its place.
        prometheus: whether Prometheus runs.
        grafana: whether Grafana runs.
        notebook: whether a notebook runs.
        routes: what others reach through the gateway; empty when they reach nothing.
        gpus: indexes of the accelerators of each worker.
        python: major.minor of the nodes' Python.
    """

    runtime: Runtime
    minio: bool
    prometheus: bool
    grafana: bool
    notebook: bool
    routes: tuple[Route, ...]
    gpus: tuple[tuple[int, ...], ...]
    python: str


def processes(settings: Settings) -> Place:
    """Declare the process runtime of this machine."""
    found = tools.find(settings.object_store)
    runtime = ProcessRuntime(
        "local",
        ProcessRuntimeArgs(
            folder=str(settings.state_dir),
            data=str(settings.data_dir),
            keep_data=settings.keep_data,
            identifier=f"{pulumi.get_project()}-{pulumi.get_stack()}",
            executables=found.paths,
            ports=settings.ports(object_store=found.minio, prometheus=found.prometheus),
            start_timeout=settings.start_timeout_seconds,
        ),
    )
    return Place(
        runtime=runtime,
        minio=found.minio,
        prometheus=found.prometheus,
        grafana=False,
        notebook=False,
        routes=(),
        gpus=((),) * len(settings.workers),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
    )


def containers(settings: Settings) -> Place:
    """Declare the docker runtime on the Engine of this machine.

    Raises:
        pulumi.RunError: no Engine answers, or this machine lacks the accelerators.
    """
    # Not at the top: pulumi-docker costs a stack of processes a third of a second.
    from infra.runtimes.docker import DockerRuntime, DockerRuntimeArgs  # noqa: PLC0415

    engine = docker_engine.info()
    access, gpus = accelerators.choose(
        settings.accelerator, [worker.gpus for worker in settings.workers], engine
    )
    services = [
        object_store.SERVICE,
        monitoring.SERVICE,
        ray_head.SERVICE,
        *(worker_service(index) for index in range(len(settings.workers))),
        *([grafana.SERVICE] if settings.grafana else []),
        *([notebook.SERVICE] if settings.notebook else []),
        *([dataset.SERVICE] if settings.dataset else []),
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
            build_args={"MINIO_VERSION": versions.MINIO, **settings.build_args},
            services=services,
            ports=[port for port in ports if port.published],
            access=access,
            keep_data=settings.keep_data,
            volume_names={dataset.VOLUME.name: settings.dataset.volume} if settings.dataset else {},
            publish_address=settings.publish_address,
            start_timeout=settings.start_timeout_seconds,
        ),
    )
    return Place(
        runtime=runtime,
        minio=True,
        prometheus=True,
        grafana=settings.grafana,
        notebook=settings.notebook,
        routes=_routes(settings) if settings.allowed_cidrs else (),
        gpus=gpus,
        python=versions.IMAGE_PYTHON,
    )


def _routes(settings: Settings) -> tuple[Route, ...]:
    head, store = ray_head.SERVICE, object_store.SERVICE
    routes = [
        Route(service=head, port=settings.dashboard_port, setting="dashboardPort"),
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
    return tuple(routes)
