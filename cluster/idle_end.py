"""The end of machines or services when the cluster is idle: the watch that their timers ask."""

import json
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Annotated

import pulumi

from cluster import job_queue
from cluster.descriptor import Component, Descriptor, Endpoint, Limit, PortSetting, Source, Stack
from cluster.inputs import join
from cluster.model import Fault, Model, setting, whole
from cluster.replica import module_files, source_of
from cluster.service import HealthCheck, Port, Runtime, Service, Volume
from node import source_text
from trainyard.access import outputs

SERVICE = "idle-end"
PORT = "idleEndPort"
SETTING = "idleEnd"
MODULE_FILE = "idle_watch.py"
SETTINGS_FILE = "idle.json"  # a secret: it has tokens and keys
STATE = Volume(name="state")
STATE_FILE = "state.json"


class Idle(Model):
    """When a cluster counts as idle.

    Attributes:
        minutes: without activity, after which the stack ends itself.
        cpu_percent: of one core. Jobs count as activity only while a machine uses more, or a GPU
            more than gpu_percent; 0: until they end.
        gpu_percent: use of a GPU above which jobs count as activity.
    """

    minutes: Annotated[int, whole(1, 9999)]
    cpu_percent: Annotated[int, whole(0, 99_999, "percent of one core")] = 0
    gpu_percent: Annotated[int, whole(0, 99, "percent of a GPU")] = 0

    def faults(self) -> Iterator[Fault]:
        """Yield a bound that does nothing alone."""
        if self.gpu_percent and not self.cpu_percent:
            bound = "does nothing without cpuPercent"
            yield Fault("gpuPercent", bound, f"set {SETTING}.cpuPercent too")


class IdleEnd(Component):
    """The service that watches."""

    def declare(self, stack: Stack) -> None:
        runtime, port, idle = stack.runtime, stack.port(PORT), stack.settings.of_services[SETTING]
        known = pulumi.Output.all(
            listen=runtime.listen_address(SERVICE),
            port=port,
            token=stack.idle_token,
            idleSeconds=idle.minutes * 60,
            commandSeconds=stack.settings.before_end_seconds,
            cpuPercent=idle.cpu_percent,
            gpuPercent=idle.gpu_percent,
            deadline=pulumi.Output.from_input(stack.expires_at).apply(_seconds),
            file=state_file(runtime),
            dashboard=join("http://", job_queue.jobs_address(stack)),
            rayToken=stack.token,
            notebook=stack.notebook,
            nodes=stack.nodes,
            # Elsewhere results outlive the end.
            source=source_of(stack.storage) if stack.settings.renting else None,
        )
        runtime.place(
            Service(
                name=SERVICE,
                program=DESCRIPTOR.program,
                script=MODULE_FILE,
                arguments=[runtime.file(SERVICE, SETTINGS_FILE)],
                files={
                    MODULE_FILE: source_text(MODULE_FILE),
                    **module_files(),
                },
                secrets={SETTINGS_FILE: pulumi.Output.secret(known.apply(json.dumps))},
                volumes=[STATE],
                ports=[Port(number=port, setting=PORT, published=True)],
                health=[HealthCheck(port=port, path="/health")],
                stop_seconds=0,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=list(stack.storage.needs)),
        )
        self.export(stack, ENDPOINT, runtime.public(SERVICE, port))
        stack.outputs[ENDPOINT.login] = stack.idle_token


def state_file(runtime: Runtime) -> str:
    """Return the path at which the watch keeps what it decided."""
    return f"{runtime.volume(SERVICE, STATE)}/{STATE_FILE}"


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


ENDPOINT = Endpoint(title="ends when idle", url=outputs.IDLE_END_URL, login=outputs.IDLE_END_TOKEN)
DESCRIPTOR = Descriptor(
    program="ray",  # whose environment, or image, has what it needs
    service=SERVICE,
    declare=partial(IdleEnd, SERVICE),
    source=Source.ENVIRONMENT,
    ports=(PortSetting(PORT, 8768, "Watch for idleness"),),
    limit=Limit(memory_mib=1024, processes=256),
    shared=True,  # the timers of other machines ask it
    settings={
        SETTING: (
            Idle | None,
            setting(
                None,
                "When an idle cluster ends itself: `{minutes, cpuPercent, gpuPercent}`, with a "
                "`reservation` or lambdaCloud's `ttlHours`. Default: only at its end",
                see="lambda.md",
            ),
        )
    },
    wanted=lambda settings: settings.of_services[SETTING] is not None,
    endpoints=(ENDPOINT,),
)
