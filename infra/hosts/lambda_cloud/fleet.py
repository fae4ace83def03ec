"""Rented machines as hosts of a stack: their resources in the account, and how to reach them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from cluster.inputs import join, lift
from cluster.ray_node import NodeResources
from infra.hosts import cloud_init, local
from infra.hosts.fleet import Declared, ElasticGroup, FleetArgs, IdleWatch, Login
from infra.hosts.host_key import HostKey
from infra.hosts.lambda_cloud import identity
from infra.hosts.lambda_cloud.choice import Pick
from infra.hosts.lambda_cloud.deadline import Deadline, after
from infra.hosts.lambda_cloud.resources import (
    Account,
    Active,
    Choice,
    FileSystem,
    FirewallRuleset,
    Instance,
    SshKey,
)
from infra.hosts.lambda_cloud.settings import INSTANCE, LambdaCloud
from infra.hosts.machine import Group, Machine
from infra.hosts.reachable import Reachable
from infra.node_settings import NodeGroup, worker_on

SSH_PORT = 22
NOT_HOSTNAME = re.compile(r"[^a-z0-9-]+")
HOSTNAME_LIMIT = 60  # of 63, with the number after it


class LambdaFleet:
    """The machines that a stack rents.

    Attributes:
        groups: those that are always there, then those of a group that grows, if any.
    """

    groups: Sequence[Group]

    def __init__(self, cloud: LambdaCloud, args: FleetArgs) -> None:
        """Prepare to rent instances that meet the stack's requirements; nothing is declared yet."""
        self._cloud, self._args = cloud, args
        need = {"gpus": cloud.gpus, "gpuMemoryGib": cloud.gpu_memory_gib} if cloud.gpus else {}
        self._group = Group(
            name="host",
            type={"candidates": [dict(each) for each in cloud.candidates], "need": need},
            count=cloud.instances,
            resources=args.resources,
        )
        self._elastic = [
            replace(self._group, count=group.count, resources=group.fields, label=group.name)
            for group in args.growing
        ]
        self.groups = [self._group, *self._elastic]

    def declare(self) -> Declared:
        """Declare instances, and the resources that they need in the account."""
        return Rental("lambda", self._cloud, self.groups, self._args).declared


