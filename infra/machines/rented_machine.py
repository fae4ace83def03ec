"""A rented machine of any cloud as a host of a stack: its names, its first boot, the way to it."""

import re
from typing import Any

import pulumi

from infra.machines import cloud_init, local
from infra.machines.fleet import FleetArgs
from infra.machines.host_key import HostKey
from infra.machines.machine import Machine
from infra.machines.reachable import Reachable, ReachableArgs
from infra.settings.nodes import Group

SSH_PORT = 22
NAME_LIMIT = 60  # of 63 in a host's name and of 64 in an instance's, with the number after it


def title(stack: str, owner: str) -> str:
    """Return the beginning of names, with all of the owner's part."""
    part = local.owner_part(owner)
    return f"{stack[: NAME_LIMIT - 1 - len(part)]}-{part}" if part else stack


def name(title: str, number: int) -> str:
    """Return a name that clouds take; those of projects and stacks may hold more, and be long."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-")[:NAME_LIMIT]
    return f"{cleaned or 'host'}-{number}"


def hostname(title: str, number: int) -> str:
    """Return a machine's name for itself."""
    return name(re.sub(r"[^a-z0-9-]+", "-", title.lower()), number)


def user_data(host_key: HostKey, public_key: pulumi.Input[str]) -> pulumi.Output[str]:
    """Return the user data of a machine, as a secret; the key may log in."""
    return pulumi.Output.secret(
        pulumi.Output.all(
            host_key=host_key.privateKey,
            host_public_key=host_key.publicKey,
            authorized_key=public_key,
        ).apply(lambda known: cloud_init.user_data(**known))
    )


def machine(
    prefix: str,
    args: FleetArgs,
    instance: pulumi.CustomResource,
    addresses: pulumi.Output[dict[str, str]],
    *,
    number: int,
    group: Group,
    id_property: str,
    host_key: HostKey,
    private_key: pulumi.Input[str],
    timeout_minutes: int,
    parent: pulumi.Resource,
) -> Machine:
    """Declare the wait for a rented machine, and return it as a host.

    Args:
        prefix: begins the name of the wait's resource.
        args: the stack's requirements.
        instance: resource of the machine, whose user data is that of `user_data`.
        addresses: its `ip`, and `privateIp`, "" without a private network.
        number: its number in the stack.
        group: settings of its Ray worker.
        id_property: see `source.Cloud.instance`.
        host_key: that the machine has.
        private_key: for logins.
        timeout_minutes: for its first boot.
        parent: the component that the resource belongs to.
    """
    connection: dict[str, pulumi.Input[Any]] = {
        "host": addresses["ip"],
        "port": SSH_PORT,
        # Containers are not in the way of the user's services: only the admin may make some.
        "user": cloud_init.ADMIN if args.containers else cloud_init.USER,
        "hostKey": host_key.publicKey,
        "privateKey": pulumi.Output.secret(private_key),
        id_property: instance.id,
    }
    address = addresses.apply(lambda known: known["privateIp"] or known["ip"])
    reachable = Reachable(
        f"{prefix}-host-{number}",
        ReachableArgs(
            host=connection,
            machine=instance.id,
            address=address,
            timeoutMinutes=timeout_minutes,
        ),
        pulumi.ResourceOptions(parent=parent, deleted_with=instance),
    )
    return Machine(
        name=f"host-{number}",
        number=number,
        group=group,
        identity=instance.id,
        connection=connection,
        address=address,
        interface=reachable.interface,
        home=cloud_init.HOME,
        base=f"{cloud_init.HOME}/{args.base}",
        python_environment=args.settings.python_environment,
        cpus=reachable.cpus,
        memory_mib=reachable.memoryMib,
        gpus=reachable.gpus,
        programs={"prometheus": cloud_init.PROMETHEUS},
        after=[reachable],
        part_of=instance,
    )
