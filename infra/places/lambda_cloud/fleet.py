"""Rented machines as hosts of a stack: their resources in the account, and how to reach them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from cluster.inputs import join, lift
from cluster.ray_node import NodeResources
from infra.machines import cloud_init, identity, local, rented_machine
from infra.machines.cloud_provider import AccountArgs
from infra.machines.fleet import ElasticGroup, Fleet, FleetArgs, IdleWatch, Login
from infra.machines.host_key import HostKey
from infra.machines.machine import Machine
from infra.machines.rented_machine import SSH_PORT
from infra.places.lambda_cloud.args import (
    ActiveArgs,
    FileSystemArgs,
    FirewallRulesetArgs,
    SshKeyArgs,
)
from infra.places.lambda_cloud.choice import InstanceRequest, Pick
from infra.places.lambda_cloud.deadline import Deadline, DeadlineArgs, after
from infra.places.lambda_cloud.machines import Order
from infra.places.lambda_cloud.resources import (
    Account,
    Active,
    Choice,
    FileSystem,
    FirewallRuleset,
    Instance,
    SshKey,
)
from infra.places.lambda_cloud.settings import INSTANCE, LambdaCloud
from infra.settings.nodes import Group, worker

ENDLESS = (
    "the instances have no end, and cost money until `make down`; lambdaCloud.ttlHours sets one"
)
# With the private key, a job could become the admin, who may read the account's API key.
NO_TIMER = (
    "with startRay: false no instance ends itself, because jobs could read the account's API key, "
    "which its timer needs. After ttlHours they cost money until `make down`, or until `train reap "
    "--past-end`: schedule it on another machine"
)


class Rental(pulumi.ComponentResource):
    """The instances of a stack, and the resources that they need in the account.

    The first ones are always there; those of a group that grows come and go.
    """

    declared: Fleet

    def __init__(self, name: str, cloud: LambdaCloud, args: FleetArgs) -> None:
        """Declare instances that meet the stack's requirements."""
        super().__init__("trainyard:lambda:Fleet", name)
        child, settings = pulumi.ResourceOptions(parent=self), args.settings
        own = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
        title = rented_machine.title("-".join(own.values()), settings.owner)
        hostname = rented_machine.title(own["stack"], settings.owner)
        # All instances are alike, so there is one at most.
        grown = next((group for group in settings.groups if group.growth), None)
        least = grown.min if grown else 0
        always, most = cloud.instances, cloud.most(settings.groups)
        # Of a reservation its whole length: an instance launched in it ends no later.
        hours = settings.reservation.hours if settings.reservation else cloud.ttl_hours
        account = Account(
            f"{name}-account", AccountArgs(organization=pulumi.get_organization(), **own), child
        )
        marks = {"stackId": account.stackId, "backendId": account.backendId}
        choice = Choice(
            f"{name}-choice",
            InstanceRequest(
                stackId=account.stackId,
                candidates=[dict(each) for each in cloud.candidates],
                gpus=cloud.gpus,
                gpuMemoryGib=cloud.gpu_memory_gib,
                # Bounds hold for the largest possible number.
                count=most,
                least=always + least,
                maxHourlyCost=cloud.max_hourly_cost,
                budget=cloud.budget,
                ttlHours=hours,
            ),
            child,
        )
        key_file = settings.ssh_key_file or Path(f"~/.ssh/{cloud.ssh_key_name}.pem")
        key = SshKey(
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
                rules=[{**ssh, "sourceNetwork": cidr} for cidr in settings.allowed_cidrs],
            ),
            child,
        )
        mounts = {
            path: FileSystem(
                f"{name}-file-system-{system}",
                FileSystemArgs(name=system, region=choice.region, keep=settings.keep_data),
                child,
            ).id
            for system, path in cloud.file_systems.items()
        }
        owner = local.owner(settings.owner)
        tags = identity.tags(**own, owner=owner, backend=account.backendId)
        numbers = [*range(always), *args.requested]
        names = {number: rented_machine.name(title, number) for number in numbers}
        names[0] = cloud.head_node_name or names[0]
        host_keys = {number: HostKey(f"{name}-host-key-{number}", child) for number in numbers}
        instances = {
            number: Instance(
                f"{name}-instance-{number}",
                Order(
                    stackId=account.stackId,
                    name=names[number],
                    node=number,
                    count=most,
                    choices=choice.choices,
                    sshKeyName=key.name,
                    hostname=rented_machine.hostname(hostname, number),
                    tags=tags,
                    firewallRulesetIds=firewall.ids,
                    fileSystemMounts=mounts,
                    userData=rented_machine.user_data(host_keys[number], key.publicKey),
                    ttlHours=hours,
                ),
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
            rented_machine.machine(
                name,
                args,
                instance,
                pulumi.Output.all(waits[number].addresses, instance.id).apply(
                    lambda known: known[0][known[1]]
                ),
                number=number,
                group=grown if grown and number >= always else settings.worker,
                id_property=INSTANCE,
                host_key=host_keys[number],
                private_key=key.privateKey,
                timeout_minutes=cloud.boot_timeout_minutes,
                parent=self,
            )
            for number, instance in instances.items()
        ]
        expires_at = pulumi.Output.from_input("")
        if not hours:
            pulumi.log.warn(ENDLESS, self)
        elif not settings.start_ray:
            pulumi.log.warn(NO_TIMER, self)
        else:
            end = settings.reservation.end.isoformat() if settings.reservation else ""
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
        self.declared = Fleet(
            machines=machines,
            login=Login(key_file=str(key_file), hands_out_key=True),
            elastic_group=elastic_group,
            expires_at=expires_at,
        )
        self.register_outputs({"expires_at": expires_at})


def _idle(
    idle: IdleWatch | None, machine: Machine, head: Machine, *, several: bool
) -> pulumi.Output[dict[str, Any]] | None:
    """Return the watch that a machine's timer asks, None where only the deadline counts."""
    if idle is None:
        return None
    # On several machines services that others use listen on the head's address only.
    address = head.address if several else "127.0.0.1"
    known = idle.asked_at(join(address, f":{idle.port}"), last=machine.number == 0)
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