class Rental(pulumi.ComponentResource):
    """The instances of a stack, and the resources that they need in the account."""

    declared: Declared

    def __init__(
        self,
        name: str,
        cloud: LambdaCloud,
        groups: Sequence[Group],
        args: FleetArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare instances: those of the first group are always there, the others come and go."""
        super().__init__("trainyard:lambda:Fleet", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        always, most = groups[0].count, sum(group.count for group in groups)
        account = Account(f"{name}-account", child)
        marks = {"stackId": account.stackId, "backendId": account.backendId}
        choice = Choice(
            f"{name}-choice",
            {
                "stackId": account.stackId,
                **groups[0].type,
                # Bounds hold for the largest possible number.
                "count": most,
                "least": always + sum(grown.growth.least for grown in args.growing if grown.growth),
                "maxHourlyCost": cloud.max_hourly_cost,
                "budget": cloud.budget,
                "ttlHours": cloud.ttl_hours,
                # Ray's ports are open to everyone who reaches the machine, where no rules apply.
                "needFirewall": True,
            },
            child,
        )
        key_file = args.key_file or Path(f"~/.ssh/{cloud.ssh_key_name}.pem")
        key = SshKey(
            f"{name}-key",
            {**marks, "name": cloud.ssh_key_name, "keyFile": str(key_file)},
            child,
        )
        firewall = FirewallRuleset(
            f"{name}-firewall",
            {
                **marks,
                "regions": choice.regions,
                "rules": [_rule(cidr) for cidr in args.allowed_cidrs],
            },
            child,
        )
        mounts = {
            path: FileSystem(
                f"{name}-file-system-{system}",
                {"name": system, "region": choice.region, "keep": args.keep_data},
                child,
            ).id
            for system, path in cloud.file_systems.items()
        }
        shared = identity.tags(
            project=pulumi.get_project(),
            stack=pulumi.get_stack(),
            owner=local.owner(args.owner),
            backend=account.backendId,
        )
        host_keys: dict[int, HostKey] = {}
        instances: dict[int, Instance] = {}
        for index in (*range(always), *args.requested):
            host_keys[index] = HostKey(f"{name}-host-key-{index}", child)
            instances[index] = Instance(
                f"{name}-instance-{index}",
                {
                    "stackId": account.stackId,
                    "name": f"{pulumi.get_project()}-{pulumi.get_stack()}-{index}",
                    "node": index,
                    "count": most,
                    "choices": choice.choices,
                    "sshKeyName": key.name,
                    "hostname": _hostname(pulumi.get_stack(), index),
                    "tags": shared,
                    "firewallRulesetIds": firewall.ids,
                    "fileSystemMounts": mounts,
                    "userData": _user_data(host_keys[index], key),
                    "ttlHours": cloud.ttl_hours,
                },
                child,
            )

        def await_active(suffix: str, numbers: Sequence[int]) -> Active:
            return Active(
                f"{name}-active{suffix}",
                {
                    "instanceIds": [instances[number].id for number in numbers],
                    "timeoutMinutes": cloud.boot_timeout_minutes,
                },
                child,
            )

        together = await_active("", range(always))
        # A late or missing one does not hold up others.
        alone = {number: await_active(f"-{number}", [number]) for number in args.requested}
        machines = [
            self._machine(
                number,
                groups[int(number >= always)],
                instance,
                host_keys[number],
                alone.get(number, together),
                key,
                args,
                timeout=cloud.boot_timeout_minutes,
            )
            for number, instance in instances.items()
        ]
        expires_at = pulumi.Output.from_input("")
        if cloud.ttl_hours:
            launched = [instances[number].launchedAt for number in range(always)]
            expires_at = pulumi.Output.all(*launched).apply(
                lambda known: after(min(known), cloud.ttl_hours)
            )
            for machine in machines:
                instance = instances[machine.number]
                own = lift(lambda at: after(at, cloud.ttl_hours), instance.launchedAt)
                Deadline(
                    f"{name}-deadline-{machine.number}",
                    {
                        "host": {**machine.connection, "user": cloud_init.ADMIN},
                        "machine": instance.id,
                        # Later ones end with the stack: they are useless without a head.
                        "at": own if machine.number < always else expires_at,
                        **_idle(args.idle, machine, machines[0], several=most > 1),
                    },
                    machine.options(self),
                )
        elastic_group = None
        for grown in args.growing:
            first = instances[0]
            elastic_group = ElasticGroup(
                numbers=range(always, most),
                least=grown.growth.least if grown.growth else 0,
                resources=lift(
                    partial(_offered, grown), choice.choices, first.instanceType, first.region
                ),
            )
        login = Login(key_file=str(key_file), hands_out_key=True)
        self.declared = Declared(
            machines=machines, login=login, elastic_group=elastic_group, expires_at=expires_at
        )
        self.register_outputs({"expires_at": expires_at})

    def _machine(
        self,
        number: int,
        group: Group,
        instance: Instance,
        host_key: HostKey,
        active: Active,
        key: SshKey,
        args: FleetArgs,
        *,
        timeout: int,
    ) -> Machine:
        name = f"{group.name}-{number}"
        addresses = pulumi.Output.all(active.addresses, instance.id).apply(
            lambda known: known[0][known[1]]
        )
        connection: dict[str, pulumi.Input[Any]] = {
            "host": addresses["ip"],
            "port": SSH_PORT,
            "user": cloud_init.USER,
            "hostKey": host_key.publicKey,
            "privateKey": pulumi.Output.secret(key.privateKey),
            INSTANCE: instance.id,
        }
        # The API leaves it out without a private network.
        address = addresses.apply(lambda known: known["privateIp"] or known["ip"])
        reachable = Reachable(
            f"lambda-{name}",
            {
                "host": connection,
                "machine": instance.id,
                "address": address,
                "timeoutMinutes": timeout,
            },
            pulumi.ResourceOptions(parent=self, deleted_with=instance),
        )
        return Machine(
            name=name,
            number=number,
            group=group,
            identity=instance.id,
            connection=connection,
            address=address,
            interface=reachable.interface,
            home=cloud_init.HOME,
            base=f"{cloud_init.HOME}/{args.base}",
            python_environment=args.python_environment,
            cpus=reachable.cpus,
            memory_mib=reachable.memoryMib,
            gpus=reachable.gpus,
            programs={"prometheus": cloud_init.PROMETHEUS},
            after=[reachable],
            part_of=instance,
        )


def _idle(
    idle: IdleWatch | None, machine: Machine, head: Machine, *, several: bool
) -> dict[str, pulumi.Input[Any]]:
    """Return the watch that a machine's timer asks, {} where only the deadline counts."""
    if idle is None:
        return {}
    # On several machines services that others use listen on the head's address only.
    address = head.address if several else "127.0.0.1"
    known = {
        "url": join("http://", address, f":{idle.port}/verdict"),
        "token": idle.token,
        "last": machine.number == 0,
    }
    return {"idle": pulumi.Output.secret(known)}


def _offered(
    group: NodeGroup, choices: Sequence[Mapping[str, Any]], instance_type: str, region: str
) -> NodeResources:
    """Return the resources that the worker of each instance of a group offers.

    It has to be known before an instance exists, and stay the same afterwards: Ray starts another
    node for work that does not fit on the first one. So the instance is not asked; it is like the
    stack's first one, whose type and region are given.
    """
    same = [c for c in choices if (c["instanceType"], c["region"]) == (instance_type, region)]
    pick = Pick.model_validate((same or choices)[0])
    offered = worker_on(group.name, group.fields, pick.vcpus, pick.memory_mib, pick.gpus)
    return replace(offered, growth=group.growth, hourly_cost=pick.hourly_cost)


def _hostname(stack: str, index: int) -> str:
    """Return a host name that the API takes; a stack's name may hold more and be longer."""
    return f"{NOT_HOSTNAME.sub('-', stack.lower()).strip('-')[:HOSTNAME_LIMIT] or 'host'}-{index}"


def _rule(cidr: str) -> dict[str, Any]:
    return {
        "protocol": "tcp",
        "sourceNetwork": cidr,
        "firstPort": SSH_PORT,
        "lastPort": SSH_PORT,
        "description": "SSH",
    }


def _user_data(host_key: HostKey, key: SshKey) -> pulumi.Output[str]:
    return pulumi.Output.secret(
        pulumi.Output.all(
            host_key=host_key.privateKey,
            host_public_key=host_key.publicKey,
            authorized_key=key.publicKey,
        ).apply(lambda known: cloud_init.user_data(**known))
    )
