"""The runtime of a stack, and the services that it can run."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pulumi

from cluster import autoscaling, dataset, idle_end, services
from cluster.autoscaling import NodeProvider
from cluster.descriptor import Descriptor, Source
from cluster.inputs import lift
from cluster.ray_cluster import TOKEN_BYTES
from cluster.ray_node import Growth, NodeResources, RayPorts
from cluster.secret import Secret
from cluster.service import Runtime
from infra import kubernetes_settings, tools, versions, wishes
from infra.config import Settings
from infra.hosts import accelerators, docker_engine, go_programs, local
from infra.hosts.fleet import FleetArgs, IdleWatch
from infra.hosts.machine import Group
from infra.kubernetes_settings import Kubernetes
from infra.node_settings import worker_on
from infra.runtimes import choice
from infra.runtimes.process import ProcessRuntime, ProcessRuntimeArgs

ON_HOSTS = (Source.ENVIRONMENT, Source.MODULE, Source.MACHINE, Source.BUILT)
IN_PODS = tuple(source for source in Source if source is not Source.MODULE)  # it has no image
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A runtime and its services.

    Attributes:
        runtime: the runtime.
        services: the ones that run.
        gpus: indexes of the accelerators of each worker.
        python: major.minor of the nodes' Python.
        workers: the resources that each worker offers to jobs.
        data: folder of data that outlives the stack, where the runtime has one.
        ssh: how users reach the machine that addresses refer to; {} for this one.
        kubernetes: how users reach the cluster that addresses refer to; {} for none.
        node_provider: starts and stops workers of groups that grow; None without such a group.
        wishes: folder on the head's machine with the files that name the wanted machines of a
            group that grows; "" without such a group.
        on_demand: how many workers are there only when they are needed.
        coming: indexes of workers whose machines come and go.
        absent: indexes of those among them that are not there now.
        expires_at: when the machines end themselves, in ISO 8601; "" for never.
        idle_token: to ask whether the cluster is idle, "" without a watch.
    """

    runtime: Runtime
    services: Sequence[Descriptor]
    gpus: tuple[tuple[int, ...], ...]
    python: str
    workers: Sequence[pulumi.Input[NodeResources]]
    data: str
    ssh: Mapping[str, pulumi.Input[Any]] = field(default_factory=dict)
    kubernetes: Mapping[str, Any] = field(default_factory=dict)
    node_provider: NodeProvider | None = None
    wishes: str = ""
    on_demand: int = 0
    coming: Collection[int] = ()
    absent: Collection[int] = ()
    expires_at: pulumi.Input[str] = ""
    idle_token: pulumi.Input[str] = ""


def find(settings: Settings, stack: str) -> Target:
    """Declare the runtime that the settings of a stack ask for.

    Raises:
        pulumi.RunError: what it needs is missing.
    """
    if settings.on_hosts:
        return hosts(settings)
    if settings.kubernetes:
        return kubernetes(settings, settings.kubernetes, stack)
    if choice.choose(settings.runtime, local.choice_file(stack)) == choice.DOCKER:
        return containers(settings)
    return processes(settings)


def _running(settings: Settings, store: str, *sources: Source) -> list[Descriptor]:
    """Return the services that the settings ask for.

    Args:
        settings: of the stack.
        store: name of its object store, "" for a folder.
        sources: of programs that can run; all by default.
    """
    return [
        service
        for service in services.ALL
        if service.wanted(settings)
        and (not sources or service.source in sources)
        and (service.program == store or service.program not in services.STORES)
    ]


def _warn_of_missing(settings: Settings, running: Sequence[Descriptor], remedy: str) -> None:
    """Name programs that a setting asks for and the machine lacks.

    Args:
        settings: of the stack.
        running: services that run.
        remedy: how the machine gets such a program.
    """
    for service in services.ALL:
        asked = service.source is Source.MACHINE and service.settings and service.wanted(settings)
        if asked and service not in running:
            keys = ", ".join(service.settings)
            pulumi.log.warn(
                f"{keys} is set, and no {' or '.join(service.names)} is on the machine's PATH: "
                f"{service.program} does not run. {remedy}, then run `up` again; or remove {keys}"
            )


def processes(settings: Settings) -> Target:
    """Declare the process runtime of this machine."""
    wanted = [service for service in services.ALL if service.wanted(settings)]
    found = tools.find(settings.object_store, settings.data_dir, wanted)
    running = [
        service
        for service in _running(settings, found.store.name if found.store else "")
        if service.program in found.paths
    ]
    _warn_of_missing(settings, running, "Run `make monitoring`")
    runtime = ProcessRuntime(
        "local",
        ProcessRuntimeArgs(
            folder=str(settings.state_dir),
            data=str(settings.data_dir),
            keep_data=settings.keep_data,
            identifier=f"{pulumi.get_project()}-{pulumi.get_stack()}",
            executables=found.paths,
            ports=settings.opened(running),
            store=found.store.name if found.store else "",
            start_timeout=settings.start_timeout_seconds,
            drain=settings.drain_seconds,
        ),
    )
    return Target(
        runtime=runtime,
        services=running,
        gpus=((),) * len(settings.workers),
        python=PYTHON,
        workers=settings.workers,
        data=str(settings.data_dir),
        node_provider=runtime.node_provider() if autoscaling.grows(settings.workers) else None,
        on_demand=autoscaling.on_demand(settings.workers),
    )


