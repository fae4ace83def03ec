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
from infra.hosts.lambda_cloud.deadline import Deadline, DeadlineArgs, after
from infra.hosts.lambda_cloud.resources import (
    Account,
    AccountArgs,
    Active,
    ActiveArgs,
    Choice,
    FileSystem,
    FileSystemArgs,
    FirewallRuleset,
    FirewallRulesetArgs,
    Instance,
    SshKey,
    SshKeyArgs,
)
from infra.hosts.lambda_cloud.settings import INSTANCE, LambdaCloud
from infra.hosts.machine import Machine
from infra.hosts.reachable import Reachable
from infra.node_settings import Group, worker

SSH_PORT = 22
ENDLESS = (
    "the instances have no end, and cost money until `make down`; lambdaCloud.ttlHours sets one"
)
# With the private key, a job could become the admin, who may read the account's API key.
NO_TIMER = (
    "with startRay: false no instance ends itself, because jobs could read the account's API key, "
    "which its timer needs. After ttlHours they cost money until `make down`, or until `train reap "
    "--past-end`: schedule it on another machine"
)
NAME_LIMIT = 60  # of 63 in a host's name and of 64 in an instance's, with the number after it


class Rental(pulumi.ComponentResource):
    """The instances of a stack, and the resources that they need in the account.

    The first ones are always there; those of a group that grows come and go.
    """

    declared: Declared

    def __init__(self, name: str, cloud: LambdaCloud, args: FleetArgs) -> None:
        """Declare instances that meet the stack's requirements."""
        super().__init__("trainyard:lambda:Fleet", name)
        self._args, self._timeout = args, cloud.boot_timeout_minutes
        child = pulumi.ResourceOptions(parent=self)
        own = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
        title = _title("-".join(own.values()), args.owner)
        # All instances are alike, so there is one at most.
        grown = next((group for group in args.groups if group.growth), None)
        least = grown.min if grown else 0
        always, most = cloud.instances, cloud.most(args.groups)
        # Of a reservation its whole length: an instance launched in it ends no later.
        hours = args.reservation.hours if args.reservation else cloud.ttl_hours
        account = Account(
            f"{name}-account", AccountArgs(organization=pulumi.get_organization(), **own), child
        )
        marks = {"stackId": account.stackId, "backendId": account.backendId}
        choice = Choice(
            f"{name}-choice",
            {
                "stackId": account.stackId,
                "candidates": [dict(each) for each in cloud.candidates],
                "gpus": cloud.gpus,
                "gpuMemoryGib": cloud.gpu_memory_gib,
                # Bounds hold for the largest possible number.
                "count": most,
                "least": always + least,
                "maxHourlyCost": cloud.max_hourly_cost,
                "budget": cloud.budget,
                "ttlHours": hours,
            },
            child,
        )
        key_file = args.key_file or Path(f"~/.ssh/{cloud.ssh_key_name}.pem")
        self._key = key = SshKey(
            f"{name}-key",
            SshKeyArgs(**marks, name=cloud.ssh_key_name, keyFile=str(key_file)),
            child,
        )
        ssh = {"protocol": "tcp", "firstPort": SSH_PORT, "lastPort": SSH_PORT, "description": "SSH"}
        firewall = FirewallRuleset(
            f"{name}-firewall",
            FirewallRulesetArgs(
                **marks,
                name=title,
                regions=choice.regions,
                rules=[{**ssh, "sourceNetwork": cidr} for cidr in args.allowed_cidrs],
            ),
            child,
        )
        mounts = {
            path: FileSystem(
                f"{name}-file-system-{system}",
                FileSystemArgs(name=system, region=choice.region, keep=args.keep_data),
                child,
            ).id
            for system, path in cloud.file_systems.items()
        }
        owner = local.owner(args.owner)
        tags = identity.tags(**own, owner=owner, backend=account.backendId)
        numbers = [*range(always), *args.requested]
        names = {number: _name(title, number) for number in numbers}
        names[0] = cloud.head_node_name or names[0]
        host_keys = {number: HostKey(f"{name}-host-key-{number}", child) for number in numbers}
        instances = {
            number: Instance(
                f"{name}-instance-{number}",
                {
                    "stackId": account.stackId,
                    "name": names[number],
                    "node": number,
                    "count": most,
                    "choices": choice.choices,
                    "sshKeyName": key.name,
                    "hostname": _hostname(_title(own["stack"], args.owner), number),
                    "tags": tags,
                    "firewallRulesetIds": firewall.ids,
                    "fileSystemMounts": mounts,
                    "userData": _user_data(host_keys[number], key),
                    "ttlHours": hours,
                },
                child,
            )
            for number in numbers
        }

        def active(suffix: str, together: Sequence[int]) -> Active:
            ids = [instances[number].id for number in together]
            waited = ActiveArgs(instanceIds=ids, timeoutMinutes=cloud.boot_timeout_minutes)
            return Active(f"{name}-active{suffix}", waited, child)

        # A late or missing one of a group does not hold up others.
        waits = dict.fromkeys(range(always), active("", range(always)))
        waits |= {number: active(f"-{number}", [number]) for number in args.requested}
        machines = [
            self._machine(
                number,
                grown if grown and number >= always else args.worker,
                instances[number],
                host_keys[number],
                waits[number],
            )
            for number in numbers
        ]
        expires_at = pulumi.Output.from_input("")
        if not hours:
            pulumi.log.warn(ENDLESS, self)
        elif not args.start_ray:
            pulumi.log.warn(NO_TIMER, self)
        else:
            end = args.reservation.end.isoformat() if args.reservation else ""
            launched = [instances[number].launchedAt for number in range(always)]
            expires_at = pulumi.Output.all(*launched).apply(
                lambda known: end or after(min(known), hours)
            )
            for machine in machines:
                instance = instances[machine.number]
                own = lift(lambda at: end or after(at, hours), instance.launchedAt)
                Deadline(
                    f"{name}-deadline-{machine.number}",
                    DeadlineArgs(
                        host={**machine.connection, "user": cloud_init.ADMIN},
                        machine=instance.id,
                        # Later ones end with the stack: they are useless without a head.
                        at=own if machine.number < always else expires_at,
                        idle=_idle(args.idle, machine, machines[0], several=most > 1),
                    ),
                    machine.options(self),
                )
        elastic_group = None
        if grown:
            first = instances[0]
            offered = lift(
                partial(_offered, grown), choice.choices, first.instanceType, first.region
            )
            elastic_group = ElasticGroup(
                numbers=range(always, most), least=least, resources=offered
            )
        self.declared = Declared(
            machines=machines,
            login=Login(key_file=str(key_file), hands_out_key=True),
            elastic_group=elastic_group,
            expires_at=expires_at,
        )
        self.register_outputs({"expires_at": expires_at})

    def _machine(
        self,
        number: int,
        group: Group,
        instance: Instance,
        host_key: HostKey,
        active: Active,
    ) -> Machine:
        name = f"host-{number}"
        addresses = pulumi.Output.all(active.addresses, instance.id).apply(
            lambda known: known[0][known[1]]
        )
        connection: dict[str, pulumi.Input[Any]] = {
            "host": addresses["ip"],
            "port": SSH_PORT,
            # Containers are not in the way of the user's services: only the admin may make some.
            "user": cloud_init.ADMIN if self._args.containers else cloud_init.USER,
            "hostKey": host_key.publicKey,
            "privateKey": pulumi.Output.secret(self._key.privateKey),
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
                "timeoutMinutes": self._timeout,
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
            base=f"{cloud_init.HOME}/{self._args.base}",
            python_environment=self._args.python_environment,
            cpus=reachable.cpus,
            memory_mib=reachable.memoryMib,
            gpus=reachable.gpus,
            programs={"prometheus": cloud_init.PROMETHEUS},
            after=[reachable],
            part_of=instance,
        )


