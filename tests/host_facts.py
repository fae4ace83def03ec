"""A machine for tests that probe none: it has everything that a stack needs."""

from typing import Any

from infra.machines.machine import Machine
from infra.machines.probe import Facts
from infra.settings.nodes import Group

FACTS = Facts(
    cpus=8,
    memory_mib=32768,
    gpus=2,
    machine="x86_64",
    home="/srv/ada",
    free_mib=10**6,
    free_tmp_mib=10**6,
    python3="/usr/bin/python3",
    programs={},
    interfaces={},
    outward="eth0",
)


def machine(index: int = 0, home: object = "/srv/ada", **changes: Any) -> Machine:
    """A machine of a stack, declared."""
    login = {"host": f"h{index}", "port": 22, "user": "ada", "hostKey": "ssh-ed25519 A"}
    values: dict[str, Any] = {
        "name": f"host-{index}",
        "number": index,
        "group": Group(name="host"),
        "identity": f"ada@h{index}",
        "connection": {**login, "privateKey": ""},
        "address": f"10.0.0.{index}",
        "interface": "eth0",
        "home": str(home),
        "base": f"{home}/.trainyard/lab-dev",
        "python_environment": "",
        "cpus": FACTS.cpus,
        "memory_mib": FACTS.memory_mib,
        "gpus": 0,
        "programs": {},
    }
    return Machine(**values | changes)
