"""The process runtime: one supervisord for each host of a stack, this machine or others.

The Ray head, the object store and monitoring run on the first host. This machine runs all workers;
of other machines each runs one.
"""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

import pulumi

from cluster import idle_end, page, ray_node
from cluster.autoscaling import PROVIDER_FILE, RayNodeProvider
from cluster.inputs import join
from cluster.ray_cluster import NODE_SWITCH_PORT
from cluster.secret import TOKEN_BYTES, Secret
from cluster.service import HealthCheck, Port, Service, Volume
from infra.machines import local
from infra.machines.fleet import ElasticGroup, IdleWatch
from infra.machines.machine import AGENT, LOOPBACK, Host, Machine
from infra.machines.once import Once, OnceArgs
from infra.machines.process import (
    Daemon,
    DaemonArgs,
    Data,
    DataArgs,
    Files,
    FilesArgs,
    Program,
    ProgramArgs,
)
from infra.places.args import RuntimeArgs
from infra.places.stack_mark import StackMark
from node import ray_leave, ray_logs, source_text
from node.ports import by_setting
from node.process_health import TCP
from node.ray_start import MODULES

REQUESTS = "requests"
IDLE = idle_end.SERVICE
NODE_SWITCH = "node_switch.py"
SWITCH = "node-switch"  # names of services begin so, and end like those of the workers
SWITCH_TOKEN_FILE = "node-switch-token"  # noqa: S105 (a file's name)
SWITCH_SETTINGS_FILE = "settings.json"  # a secret: it has the token


@dataclass(frozen=True, kw_only=True)
class ProcessRuntimeArgs(RuntimeArgs):
    """Arguments of the process runtime.

    Attributes:
        hosts: the hosts, the head's first; others may come later.
        mark: tells the files of this stack from others.
        idle: whom the timer of a reservation asks too; None for nobody.
    """

    hosts: Sequence[Host]
    mark: StackMark
    idle: IdleWatch | None = None


