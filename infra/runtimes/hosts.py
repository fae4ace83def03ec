"""The process runtime on other machines: one supervisord for each of them.

The Ray head, the object store and monitoring run on the first machine, one Ray worker on each.
"""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi

from cluster import ray_head, ray_worker, services
from cluster.autoscaling import NodeProvider
from cluster.descriptor import Source
from cluster.inputs import join
from cluster.ray_cluster import NODE_SWITCH_PORT, TOKEN_BYTES
from cluster.secret import Secret
from cluster.service import HealthCheck, Port, Service, Volume
from infra.hosts.environment import Environment
from infra.hosts.executable import Executable
from infra.hosts.fleet import Rest
from infra.hosts.machine import PROGRAMS, Machine
from infra.runtimes.mark import StackMark
from infra.runtimes.process import NODE_PROVIDER, Daemon, Data, Files, Program, leaving

LOOPBACK = "127.0.0.1"
WISHES = "wishes"
WISH_PROVIDER = Path(__file__).with_name("wish_provider.py")
NODE_SWITCH = Path(__file__).with_name("node_switch.py")
SWITCH = "node-switch"  # names of services begin so, and end like those of the workers
SWITCH_TOKEN_FILE = "node-switch-token"  # noqa: S105 (a file's name)
SWITCH_SETTINGS_FILE = "settings.json"  # a secret: it has the token
IN_ENVIRONMENT = {
    each.program for each in services.ALL if each.source in (Source.ENVIRONMENT, Source.MODULE)
}


@dataclass(frozen=True, kw_only=True)
class HostsRuntimeArgs:
    """Arguments of the runtime.

    Attributes:
        machines: the machines, the head's first; others may come later.
        several: whether there may be more than one.
        setup_commands: of the user, for the shell of each machine.
        ray: version of Ray that has to be there.
        links_ray: whether a login on a machine is to find Ray.
        folder: runtime folder of each machine, absolute; removed with the stack.
        data: data folder of each machine, absolute or below `~/`.
        keep_data: whether the data folders outlive the stack.
        identifier: name of this stack's supervisords.
        store: name of the object store, "" for a folder.
        shared: names of services of the head's machine that jobs on other machines reach.
        programs: paths of programs of this machine that the first one gets a copy of.
        ports: every port of the stack, so that all conflicts are reported at once.
        start_timeout: seconds that a service may take until it answers.
        drain: seconds that its users may take to leave before it restarts.
    """

    machines: Sequence[Machine]
    several: bool
    setup_commands: Sequence[str]
    ray: str
    links_ray: bool
    folder: str
    data: str
    keep_data: bool
    identifier: str
    store: str
    shared: Collection[str]
    programs: Mapping[str, pulumi.Input[str]]
    ports: Sequence[Port]
    start_timeout: int
    drain: int


