"""Rented machines as hosts of a stack: their resources in the account, and how to reach them."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pulumi

from cluster.inputs import lift
from infra.hosts import cloud_init, local
from infra.hosts.fleet import Declared, FleetArgs, Login
from infra.hosts.host_key import HostKey
from infra.hosts.lambda_cloud import identity
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

SSH_PORT = 22
NOT_HOSTNAME = re.compile(r"[^a-z0-9-]+")
HOSTNAME_LIMIT = 60  # of 63, with the number behind it


class LambdaFleet:
    """The machines that a stack rents.

    Attributes:
        groups: all of them in one.
    """

    groups: Sequence[Group]

    def __init__(self, cloud: LambdaCloud, args: FleetArgs) -> None:
        """Prepare to rent; nothing is asked and nothing declared.

        Args:
            cloud: what is to be rented.
            args: what the stack asks of it.
        """
        self._cloud, self._args = cloud, args
        need = {"gpus": cloud.gpus, "gpuMemoryGib": cloud.gpu_memory_gib} if cloud.gpus else {}
        self._group = Group(
            name="host",
            type={"candidates": [dict(each) for each in cloud.candidates], "need": need},
            count=cloud.instances,
            resources=args.resources,
        )
        self.groups = [self._group]

    def declare(self) -> Declared:
        """Declare instances, and what they need in the account."""
        rental = Rental("lambda", self._cloud, self._group, self._args)
        return Declared(
            machines=rental.machines,
            login=Login(key_file=str(rental.key_file), hands_out_key=True),
            expires_at=rental.expires_at,
        )


class Rental(pulumi.ComponentResource):
    """The instances of a stack, and what they need in the account.

    Attributes:
        machines: the instances, the head's first.
        key_file: private key that the account's key belongs to.
        expires_at: when they end themselves, in ISO 8601; "" for never.
    """

    machines: list[Machine]
    key_file: Path
    expires_at: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        cloud: LambdaCloud,
        group: Group,
        args: FleetArgs,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare instances.

        Args:
            name: of the component.
            cloud: what is to be rented.
            group: the same, as all sources have it.
            args: what the stack asks of it.
            opts: of the component.
        """
        super().__init__("trainyard:lambda:Fleet", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = Account(f"{name}-account", child)
        choice = Choice(
            f"{name}-choice",
            {
                "stackId": account.stackId,
                **group.type,
                "count": group.count,
                "maxHourlyCost": cloud.max_hourly_cost,
                "budget": cloud.budget,
                "ttlHours": cloud.ttl_hours,
                # Ray's ports are open to everyone who reaches the machine, where no rules apply.
                "needFirewall": True,
            },
            child,
        )
        self.key_file = args.key_file or Path(f"~/.ssh/{cloud.ssh_key_name}.pem")
        key = SshKey(
            f"{name}-key",
            {
                "stackId": account.stackId,
                "backendId": account.backendId,
                "name": cloud.ssh_key_name,
                "keyFile": str(self.key_file),
            },
            child,
        )
        firewall = FirewallRuleset(
            f"{name}-firewall",
            {
                "stackId": account.stackId,
                "backendId": account.backendId,
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
        host_keys: list[HostKey] = []
        instances: list[Instance] = []
        for index in range(group.count):
            host_key = HostKey(f"{name}-host-key-{index}", child)
            host_keys.append(host_key)
            instances.append(
                Instance(
                    f"{name}-instance-{index}",
                    {
                        "stackId": account.stackId,
                        "name": f"{pulumi.get_project()}-{pulumi.get_stack()}-{index}",
                        "node": index,
                        "count": group.count,
                        "choices": choice.choices,
                        "sshKeyName": key.name,
                        "hostname": _hostname(pulumi.get_stack(), index),
                        "tags": shared,
                        "firewallRulesetIds": firewall.ids,
                        "fileSystemMounts": mounts,
                        "userData": _user_data(host_key, key),
                        "ttlHours": cloud.ttl_hours,
                    },
                    child,
                )
            )
        active = Active(
            f"{name}-active",
            {
                "instanceIds": [instance.id for instance in instances],
                "timeoutMinutes": cloud.boot_timeout_minutes,
            },
            child,
        )
        self.machines = [
            self._machine(
                f"{group.name}-{index}",
                group,
                instance,
                host_key,
                active,
                key,
                args,
                timeout=cloud.boot_timeout_minutes,
            )
            for index, (instance, host_key) in enumerate(zip(instances, host_keys, strict=True))
        ]
        self.expires_at = pulumi.Output.from_input("")
        if cloud.ttl_hours:
            for index, instance in enumerate(instances):
                Deadline(
                    f"{name}-deadline-{index}",
                    {
                        "host": {**self.machines[index].connection, "user": cloud_init.ADMIN},
                        "machine": instance.id,
                        "at": lift(lambda at: after(at, cloud.ttl_hours), instance.launchedAt),
                    },
                    self.machines[index].options(self),
                )
            self.expires_at = pulumi.Output.all(*[i.launchedAt for i in instances]).apply(
                lambda known: after(min(known), cloud.ttl_hours)
            )
        self.register_outputs({"expires_at": self.expires_at})

    def _machine(
        self,
        name: str,
        group: Group,
        instance: Instance,
        host_key: HostKey,
        active: Active,
        key: SshKey,
        args: FleetArgs,
        *,
        timeout: int,
    ) -> Machine:
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
        # The API leaves it out where there is no private network.
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
