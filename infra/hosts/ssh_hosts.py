"""Machines that are there already: a lab node, a lease, a WSL 2 box.

They are looked at whenever the program runs, so that a preview already tells what is wrong.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulumi

from cluster.ssh import Connection, SshError, read_key
from infra.host_settings import Host
from infra.hosts import probe
from infra.hosts.machine import Machine
from infra.hosts.probe import Facts

PARALLEL = 16


def machines(
    hosts: Sequence[Host], key_file: Path | None, *, base: str, python_environment: str
) -> list[Machine]:
    """Return the machines, the head's first.

    Args:
        hosts: as they are set.
        key_file: private key to log in with; None for the SSH agent.
        base: folder of what the stack puts there, below the home folder.
        python_environment: folder of an environment that is there, "" for none.

    Raises:
        pulumi.RunError: some cannot be used; the message has a line for each fault.
    """
    try:
        key = read_key(key_file) if key_file else ""
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
    found: list[Facts] = []
    faults: list[str] = []
    for host, connection, look in zip(hosts, connections, looks, strict=True):
        try:
            facts = look.result()
        except SshError as error:
            faults.append(str(error))
            continue
        found.append(facts)
        faults += probe.faults(
            facts, connection.name, gpus=host.gpus, makes_environment=not python_environment
        )
    if faults:
        lines = "\n".join(f"  - {fault}" for fault in faults)
        raise pulumi.RunError(f"The hosts have faults:\n{lines}")
    return [
        _machine(index, host, connection, facts, base=base, python_environment=python_environment)
        for index, (host, connection, facts) in enumerate(
            zip(hosts, connections, found, strict=True)
        )
    ]


def _machine(
    index: int,
    host: Host,
    connection: Connection,
    facts: Facts,
    *,
    base: str,
    python_environment: str,
) -> Machine:
    return Machine(
        name=f"host-{index}",
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
        base=f"{facts.home}/{base}",
        python_environment=python_environment,
        cpus=facts.cpus,
        memory_mib=facts.memory_mib,
        gpus=facts.gpus if host.gpus is None else host.gpus,
        prometheus=facts.prometheus,
    )
