"""The process runtime on other machines: one supervisord for each of them.

The Ray head, the object store and monitoring run on the first machine, one Ray worker on each.
"""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster import ray_worker, services
from cluster.descriptor import Source
from cluster.inputs import join
from cluster.service import Port, Service, Volume
from infra.hosts.environment import Environment
from infra.hosts.executable import Executable
from infra.hosts.machine import PROGRAMS, Machine
from infra.runtimes.mark import StackMark
from infra.runtimes.process import Daemon, Data, Files, Program

LOOPBACK = "127.0.0.1"
IN_ENVIRONMENT = {
    each.program for each in services.ALL if each.source in (Source.ENVIRONMENT, Source.MODULE)
}


@dataclass(frozen=True, kw_only=True)
class HostsRuntimeArgs:
    """Arguments of the runtime.

    Attributes:
        machines: the machines, the head's first.
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
        ports: every port of the stack, so that all conflicts are told at once.
        start_timeout: seconds that a service may take until it answers.
    """

    machines: Sequence[Machine]
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
        self._base: list[tuple[Daemon, Data]] = []
        for index, machine in enumerate(args.machines):
            ready = Environment(
                f"{name}-{machine.name}",
                machine,
                setup_commands=args.setup_commands,
                ray=args.ray,
                links_ray=args.links_ray,
                mark=self._mark.known,
                head=_reached_at(args.machines[0]) if index else None,
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
                    # On the others nothing is in it, and homes that machines share have one lock.
                    **({} if index else {"data": data.folder}),
                    **there,
                },
                options,
            )
            self._base.append((daemon, data))
        self._copied = {name: self._copy(name, path) for name, path in args.programs.items()}
        self.folder = pulumi.Output.from_input(args.folder)
        self.register_outputs({"folder": self.folder})

    @property
    def via(self) -> Mapping[str, pulumi.Input[Any]]:
        """Ports are reached through the head's machine."""
        return self._head.host

    def listen_address(self, service: str) -> pulumi.Input[str]:
        """Return what other machines reach too, of what they use; all else stays on its machine."""
        if service in self._args.shared and len(self._args.machines) > 1:
            return self._head.address
        return LOOPBACK

    def node_address(self, index: int) -> pulumi.Input[str]:
        """Return the address of a node.

        On a single machine each has a loopback address of its own, as ProcessRuntime has it.
        """
        if len(self._args.machines) == 1:
            return str(ipaddress.IPv4Address(LOOPBACK) + 1 + index)
        return self._args.machines[max(0, index - 1)].address

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
        machine = self._args.machines[self._index(service)]
        folder = machine.path(self._args.data) if volume.keep else self._args.folder
        return f"{folder}/{service}/{volume.name}"

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> Program:
        """Declare a service; the returned resource exists once its health checks answer."""
        index = self._index(service.name)
        machine, (daemon, data) = self._args.machines[index], self._base[index]
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
        }
        there = machine.options(self, [data])
        return Program(
            f"{self._name}-{service.name}", props, pulumi.ResourceOptions.merge(there, opts)
        )

    def environment(self, machine: Machine) -> dict[str, pulumi.Input[str]]:
        """Return what programs of a machine are told of its network.

        Gloo would take the address of the machine's own name, which is a loopback one on Debian
        and Ubuntu, and tell it to its peers on other machines.
        """
        return {} if len(self._args.machines) == 1 else {"GLOO_SOCKET_IFNAME": machine.interface}

    def place_files(
        self,
        service: str,
        index: int,
        files: Mapping[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions,
    ) -> Files:
        """Declare the secret files of a service of a machine that something else starts."""
        machine, (daemon, _) = self._args.machines[index], self._base[index]
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
    def label(self) -> pulumi.Output[str]:
        """Value of the variable by which what Ray's launcher starts is known as the stack's."""
        return self._mark.known.apply(lambda mark: mark.label)

    @property
    def _head(self) -> Machine:
        return self._args.machines[0]

    def _index(self, service: str) -> int:
        """Return the machine of a service: that of a worker, else the head's."""
        names = [ray_worker.service(index) for index in range(len(self._args.machines))]
        return names.index(service) if service in names else 0

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
            # Removed with the folder that it lies in, which is removed later.
            self._head.options(self, [self._base[0][0]]),
        ).path


def _reached_at(machine: Machine) -> pulumi.Output[Any]:
    """Return address and SSH port of a machine, for the others."""
    return pulumi.Output.all(machine.address, machine.connection["port"])


def _ports(ports: Sequence[Port], machine: int) -> dict[str, list[int]]:
    """Return the ports of a machine: all but other workers' agents; the head's has all its own."""
    agents = sorted(port.number for port in ports if port.setting == "agentPort")
    mine = {agents[0], agents[1]} if machine == 0 else {agents[machine + 1]}
    found: dict[str, list[int]] = {}
    for port in ports:
        agent = port.setting == "agentPort"
        if (agent and port.number in mine) or (not agent and machine == 0):
            found.setdefault(port.setting, []).append(port.number)
    return found