def _idle(
    idle: IdleWatch | None, machine: Machine, head: Machine, *, several: bool
) -> pulumi.Output[dict[str, Any]] | None:
    """Return the watch that a machine's timer asks, None where only the deadline counts."""
    if idle is None:
        return None
    # On several machines services that others use listen on the head's address only.
    address = head.address if several else "127.0.0.1"
    known = {
        "url": join("http://", address, f":{idle.port}/verdict"),
        "token": idle.token,
        "last": machine.number == 0,
    }
    return pulumi.Output.secret(known)


def _offered(
    group: Group, choices: Sequence[Mapping[str, Any]], instance_type: str, region: str
) -> NodeResources:
    """Return the resources that the worker of each instance of a group offers.

    It has to be known before an instance exists, and stay the same afterwards: Ray starts another
    node for work that does not fit on the first one. So the instance is not asked; it is like the
    stack's first one, whose type and region are given.
    """
    same = [c for c in choices if (c["instanceType"], c["region"]) == (instance_type, region)]
    pick = Pick.model_validate((same or choices)[0])
    offered = worker(group, pick.vcpus, pick.memory_mib, pick.gpus)
    return replace(offered, hourly_cost=pick.hourly_cost)


def _title(stack: str, owner: str) -> str:
    """Return the beginning of names, with all of the owner's part."""
    part = local.owner_part(owner)
    return f"{stack[: NAME_LIMIT - 1 - len(part)]}-{part}" if part else stack


def _name(title: str, index: int) -> str:
    """Return a name that the API takes; those of projects and stacks may hold more, and be long."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-")[:NAME_LIMIT]
    return f"{cleaned or 'host'}-{index}"


def _hostname(stack: str, index: int) -> str:
    return _name(re.sub(r"[^a-z0-9-]+", "-", stack.lower()), index)


def _user_data(host_key: HostKey, key: SshKey) -> pulumi.Output[str]:
    return pulumi.Output.secret(
        pulumi.Output.all(
            host_key=host_key.privateKey,
            host_public_key=host_key.publicKey,
            authorized_key=key.publicKey,
        ).apply(lambda known: cloud_init.user_data(**known))
    )
