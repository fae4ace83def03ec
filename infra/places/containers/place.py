"""Containers on the Docker Engine of this machine."""

from cluster.descriptor import Stack
from infra.machines import accelerators, docker_engine, local
from infra.places import docker_stack
from infra.places.containers import choice
from infra.settings.config import Settings


def is_wanted(settings: Settings, stack: str) -> bool:
    """Return whether the stack's runtime is that of containers, and keep what `auto` chose."""
    return choice.choose(settings.runtime, local.choice_file(stack)) == choice.DOCKER


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the docker runtime on the Engine of this machine.

    Raises:
        pulumi.RunError: no Engine answers, or this machine lacks the accelerators.
    """
    engine = docker_engine.info()
    access, gpus = accelerators.choose(
        settings.accelerator, [worker.gpus for worker in settings.workers], engine
    )
    return docker_stack.declare(settings, docker_stack.bounds(engine), access, gpus)
