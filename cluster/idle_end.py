"""The end of rented machines when the cluster is idle: the watch that their timers ask."""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pulumi

from cluster import idle_watch, ray_head, replicate
from cluster.descriptor import Descriptor, Endpoint, Limit, PortSetting, Setting, Source, Stack
from cluster.inputs import join
from cluster.replica import source_of
from cluster.service import HealthCheck, Port, Service, Volume
from trainyard.access import outputs

SERVICE = "idle-end"
PORT = "idleEndPort"
MINUTES = "idleEndMinutes"
CPU_PERCENT, GPU_PERCENT = "idleEndCpuPercent", "idleEndGpuPercent"
NEVER = 0
MODULE_FILE, REPLICATE_FILE = "idle_watch.py", "replicate.py"
SETTINGS_FILE = "idle.json"  # a secret: it has tokens and keys
STATE = Volume(name="state")
STATE_FILE = "state.json"


class IdleEnd(pulumi.ComponentResource):
    """The service that watches.

    Attributes:
        url: its URL, for users.
    """

    url: pulumi.Output[str]

    def __init__(self, name: str, stack: Stack, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:cluster:IdleEnd", name, None, opts)
        runtime, port, settings = stack.runtime, stack.port(PORT), stack.settings.of_services
        known = pulumi.Output.all(
            listen=runtime.listen_address(SERVICE),
            port=port,
            token=stack.idle_token,
            idleSeconds=settings[MINUTES] * 60,
            cpuPercent=settings[CPU_PERCENT],
            gpuPercent=settings[GPU_PERCENT],
            deadline=pulumi.Output.from_input(stack.expires_at).apply(_seconds),
            file=f"{runtime.volume(SERVICE, STATE)}/{STATE_FILE}",
            dashboard=join(
                "http://", runtime.address(ray_head.SERVICE, stack.port("dashboardPort"))
            ),
            rayToken=stack.token,
            nodes=stack.nodes,
            source=source_of(stack.storage),
        )
        runtime.place(
            Service(
                name=SERVICE,
                program="python",
                arguments=[
                    runtime.file(SERVICE, MODULE_FILE),
                    runtime.file(SERVICE, SETTINGS_FILE),
                ],
                files={
                    MODULE_FILE: Path(idle_watch.__file__).read_text(),
                    REPLICATE_FILE: Path(replicate.__file__).read_text(),
                },
                secrets={SETTINGS_FILE: pulumi.Output.secret(known.apply(json.dumps))},
                volumes=[STATE],
                ports=[Port(number=port, setting=PORT)],
                health=[HealthCheck(port=port, path="/health")],
                stop_seconds=0,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=list(stack.storage.needs)),
        )
        self.url = pulumi.Output.concat("http://", runtime.public(SERVICE, port))
        self.register_outputs({"url": self.url})


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def declare(stack: Stack) -> None:
    """Declare the watch of a stack."""
    watch = IdleEnd(SERVICE, stack)
    stack.outputs |= {ENDPOINT.url: watch.url, ENDPOINT.login: stack.idle_token}


def wanted(of_services: Mapping[str, Any]) -> bool:
    """Return whether the settings ask for an end when idle."""
    return bool(of_services[MINUTES] != NEVER)


ENDPOINT = Endpoint(title="ends when idle", url=outputs.IDLE_END_URL, login=outputs.IDLE_END_TOKEN)
DESCRIPTOR = Descriptor(
    program="python",
    service=SERVICE,
    declare=declare,
    source=Source.MODULE,
    ports=(PortSetting(key=PORT, default=8768, description="Watch for idleness", published=False),),
    limit=Limit(memory_mib=1024, processes=256),
    shared=True,  # the timers of other machines ask it
    settings={
        MINUTES: Setting(
            default=0,
            description="Minutes after which an idle cluster of rented machines ends itself, 1 to "
            "9999 (lambdaCloud with `ttlHours` or a `reservation`). 0: only at its deadline. See "
            "docs/lambda.md",
            most=9999,
            bound="must be a whole number of minutes from 1 to 9999, or 0 for never",
        ),
        CPU_PERCENT: Setting(
            default=0,
            description="Percent of one core. Jobs count as activity only while a machine uses "
            "more, or a GPU more than `idleEndGpuPercent`. 0: until they end. See docs/lambda.md",
            most=99_999,
            bound="must be whole percent of one core from 1 to 99999, or 0 for no bound",
        ),
        GPU_PERCENT: Setting(
            default=0,
            description="Percent of a GPU, with `idleEndCpuPercent`",
            most=99,
            bound="must be whole percent of a GPU from 0 to 99",
        ),
    },
    wanted=lambda settings: wanted(settings.of_services),
    endpoints=(ENDPOINT,),
)
