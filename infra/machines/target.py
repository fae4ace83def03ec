"""Other machines of any source: the stack's services are processes or containers there."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import pulumi

from cluster import autoscaling, page, services
from cluster.descriptor import Source, Stack
from cluster.inputs import lift
from cluster.ray_node import NodeResources
from infra.machines import bundle, environment, tools
from infra.machines.environment import EnvironmentArgs
from infra.machines.fleet import Fleet, FleetArgs, IdleWatch
from infra.machines.process_runtime import ProcessRuntime, ProcessRuntimeArgs
from infra.operate import ray_launcher, requested
from infra.operate.ray_launcher import LaunchTarget
from infra.places import docker_stack
from infra.places.stack_mark import StackMark
from infra.places.target import services_for, warn_of_missing
from infra.settings import versions, volumes
from infra.settings.config import Settings
from infra.settings.nodes import worker
from trainyard.access import outputs

ON_HOSTS = (Source.ENVIRONMENT, Source.MODULE, Source.MACHINE, Source.BUILT, Source.CHECKOUT)


def declare(settings: Settings, inspect: Callable[[FleetArgs], Callable[[], Fleet]]) -> Stack:
    """Declare the runtime that the settings name, of processes or of containers; see hosts."""
    if settings.runtime == docker_stack.RUNTIME:
        return docker_stack.on_machine(settings, inspect)
    return hosts(settings, inspect)


def hosts(settings: Settings, inspect: Callable[[FleetArgs], Callable[[], Fleet]]) -> Stack:
    """Declare the process runtime of other machines.

    `inspect` looks at existing machines, and returns what declares the machines.

    Raises:
        pulumi.RunError: an existing machine cannot be used.
    """
    if settings.fleet is None:
        raise ValueError("the stack asks for no other machines")
    numbers = [
        number
        for group in settings.growing
        if group.growth and settings.on_hosts > settings.fleet.count
        for number in requested.machines(
            range(settings.fleet.count, settings.on_hosts), group.growth
        )
    ]
    own = environment.own_file(settings.environment_file)
    idle = IdleWatch.of(settings)
    declare = inspect(FleetArgs(settings=settings, requested=numbers, idle=idle))
    # Programs missing here are reported before anything is rented.
    found = tools.for_hosts(settings.object_store, hosts=settings.on_hosts)
    declared = declare()
    machines = declared.machines
    head = machines[0]
    store = found.store.name if found.store else ""
    running = [
        service
        for service in services_for(settings, store, *ON_HOSTS)
        if service.source is not Source.MACHINE or service.program in head.programs
    ]
    warn_of_missing(settings, running, {Source.MACHINE: "Install it there, on PATH"})
    mark = StackMark("mark")
    runtime = ProcessRuntime(
        "hosts",
        ProcessRuntimeArgs(
            settings=settings,
            running=running,
            store=store,
            hosts=environment.prepare(
                machines,
                EnvironmentArgs(
                    setup_commands=[*settings.setup_commands, *volumes.checks(settings.volumes)],
                    own=own,
                    client=bundle.package() if settings.of_services[page.SERVICE] else {},
                    ray=versions.RAY,
                    links_ray=not settings.start_ray,
                ),
                mark.known,
                found.paths,
            ),
            mark=mark,
            idle=None if settings.renting else idle,  # machines end as a whole
        ),
    )
    if not settings.start_ray:
        launched = LaunchTarget(
            machines=machines, key_file=declared.login.key_file, runtime=runtime
        )
        ray = replace(
            services.RAY,
            declare=partial(ray_launcher.LauncherHosts, "ray", launched),
            more=ray_launcher.workers,
        )
        running = [ray if service is services.RAY else service for service in running]
    workers: list[pulumi.Input[NodeResources]] = [
        lift(partial(worker, machine.group), machine.cpus, machine.memory_mib, machine.gpus)
        for machine in machines
    ]
    elastic: Collection[int] = ()
    provider = runtime.node_provider() if autoscaling.grows(workers) else None
    on_demand = 0
    if group := declared.elastic_group:
        # All workers that may exist are known in full.
        workers[group.numbers.start :] = [group.resources] * len(group.numbers)
        elastic = group.numbers
        provider = runtime.request_provider(group)
        on_demand = len(group.numbers) - group.least
    return Stack(
        runtime=runtime,
        settings=settings,
        services=running,
        workers=workers,
        node_provider=provider,
        requests_folder=runtime.requests_folder if declared.elastic_group else "",
        on_demand=on_demand,
        elastic=elastic,
        not_launched={*elastic} - {*numbers},
        connections={outputs.SSH: declared.login.output(head)},
        data=head.path(str(settings.data_dir)),
        expires_at=declared.expires_at,
        idle_token=idle.token if idle else "",
    )