class HostsRuntime(pulumi.ComponentResource):
    """Runs services as supervised processes of other machines.

    Attributes:
        folder: runtime folder.
    """

    folder: pulumi.Output[str]

    def __init__(
        self, name: str, args: HostsRuntimeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:hosts:HostsRuntime", name, None, opts)
        self._name, self._args = name, args
        self._mark = StackMark(f"{name}-mark", pulumi.ResourceOptions(parent=self))
        self._machines = {machine.number: machine for machine in args.machines}
        self._base: dict[int, tuple[Daemon, Data]] = {}
        for index, machine in self._machines.items():
            ready = Environment(
                f"{name}-{machine.name}",
                machine,
                setup_commands=args.setup_commands,
                ray=args.ray,
                links_ray=args.links_ray,
                mark=self._mark.known,
                head=_reached_at(self._head) if index else None,
                opts=pulumi.ResourceOptions(parent=self),
            ).ready
            there: dict[str, Any] = {
                "mark": self._mark.props,
                "host": machine.host,
                "machine": machine.identity,
            }
            options = machine.options(self, [ready])
            data = Data(
                f"{name}-{machine.name}-data",
                {
                    "folder": machine.path(args.data),
                    "keep": args.keep_data,
                    "store": "" if index else args.store,
                    **there,
                },
                options,
            )
            daemon = Daemon(
                f"{name}-{machine.name}-supervisor",
                {
                    "folder": args.folder,
                    "identifier": args.identifier,
                    "ports": _ports(args.ports, index),
                    # Elsewhere it is empty, and homes that machines share have one lock.
                    **({} if index else {"data": data.folder}),
                    **there,
                },
                options,
            )
            self._base[index] = (daemon, data)
        self._copied = {name: self._copy(name, path) for name, path in args.programs.items()}
        self.folder = pulumi.Output.from_input(args.folder)
        self.register_outputs({"folder": self.folder})

    @property
    def via(self) -> Mapping[str, pulumi.Input[Any]]:
        """Ports are reached through the head's machine."""
        return self._head.host

    def listen_address(self, service: str) -> pulumi.Input[str]:
        """Return an address that other machines reach if they use the service, else loopback."""
        if service in self._args.shared and self._args.several:
            return self._head.address
        if service.startswith(SWITCH):
            return self._machines[self._index(service)].address
        return LOOPBACK

    def node_address(self, index: int) -> pulumi.Input[str]:
        """Return the address of a node.

        On a single machine each has a loopback address of its own, as in ProcessRuntime.
        """
        if not self._args.several:
            return str(ipaddress.IPv4Address(LOOPBACK) + 1 + index)
        return self._machines[max(0, index - 1)].address

    def address(self, service: str, port: int) -> pulumi.Input[str]:
        """Return host:port at which other services reach the port of a service."""
        return join(self.listen_address(service), f":{port}")

    def published(self, service: str, port: int) -> pulumi.Input[str]:
        """Return host:port at which the head's machine reaches a published port."""
        return self.address(service, port)

    def public(self, service: str, port: int) -> pulumi.Input[str]:
        """Return host:port at which users reach a published port through the head's machine."""
        return self.address(service, port)

    def file(self, service: str, name: str) -> str:
        """Return the path at which a service finds one of its files or secrets."""
        return f"{self._args.folder}/{service}/files/{name}"

    def volume(self, service: str, volume: Volume) -> str:
        """Return the path at which a service finds one of its volumes."""
        machine = self._machines[self._index(service)]
        folder = machine.path(self._args.data) if volume.keep else self._args.folder
        return f"{folder}/{service}/{volume.name}"

    def switch_provider(self) -> NodeProvider:
        """Declare switches by which the head starts and stops the workers of other machines.

        The head's machine has no key to log in to them. Its own worker is run by its own
        supervisord.
        """
        (port,) = (port.number for port in self._args.ports if port.setting == NODE_SWITCH_PORT)
        child = pulumi.ResourceOptions(parent=self)
        token = Secret(f"{self._name}-{SWITCH}-token", TOKEN_BYTES, child).value
        switches: dict[str, pulumi.Input[str]] = {}
        for number in self._machines.keys() - {0}:
            name, worker = _switch(number), ray_worker.service(number)
            address = self.listen_address(name)
            known = pulumi.Output.json_dumps(
                {"address": address, "port": port, "program": worker, "token": token}
            )
            self.place(
                Service(
                    name=name,
                    program="python",
                    arguments=[
                        self.file(name, NODE_SWITCH.name),
                        self.file(name, SWITCH_SETTINGS_FILE),
                    ],
                    files={NODE_SWITCH.name: NODE_SWITCH.read_text(encoding="utf-8")},
                    secrets={SWITCH_SETTINGS_FILE: known},
                    ports=[Port(number=port, setting=NODE_SWITCH_PORT)],
                    health=[HealthCheck(port=port, path="/health")],
                    stop_seconds=0,
                ),
                child,
            )
            switches[worker] = join("http://", address, f":{port}")
        return NodeProvider(
            text=NODE_PROVIDER.read_text(encoding="utf-8"),
            settings={
                "supervisor": self._args.folder,
                "switches": switches,
                "token": self.file(ray_head.SERVICE, SWITCH_TOKEN_FILE),
            },
            secrets={SWITCH_TOKEN_FILE: token},
        )

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> Program:
        """Declare a service; the returned resource exists once its health checks answer."""
        index = self._index(service.name)
        machine, (daemon, data) = self._machines[index], self._base[index]
        listens = self.listen_address(service.name)
        props: dict[str, Any] = {
            "folder": daemon.folder,
            "name": service.name,
            "command": [self._executable(service.program, machine), *service.arguments],
            "environment": {**service.environment, **self.environment(machine)},
            "files": dict(service.files),
            "secrets": pulumi.Output.secret(dict(service.secrets)),
            "folders": [self.volume(service.name, volume) for volume in service.volumes],
            "stopSeconds": service.stop_seconds,
            "ports": [{"number": p.number, "setting": p.setting} for p in service.ports],
            "health": [
                join("http://", listens, f":{check.port}{check.path}") for check in service.health
            ],
            "startTimeout": self._args.start_timeout,
            "mark": self._mark.props,
            "host": machine.host,
            "machine": machine.identity,
            **({"onDemand": True} if service.on_demand else {}),
            **leaving(service, self._args.drain),
        }
        there = machine.options(self, [data])
        return Program(
            f"{self._name}-{service.name}", props, pulumi.ResourceOptions.merge(there, opts)
        )

    def environment(self, machine: Machine) -> dict[str, pulumi.Input[str]]:
        """Return the variables that tell programs of a machine about its network.

        Gloo would take the address of the machine's own name, which is a loopback one on Debian
        and Ubuntu, and tell it to its peers on other machines.
        """
        return {"GLOO_SOCKET_IFNAME": machine.interface} if self._args.several else {}

    def place_files(
        self,
        service: str,
        index: int,
        files: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
    ) -> Files:
        """Declare secret files for a service of a machine that the stack does not start itself."""
        machine, (daemon, _) = self._machines[index], self._base[index]
        props = {
            "folder": daemon.folder,
            "name": service,
            "secrets": pulumi.Output.secret(dict(files)),
            "mark": self._mark.props,
            "host": machine.host,
            "machine": machine.identity,
        }
        there = machine.options(self)
        name = f"{self._name}-{machine.name}-{service}"
        return Files(name, props, pulumi.ResourceOptions.merge(there, opts))

    @property
    def wishes(self) -> str:
        """Folder of the head's machine for the wishes about a group that grows."""
        return f"{self._args.folder}/{WISHES}"

    def node_provider(self, rest: Rest) -> NodeProvider:
        """Return the provider that records which machines of a group are wanted."""
        # Not imported: it imports all of Ray.
        text = WISH_PROVIDER.read_text(encoding="utf-8")
        group = [ray_worker.service(number) for number in rest.numbers]
        return NodeProvider(
            text=text, settings={"folder": self.wishes, "group": group, "least": rest.least}
        )

    @property
    def label(self) -> pulumi.Output[str]:
        """Value of the variable that marks processes of Ray's launcher as the stack's."""
        return self._mark.known.apply(lambda mark: mark.label)

    @property
    def _head(self) -> Machine:
        return self._machines[0]

    def _index(self, service: str) -> int:
        """Return the machine of a service: that of its worker or switch, else the head's."""
        for number in self._machines:
            if service in (ray_worker.service(number), _switch(number)):
                return number
        return 0

    def _executable(self, program: str, machine: Machine) -> pulumi.Input[str]:
        if program in self._copied:
            return self._copied[program]
        if program in machine.programs:
            return machine.programs[program]
        if program in IN_ENVIRONMENT:
            return f"{machine.environment}/bin/{program}"
        raise ValueError(f"{machine.name} has no {program}")

    def _copy(self, program: str, source: pulumi.Input[str]) -> pulumi.Output[str]:
        """Declare a copy of a program of this machine on the head's."""
        return Executable(
            f"{self._name}-{program}",
            {
                "source": source,
                "path": f"{self._head.base}/{PROGRAMS}/{program}",
                "host": self._head.host,
                "machine": self._head.identity,
            },
            # Removed with its folder, which is removed later.
            self._head.options(self, [self._base[0][0]]),
        ).path


def _switch(number: int) -> str:
    """Return the name of the service that starts and stops the worker of a machine."""
    return f"{SWITCH}-{number}"


def _reached_at(machine: Machine) -> pulumi.Output[Any]:
    """Return address and SSH port of a machine, for the others."""
    return pulumi.Output.all(machine.address, machine.connection["port"])


def _ports(ports: Sequence[Port], machine: int) -> dict[str, list[int]]:
    """Return the ports of a machine: the head's has all but other workers' agents and switches."""
    agents = sorted(port.number for port in ports if port.setting == "agentPort")
    mine = {agents[0], agents[1]} if machine == 0 else {agents[machine + 1]}
    found: dict[str, list[int]] = {}
    for port in ports:
        if port.setting == "agentPort":
            here = port.number in mine
        else:
            here = (port.setting == NODE_SWITCH_PORT) == (machine > 0)
        if here:
            found.setdefault(port.setting, []).append(port.number)
    return found
