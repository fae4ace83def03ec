"""The end of rented machines when the cluster is idle: the watch that their timers ask."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pulumi

from cluster import idle_watch, ray_head, replicate
from cluster.descriptor import Descriptor, Endpoint, Limit, PortSetting, Setting, Source, Stack
from cluster.inputs import join
from cluster.replica import source_of
from cluster.service import HealthCheck, Port, Runtime, Service, Volume
from cluster.storage import Storage
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


@dataclass(frozen=True, kw_only=True)
class IdleEndArgs:
    """Arguments of the watch.

    Attributes:
        runtime: where it runs.
        port: TCP port.
        minutes: how long a cluster may be idle.
        bounds: of use, up to which a job counts as doing nothing.
        token: of clients that may ask.
        expires_at: when the machines end in any case, in ISO 8601.
        dashboard_port: of Ray.
        ray_token: bearer token of every Ray endpoint.
        nodes: how many Ray nodes the stack always has.
        storage: where jobs keep their results.
    """

    runtime: Runtime
    port: int
    minutes: int
    bounds: idle_watch.Bounds
    token: pulumi.Input[str]
    expires_at: pulumi.Input[str]
    dashboard_port: int
    ray_token: pulumi.Input[str]
    nodes: int
    storage: Storage


class IdleEnd(pulumi.ComponentResource):
    """The service that watches.

    Attributes:
        url: its URL, for users.
    """

    url: pulumi.Output[str]

    def __init__(
        self, name: str, args: IdleEndArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:cluster:IdleEnd", name, None, opts)
        runtime = args.runtime
        known = pulumi.Output.all(
            listen=runtime.listen_address(SERVICE),
            port=args.port,
            token=args.token,
            idleSeconds=args.minutes * 60,
            cpuPercent=args.bounds.cpu_percent,
            gpuPercent=args.bounds.gpu_percent,
            deadline=pulumi.Output.from_input(args.expires_at).apply(_seconds),
            file=f"{runtime.volume(SERVICE, STATE)}/{STATE_FILE}",
            dashboard=join("http://", runtime.address(ray_head.SERVICE, args.dashboard_port)),
            rayToken=args.ray_token,
            nodes=args.nodes,
            source=source_of(args.storage),
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
                ports=[Port(number=args.port, setting=PORT)],
                health=[HealthCheck(port=args.port, path="/health")],
                stop_seconds=0,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=list(args.storage.needs)),
        )
        self.url = pulumi.Output.concat("http://", runtime.public(SERVICE, args.port))
        self.register_outputs({"url": self.url})


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def declare(stack: Stack) -> None:
    """Declare the watch of a stack."""
    watch = IdleEnd(
        SERVICE,
        IdleEndArgs(
            runtime=stack.runtime,
            port=stack.port(PORT),
            minutes=stack.settings.of_services[MINUTES],
            bounds=idle_watch.Bounds(
                *(stack.settings.of_services[key] for key in (CPU_PERCENT, GPU_PERCENT))
            ),
            token=stack.idle_token,
            expires_at=stack.expires_at,
            dashboard_port=stack.port("dashboardPort"),
            ray_token=stack.token,
            nodes=stack.nodes,
            storage=stack.storage,
        ),
    )
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
            "9999 (lambdaCloud with `ttlHours`). 0: only at its deadline. See docs/lambda.md",
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