class ProcessRuntime(pulumi.ComponentResource):
    """Runs services as supervised processes."""

    folder: pulumi.Output[str]

    def __init__(
        self, name: str, args: ProcessRuntimeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:process:ProcessRuntime", name, None, opts)
        self._name, self._args, settings = name, args, args.settings
        # Of each host, absolute; data also below `~/`.
        self._folder, self._data = str(settings.state_dir), str(settings.data_dir)
        self._several = settings.on_hosts > 1
        self._hosts = {host.number: host for host in args.hosts}
        self._filled: dict[str, Once] = {}
        self._base: dict[int, tuple[Daemon, Data]] = {}
        for index, host in self._hosts.items():
            own: dict[str, Any] = {"mark": args.mark.props, **host.reached}
            ports = _ports(args.ports, index, several=self._several)
            data = Data(
                f"{host.name}-data",
                DataArgs(
                    folder=host.path(self._data),
                    keep=settings.keep_data,
                    store="" if index else args.store,
                    ports=ports,
                    **own,
                ),
                host.options(self),
            )
            daemon = Daemon(
                f"{host.name}-supervisor",
                DaemonArgs(
                    folder=self._folder,
                    identifier=f"{pulumi.get_project()}-{pulumi.get_stack()}",
                    ports=ports,
                    # Elsewhere it is empty, and homes that machines share have one lock.
                    data=None if index else data.folder,
                    reservation=self._end(index) if args.end else None,
                    **own,
                ),
                host.options(self),
            )
            self._base[index] = (daemon, data)
        self.folder = self._base[0][0].folder
        self.register_outputs({"folder": self.folder})

    def _end(self, index: int) -> dict[str, Any]:
        """Return what the timer of a host's supervisord is told."""
        told: dict[str, Any] = {
            "end": self._args.end,
            "drainSeconds": self._args.settings.drain_seconds,
        }
        if idle := self._args.idle:
            last = self._several and not index
            watch = idle.asked_at(self.address(IDLE, idle.port), last=last)
            if not index:
                watch["file"] = idle_end.state_file(self)
            told["idle"] = pulumi.Output.secret(watch)
        if index:
            return told
        address = join(self.node_address(0), f":{self._args.settings.ports['gcsPort']}")
        arguments = [address, ray_leave.EVERY]
        leave = {"service": ray_node.HEAD, "file": ray_leave.FILE, "arguments": arguments}
        reserved = self._args.settings.reservation
        return {**told, "leave": leave, **(reserved.hook if reserved else {})}

    @property
    def via(self) -> Mapping[str, pulumi.Input[Any]] | None:
        """Ports of other machines are reached through the head's."""
        return self._head.reached.get("host")

    def listen_address(self, service: str) -> pulumi.Input[str]:
        """Return an address that other hosts reach if they use the service, else loopback."""
        shared = (each.name for each in self._args.running if each.shared)
        if self._several and service in shared:
            return self._head.address
        if service.startswith(SWITCH):
            return self._hosts[self._index(service)].address
        return LOOPBACK

    def node_address(self, index: int) -> pulumi.Input[str]:
        """Return the address of a node; on a single host each has a loopback address of its own.

        Ray takes 127.0.0.1 for the machine's address, with which the cluster would be open to
        others, and lost when a laptop changes its network.
        """
        if not self._several:
            return str(ipaddress.IPv4Address(LOOPBACK) + 1 + index)
        return self._hosts[max(0, index - 1)].address

    def address(self, service: str, port: int) -> pulumi.Input[str]:
        return join(self.listen_address(service), f":{port}")

    published = address  # at which the head's host reaches a published port
    public = address  # at which users do, through the head's host

    def file(self, service: str, name: str) -> str:
        return f"{self._folder}/{service}/files/{name}"

    def volume(self, service: str, volume: Volume) -> str:
        if volume.source:
            return volume.mount
        host = self._hosts[self._index(service)]
        base = host.path(self._data) if volume.keep else self._folder
        return f"{base}/{volume.name}" if volume.shared else f"{base}/{service}/{volume.name}"

    def node_provider(self) -> RayNodeProvider:
        """Return the provider that has the supervisords start and stop nodes on demand.

        The head's machine has no key to log in to others, so they get switches. Its own workers are
        run by its own supervisord.
        """
        settings: dict[str, Any] = {"supervisor": self._folder}
        if not self._several:
            return _node_provider(settings)
        token = Secret(
            f"{self._name}-{SWITCH}-token", TOKEN_BYTES, pulumi.ResourceOptions(parent=self)
        ).value
        settings["switches"] = {
            ray_node.worker_name(number): self._switch(number, token)
            for number in self._hosts.keys() - {0}
        }
        settings["token"] = self.file(ray_node.HEAD, SWITCH_TOKEN_FILE)
        return _node_provider(settings, {SWITCH_TOKEN_FILE: token})

    def _switch(self, number: int, token: pulumi.Input[str]) -> pulumi.Input[str]:
        """Declare the switch of another machine's worker; return its URL."""
        port = self._args.settings.ports[NODE_SWITCH_PORT]
        name = _switch_name(number)
        address = self.listen_address(name)
        known = pulumi.Output.json_dumps(
            {
                "address": address,
                "port": port,
                "program": ray_node.worker_name(number),
                "token": token,
            }
        )
        self.place(
            Service(
                name=name,
                program="python",
                arguments=[
                    self.file(name, NODE_SWITCH),
                    self.file(name, SWITCH_SETTINGS_FILE),
                ],
                files={NODE_SWITCH: source_text(NODE_SWITCH)},
                secrets={SWITCH_SETTINGS_FILE: known},
                ports=[Port(number=port, setting=NODE_SWITCH_PORT)],
                health=[HealthCheck(port=port, path="/health")],
                stop_seconds=0,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        return join("http://", address, f":{port}")

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        if service.once:
            return self._place_once(service, opts)
        index = self._index(service.name)
        host, (daemon, data) = self._hosts[index], self._base[index]
        listens = self.listen_address(service.name)
        leave = service.leave
        props = ProgramArgs(
            folder=daemon.folder,
            name=service.name,
            command=[*self._program(service, host), *service.arguments],
            environment={
                **service.environment,
                **self.environment(host),
                **self._one_machine(service, host),
                **({MODULES: f"{host.base}/{AGENT}"} if _is_client(host, service) else {}),
            },
            files=dict(service.files),
            secrets=pulumi.Output.secret(dict(service.secrets)),
            folders=self._folders(service),
            stopSeconds=service.stop_seconds,
            ports=[{"number": p.number, "setting": p.setting} for p in service.ports],
            health=[
                *(join("http://", listens, f":{each.port}{each.path}") for each in service.health),
                *(join(f"{TCP}://", self.node_address(0), f":{port}") for port in service.listens),
            ],
            startTimeout=self._args.settings.start_timeout_seconds,
            mark=self._args.mark.props,
            onDemand=service.on_demand or None,
            steadySeconds=service.steady_seconds or None,
            leave={**vars(leave), "seconds": self._args.settings.drain_seconds} if leave else None,
            **host.reached,
        )
        fillers = [self._filled[v.name] for v in service.volumes if v.name in self._filled]
        after = host.options(self, [data, *fillers])
        return Program(
            f"{self._name}-{service.name}", props, pulumi.ResourceOptions.merge(after, opts)
        )

    def environment(self, host: Host) -> dict[str, pulumi.Input[str]]:
        """Return the variables that tell programs of a host about its network.

        Gloo would take the address of the machine's own name, which is a loopback one on Debian
        and Ubuntu, and tell it to its peers on other machines.
        """
        return {"GLOO_SOCKET_IFNAME": host.interface} if self._several else {}

    def place_files(
        self,
        service: str,
        index: int,
        files: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
    ) -> Files:
        """Declare secret files for a service of a host that the stack does not start itself."""
        host, (daemon, _) = self._hosts[index], self._base[index]
        props = FilesArgs(
            folder=daemon.folder,
            name=service,
            secrets=pulumi.Output.secret(dict(files)),
            mark=self._args.mark.props,
            **host.reached,
        )
        after = host.options(self)
        return Files(f"{host.name}-{service}", props, pulumi.ResourceOptions.merge(after, opts))

    @property
    def requests_folder(self) -> str:
        """Folder of the head's machine for the requests of machines of an elastic group."""
        return f"{self._folder}/{REQUESTS}"

    def request_provider(self, group: ElasticGroup) -> RayNodeProvider:
        """Return the provider that requests machines of a group."""
        return _node_provider(
            {
                "requests": self.requests_folder,
                "group": [ray_node.worker_name(number) for number in group.numbers],
                "least": group.least,
            }
        )

    @property
    def label(self) -> pulumi.Output[str]:
        """Value of the variable that marks processes of Ray's launcher as the stack's."""
        return self._args.mark.known.apply(lambda mark: mark.label)

    @property
    def _head(self) -> Host:
        return self._hosts[0]

    def _index(self, service: str) -> int:
        """Return the host of a service: that of its worker or switch, else the head's."""
        for number in self._hosts:
            if service in (ray_node.worker_name(number), _switch_name(number)):
                return number
        return 0

    def _place_once(self, service: Service, opts: pulumi.ResourceOptions) -> Once:
        """Declare a service of this machine that runs to its end."""
        daemon, data = self._base[0]
        props = OnceArgs(
            folder=daemon.folder,
            name=service.name,
            command=[self._head.programs[service.program], *service.arguments],
            environment=dict(service.environment),
            hostFiles={
                name: local.existing_file(path, f"{service.name}.{name}")
                for name, path in service.host_files.items()
            },
            folders=[self.volume(service.name, volume) for volume in service.volumes],
            mark=self._args.mark.props,
        )
        after = pulumi.ResourceOptions(depends_on=[data])
        once = Once(
            f"{self._name}-{service.name}", props, pulumi.ResourceOptions.merge(opts, after)
        )
        self._filled |= {volume.name: once for volume in service.volumes}
        return once

    def _program(self, service: Service, host: Host) -> list[pulumi.Input[str]]:
        """Return the words that start a service's program, or its script."""
        path = host.programs.get(service.name) or host.programs[service.program]
        if _is_client(host, service):
            return [path, "-P", "-m", "trainyard.client"]
        if not service.script:
            return [path]
        python = pulumi.Output.from_input(path).apply(partial(_python, here=not host.reached))
        return [python, self.file(service.name, service.script)]

    def _one_machine(self, service: Service, host: Host) -> dict[str, str]:
        """Return the variables of a Ray worker of this machine, which its head shares."""
        # The Ray of other machines does not find our packages.
        if host.reached or not service.name.startswith(ray_node.WORKER):
            return {}
        return ray_logs.environment(self.volume(ray_node.HEAD, ray_node.TEMP))

    def _folders(self, service: Service) -> list[str]:
        """Return the folders that a service needs; others make those that it only reads."""
        own = (v for v in service.volumes if not (v.read_only or v.source))
        return [self.volume(service.name, volume) for volume in own]


def _node_provider(
    settings: Mapping[str, Any], secrets: Mapping[str, pulumi.Input[str]] | None = None
) -> RayNodeProvider:
    # Not imported: it imports all of Ray.
    text = source_text(PROVIDER_FILE)
    return RayNodeProvider(text=text, settings=settings, secrets=secrets or {})


def _is_client(host: Host, service: Service) -> TypeGuard[Machine]:
    """Return whether a service of another machine is our client, which comes with the agent."""
    return isinstance(host, Machine) and service.name == page.SERVICE


def _switch_name(number: int) -> str:
    return f"{SWITCH}-{number}"


def _ports(ports: Collection[Port], host: int, *, several: bool) -> dict[str, list[int]]:
    """Return the ports of a host: the head's has all but other workers' agents and switches."""
    agents = sorted(port.number for port in ports if port.setting == "agentPort")
    if several:
        agents = agents[:2] if host == 0 else agents[host + 1 : host + 2]

    def is_here(port: Port) -> bool:
        if port.setting == "agentPort":
            return port.number in agents
        return (port.setting == NODE_SWITCH_PORT) == (host > 0)

    return by_setting((each.setting, each.number) for each in ports if is_here(each))


def _python(program: str, *, here: bool) -> str:
    """Return the Python beside an environment's program; here that may be a link to another's."""
    path = Path(program)
    return str((path.resolve() if here else path).with_name("python3"))
