"""Existing machines: a lab node, a lease, a WSL 2 box.

They are inspected whenever the program runs, so that a preview already shows their faults.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pulumi

from infra.machines import docker_engine, probe
from infra.machines.fleet import Fleet, FleetArgs, Login
from infra.machines.machine import Machine
from infra.machines.probe import Facts
from infra.places.ssh.settings import SshHost
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import read_key

PARALLEL = 16


def inspect(hosts: Sequence[SshHost], args: FleetArgs) -> Callable[[], Fleet]:
    """Inspect the hosts of a stack, the head's first; nothing has to be declared for them.

    Raises:
        pulumi.RunError: some cannot be used; the message has a line for each fault.
    """
    machines = [
        _machine(index, host, connection, facts, args)
        for index, (host, (connection, facts)) in enumerate(
            zip(hosts, _look(hosts, args), strict=True)
        )
    ]
    login = Login(key_file=str(args.settings.ssh_key_file or ""), hands_out_key=False)
    return partial(Fleet, machines=machines, login=login)


def _look(hosts: Sequence[SshHost], args: FleetArgs) -> list[tuple[Connection, Facts]]:
    try:
        file = args.settings.ssh_key_file
        key = read_key(file) if file else ""
    except SshError as error:
        raise pulumi.RunError(f"sshKeyFile: {error}") from None
    connections = [
        Connection(
            host=host.address,
            user=host.user,
            host_key=host.host_key,
            port=host.port,
            private_key=key,
        )
        for host in hosts
    ]
    with ThreadPoolExecutor(PARALLEL) as pool:
        looks = [pool.submit(probe.probe, connection) for connection in connections]
    found: list[tuple[Connection, Facts]] = []
    faults: list[str] = []
    for host, connection, look in zip(hosts, connections, looks, strict=True):
        try:
            facts = look.result()
        except SshError as error:
            faults.append(str(error))
            continue
        found.append((connection, facts))
        faults += probe.faults(
            facts,
            connection.name,
            gpus=host.gpus,
            makes_environment=not (args.settings.python_environment or args.containers),
            has_timer=args.containers and args.settings.reservation is not None,
        )
    if faults:
        lines = "\n".join(f"  - {fault}" for fault in faults)
        raise pulumi.RunError(f"The hosts have faults:\n{lines}")
    return found


def _machine(
    number: int, host: SshHost, connection: Connection, facts: Facts, args: FleetArgs
) -> Machine:
    settings = args.settings
    return Machine(
        name=f"host-{number}",
        number=number,
        group=next((each for each in settings.groups if each.name == host.group), settings.worker),
        identity=connection.name,
        connection={
            "host": host.address,
            "port": host.port,
            "user": host.user,
            "hostKey": host.host_key,
            "privateKey": pulumi.Output.secret(connection.private_key),
        },
        address=host.private_address,
        interface=facts.interface(host.private_address),
        home=facts.home,
        base=f"{facts.home}/{args.base}",
        python_environment=settings.python_environment,
        cpus=facts.cpus,
        memory_mib=facts.memory_mib,
        gpus=facts.gpus if host.gpus is None else host.gpus,
        programs=facts.programs,
        engine=docker_engine.info(connection) if args.containers else None,
    )
