"""Containers on the Docker Engine of this machine."""

from __future__ import annotations

import pulumi

from cluster import dataset
from cluster.descriptor import Stack
from infra import tools, versions
from infra.config import Settings
from infra.hosts import accelerators, docker_engine, local
from infra.runtimes import choice
from infra.target import runtime_args, services_for


def is_wanted(settings: Settings, stack: str) -> bool:
    """Return whether the stack's runtime is that of containers, and keep what `auto` chose."""
    return choice.choose(settings.runtime, local.choice_file(stack)) == choice.DOCKER


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the docker runtime on the Engine of this machine.

    Raises:
        pulumi.RunError: no Engine answers, or this machine lacks the accelerators.
    """
    # Not at the top: pulumi-docker costs a stack of processes a third of a second.
    from infra.runtimes.docker import DockerRuntime, DockerRuntimeArgs  # noqa: PLC0415

    engine = docker_engine.info()
    store = tools.in_container(settings.object_store)
    access, gpus = accelerators.choose(
        settings.accelerator, [worker.gpus for worker in settings.workers], engine
    )
    bounds = docker_engine.bounds(engine)
    if not (bounds.memory and bounds.processes):
        pulumi.log.warn(
            "The kernel of the Docker Engine's machine bounds no memory or no processes: one "
            "container can take all of it (`docker info` ends with what is missing)"
        )
    running = services_for(settings, store)
    runtime = DockerRuntime(
        "local",
        DockerRuntimeArgs(
            **runtime_args(settings, running, store),
            prefix=settings.container_prefix,
            images=settings.images,
            build_args={**versions.BUILD_ARGUMENTS, **settings.build_args},
            services=[name for each in running for name in each.services(len(settings.workers))],
            programs={each.program for each in running},
            access=access,
            volume_names={dataset.VOLUME.name: settings.dataset.volume} if settings.dataset else {},
            publish_address=settings.publish_address,
            limits=settings.container_limits,
            bounds=bounds,
        ),
    )
    return Stack(
        runtime=runtime,
        settings=settings,
        services=running,
        gpus=gpus,
        python=settings.image_python,
        workers=settings.workers,
    )
