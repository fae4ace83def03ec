"""This machine: the stack's services are processes here."""

from cluster import autoscaling, services
from cluster.descriptor import Source, Stack
from infra.machines import tools
from infra.machines.fleet import IdleWatch
from infra.machines.machine import this_machine
from infra.machines.process_runtime import ProcessRuntime, ProcessRuntimeArgs
from infra.places.stack_mark import StackMark
from infra.places.target import services_for, warn_of_missing
from infra.settings.config import Settings


def is_wanted(_settings: Settings, _stack: str) -> bool:
    """Return whether a stack is to be here: if no other place takes it."""
    return True


def declare(settings: Settings, _stack: str) -> Stack:
    """Declare the process runtime of this machine."""
    wanted = [service for service in services.ALL if service.wanted(settings)]
    found = tools.find(settings.object_store, settings.data_dir, wanted)
    store = found.store.name if found.store else ""
    sources = [each for each in Source if each is not Source.IMAGE]
    running = [
        service
        for service in services_for(settings, store, *sources)
        if {service.name, service.program} & found.paths.keys()
    ]
    remedies = {Source.MACHINE: "Run `make monitoring`", Source.ADDED: "Run `make notebook`"}
    warn_of_missing(settings, running, remedies)
    idle = IdleWatch.of(settings)
    runtime = ProcessRuntime(
        "local",
        ProcessRuntimeArgs(
            settings=settings,
            running=running,
            store=store,
            hosts=[this_machine(found.paths)],
            mark=StackMark("mark"),
            idle=idle,
        ),
    )
    return Stack(
        runtime=runtime,
        settings=settings,
        services=running,
        workers=settings.workers,
        data=str(settings.data_dir),
        idle_token=idle.token if idle else "",
        node_provider=runtime.node_provider() if autoscaling.grows(settings.workers) else None,
    )
