"""The stack of the docker runtime, on this machine's Engine or on that of another one."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pulumi

from cluster.descriptor import Stack
from cluster.inputs import lift
from cluster.ray_node import NodeResources
from infra.machines import accelerators, docker_engine, tools
from infra.machines.docker_engine import Bounds
from infra.machines.fleet import Fleet, FleetArgs, IdleWatch
from infra.machines.machine import Machine
from infra.places.target import services_for
from infra.settings.config import Settings
from infra.settings.nodes import worker
from trainyard.access import outputs

RUNTIME = "docker"


def declare(
    settings: Settings,
    kept: Bounds,
    access: Sequence[accelerators.ContainerAccess],
    gpus: Sequence[Sequence[int]],
    worker_there: pulumi.Input[NodeResources] | None = None,
    machine: Machine | None = None,
    key_file: str = "",
    idle: IdleWatch | None = None,
) -> Stack:
    """Declare the docker runtime; return the stack. See DockerRuntimeArgs and Stack."""
    # Not at the top: pulumi-docker costs a stack of processes a third of a second.
    from infra.places.containers.docker import DockerRuntime, DockerRuntimeArgs  # noqa: PLC0415

    idle = idle or IdleWatch.of(settings)
    store = tools.in_container(settings.object_store)
    running = services_for(settings, store)
    runtime = DockerRuntime(
        "hosts" if machine else "local",
        DockerRuntimeArgs(
            settings=settings,
            running=running,
            store=store,
            access=access,
            bounds=kept,
            machine=machine,
            key_file=key_file,
        ),
    )
    return Stack(
        runtime=runtime,
        settings=settings,
        services=running,
        gpus=gpus,
        python=settings.python,
        workers=settings.workers if worker_there is None else [worker_there],
        outputs={outputs.CONTAINER_PREFIX: settings.names_of_containers},
        idle_token=idle.token if idle else "",
    )


def on_machine(settings: Settings, inspect: Callable[[FleetArgs], Callable[[], Fleet]]) -> Stack:
    """Declare the docker runtime on the Engine of another machine, with one worker there.

    `inspect` looks at an existing machine, and returns what declares the machine.

    Raises:
        pulumi.RunError: the machine cannot be used, no Engine answers there, or it has no GPUs.
    """
    idle = IdleWatch.of(settings)
    declared = inspect(FleetArgs(settings=settings, idle=idle))()
    machine = declared.machines[0]
    # A machine that is to be rented has no Engine yet. Those of its images keep all bounds.
    kept = Bounds(memory=True, swap=True, processes=True)
    gpus = machine.gpus if settings.accelerator != "none" else 0
    if machine.engine is not None:
        accelerators.check_machine(
            settings.accelerator, str(machine.identity), int(str(machine.gpus)), machine.engine
        )
        kept = bounds(machine.engine)
    resources = lift(partial(worker, machine.group), machine.cpus, machine.memory_mib, gpus)
    access, each = accelerators.all_of(settings.accelerator)
    login = declared.login
    stack = declare(settings, kept, access, each, resources, machine, login.key_file, idle)
    stack.connections = {outputs.SSH: login.output(machine)}
    stack.expires_at = declared.expires_at
    return stack


def bounds(engine: Mapping[str, Any]) -> Bounds:
    """Return the bounds that an Engine keeps, by its answer to /info; warn of missing ones."""
    found = docker_engine.bounds(engine)
    if not (found.memory and found.processes):
        pulumi.log.warn(
            "The kernel of the Docker Engine's machine bounds no memory or no processes: one "
            "container can take all of it (`docker info` ends with what is missing)"
        )
    return found