def hosts(settings: Settings) -> Target:
    """Declare the process runtime of other machines.

    Raises:
        pulumi.RunError: an existing machine cannot be used.
    """
    # Not at the top: a stack of this machine would pay for imports that it does not need.
    from infra import ray_launcher  # noqa: PLC0415
    from infra.ray_launcher import Launched  # noqa: PLC0415
    from infra.runtimes.hosts import HostsRuntime, HostsRuntimeArgs  # noqa: PLC0415

    if settings.fleet is None:
        raise ValueError("the stack asks for no other machines")
    wanted = [
        number
        for group in settings.growing
        if group.growth and settings.on_hosts > settings.fleet.count
        for number in wishes.wanted(range(settings.fleet.count, settings.on_hosts), group.growth)
    ]
    idle = None
    if idle_end.wanted(settings.of_services):
        token = Secret("idle-end-token", TOKEN_BYTES).value
        idle = IdleWatch(port=settings.ports[idle_end.PORT], token=token)
    fleet = settings.fleet.open(
        FleetArgs(
            base=f".trainyard/{pulumi.get_project()}-{pulumi.get_stack()}",
            python_environment=settings.python_environment,
            resources=settings.worker,
            groups=settings.groups,
            growing=settings.growing,
            wanted=wanted,
            key_file=settings.ssh_key_file,
            allowed_cidrs=settings.allowed_cidrs,
            keep_data=settings.keep_data,
            owner=settings.owner,
            idle=idle,
        )
    )
    # Programs missing here are reported before anything is rented.
    found = tools.for_hosts(settings.object_store, hosts=settings.on_hosts)
    declared = fleet.declare()
    machines = declared.machines
    head = machines[0]
    store = found.store.name if found.store else ""
    running = [
        service
        for service in _running(settings, store, *ON_HOSTS)
        if service.source is not Source.MACHINE or service.program in head.programs
    ]
    _warn_of_missing(settings, running, "Install it there")
    runtime = HostsRuntime(
        "hosts",
        HostsRuntimeArgs(
            machines=machines,
            several=settings.on_hosts > 1,
            setup_commands=settings.setup_commands,
            ray=versions.RAY,
            links_ray=not settings.start_ray,
            folder=str(settings.state_dir),
            data=str(settings.data_dir),
            keep_data=settings.keep_data,
            identifier=f"{pulumi.get_project()}-{pulumi.get_stack()}",
            store=store,
            shared={service.name for service in running if service.shared},
            programs=found.paths,
            ports=settings.opened(running),
            start_timeout=settings.start_timeout_seconds,
            drain=settings.drain_seconds,
        ),
    )
    if not settings.start_ray:
        launched = Launched(machines=machines, key_file=declared.login.key_file, runtime=runtime)
        ray = replace(
            services.RAY,
            declare=partial(ray_launcher.declare, launched),
            more=ray_launcher.workers,
        )
        running = [ray if service is services.RAY else service for service in running]
    growth = {group.name: group.growth for group in settings.growing}
    workers: list[pulumi.Input[NodeResources]] = [
        lift(
            partial(_offered, machine.group, growth.get(machine.group.label)),
            machine.cpus,
            machine.memory_mib,
            machine.gpus,
        )
        for machine in machines
    ]
    coming: Collection[int] = ()
    provider = runtime.switch_provider() if autoscaling.grows(workers) else None
    on_demand = autoscaling.on_demand(workers)
    if rest := declared.rest:
        # All workers that may exist are known in full.
        workers[rest.numbers.start :] = [rest.resources] * len(rest.numbers)
        coming = rest.numbers
        provider = runtime.node_provider(rest)
        on_demand = len(rest.numbers) - rest.least
    return Target(
        runtime=runtime,
        services=running,
        gpus=((),) * len(workers),
        python=PYTHON,
        workers=workers,
        node_provider=provider,
        wishes=runtime.wishes if declared.rest else "",
        on_demand=on_demand,
        coming=coming,
        absent={*coming} - {*wanted},
        ssh=declared.login.output(head),
        data=head.path(str(settings.data_dir)),
        expires_at=declared.expires_at,
        idle_token=idle.token if idle else "",
    )


def _offered(
    group: Group, growth: Growth | None, cpus: int, memory_mib: int, gpus: int
) -> NodeResources:
    offered = worker_on(group.label, group.resources, cpus, memory_mib, gpus)
    return replace(offered, growth=growth)


def containers(settings: Settings) -> Target:
    """Declare the docker runtime on the Engine of this machine.

    Raises:
        pulumi.RunError: no Engine answers, or this machine lacks the accelerators.
    """
    # Not at the top: pulumi-docker costs a stack of processes a third of a second.
    from infra.runtimes.docker import DockerRuntime, DockerRuntimeArgs  # noqa: PLC0415

    engine = docker_engine.info()
    name = settings.object_store
    store = go_programs.DEFAULT if name == tools.AUTO else name
    access, gpus = accelerators.choose(
        settings.accelerator, [worker.gpus for worker in settings.workers], engine
    )
    bounds = docker_engine.bounds(engine)
    if not (bounds.memory and bounds.processes):
        pulumi.log.warn(
            "The kernel of the Docker Engine's machine bounds no memory or no processes: one "
            "container can take all of it (`docker info` ends with what is missing)"
        )
    running = _running(settings, store)
    runtime = DockerRuntime(
        "local",
        DockerRuntimeArgs(
            prefix=settings.container_prefix,
            images=settings.images,
            build_args={**versions.BUILD_ARGUMENTS, **settings.build_args},
            store=store,
            services=[name for each in running for name in each.services(len(settings.workers))],
            programs={each.program for each in running},
            ports=[port for port in settings.opened(running) if port.published],
            access=access,
            keep_data=settings.keep_data,
            volume_names={dataset.VOLUME.name: settings.dataset.volume} if settings.dataset else {},
            publish_address=settings.publish_address,
            limits=settings.container_limits,
            bounds=bounds,
            start_timeout=settings.start_timeout_seconds,
            drain=settings.drain_seconds,
        ),
    )
    return Target(
        runtime=runtime,
        services=running,
        gpus=gpus,
        python=settings.image_python,
        workers=settings.workers,
        data="",
    )


def kubernetes(settings: Settings, where: Kubernetes, stack: str) -> Target:
    """Declare the kubernetes runtime in an existing cluster.

    Raises:
        pulumi.RunError: the cluster does not answer, or a stack cannot be in it.
    """
    # Not at the top: lightkube costs other stacks a third of a second.
    from infra.runtimes.kubernetes import kuberay_cluster, manifests, preflight  # noqa: PLC0415
    from infra.runtimes.kubernetes.runtime import (  # noqa: PLC0415
        KubernetesRuntime,
        KubernetesRuntimeArgs,
    )
    from trainyard.access.kubectl import Cluster  # noqa: PLC0415

    cluster = Cluster(kubeconfig=where.kubeconfig, context=where.context, namespace=where.namespace)
    shared: dict[str, Any] = {}
    if where.claim:
        shared = {"persistentVolumeClaim": {"claimName": where.claim}}
    elif where.host_path:
        shared = {"hostPath": {"path": where.host_path, "type": "Directory"}}
    running = _running(settings, kubernetes_settings.store(settings.object_store), *IN_PODS)
    runtime = KubernetesRuntime(
        "kubernetes",
        KubernetesRuntimeArgs(
            cluster=cluster,
            uid=preflight.check(
                cluster,
                grows=autoscaling.grows(settings.workers),
                gcs=RayPorts.of(settings.ports).gcs,
            ),
            place=manifests.Place(
                prefix=stack,
                namespace=where.namespace,
                labels=manifests.labels(pulumi.get_project(), stack),
                group=where.group,
                pull_secrets=where.pull_secrets,
                storage_class=where.storage_class,
                storage_gib=where.storage_gib,
                shared=shared,
                start_seconds=settings.start_timeout_seconds,
            ),
            images=settings.images,
            keep_data=settings.keep_data,
            limits=settings.container_limits,
        ),
    )
    pods = kuberay_cluster.Pods(
        runtime=runtime,
        accelerator="" if settings.accelerator == "none" else settings.accelerator,
        cpu_share=where.cpu_share,
        pod_seconds=where.pod_seconds,
        groups=settings.groups,
    )
    ray = replace(services.RAY, declare=partial(kuberay_cluster.declare, pods))
    return Target(
        runtime=runtime,
        services=[ray if service is services.RAY else service for service in running],
        gpus=((),) * len(settings.workers),
        python=settings.image_python,
        workers=settings.workers,
        data="",
        on_demand=autoscaling.on_demand(settings.workers),
        kubernetes={
            "kubeconfig": where.kubeconfig,
            "context": where.context,
            "namespace": where.namespace,
            "rayCluster": runtime.ray_name,
            "services": {
                str(settings.ports[port.key]): runtime.service_name(service.name)
                for service in running
                for port in service.ports
                if port.published
            },
        },
    )
