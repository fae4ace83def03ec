"""Another machine's resources, found by one command, and whether they suffice for a stack."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from cluster import services
from cluster.descriptor import Source
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import run

PROBE_SECONDS = 60.0
# PyTorch with its CUDA libraries is 5.7 GB, twice while it is unpacked.
ENVIRONMENT_MIB = 14 * 1024
LEAST_MIB = 1024  # for sockets, logs and Ray's session

# Names on a machine's PATH, by the program of a service.
COMMANDS = {each.program: each.names for each in services.ALL if each.source is Source.MACHINE}
NAMES = " ".join(name for names in COMMANDS.values() for name in names)
# POSIX shell: the machine may have nothing else. One line `name value` for each fact.
SCRIPT = rf"""
set -u
echo "cpus $(nproc)"
echo "memoryMib $(awk '/^MemTotal:/ {{print int($2 / 1024)}}' /proc/meminfo)"
echo "freeMib $(df -Pm "$HOME" | awk 'NR == 2 {{print $4}}')"
echo "freeTmpMib $(df -Pm /var/tmp | awk 'NR == 2 {{print $4}}')"
echo "machine $(uname -m)"
echo "home $HOME"
for name in {NAMES}; do echo "program $name $(command -v $name)"; done
if python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
  echo "program python3 $(command -v python3)"
fi
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU ')
if [ "$gpus" = 0 ]; then
  gpus=$(grep -ls '^simd_count [1-9]' /sys/class/kfd/kfd/topology/nodes/*/properties | wc -l)
fi
echo "gpus $gpus"
ip -o -4 address show 2>/dev/null | awk '{{sub("/.*", "", $4); print "address " $4, $2}}'
echo "outward $(ip -o -4 route show default 2>/dev/null | awk '{{print $5; exit}}')"
"""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The resources of a machine.

    Attributes:
        gpus: NVIDIA's or AMD's devices that its driver lists; whether they work is another matter.
        machine: its architecture, as `uname -m` says it.
        free_tmp_mib: free space in /var/tmp.
        python3: path of Python 3.8 or later, "" without one.
        programs: paths of the services' programs that are there, by program.
        interfaces: names of its network interfaces by IPv4 address.
        outward: name of the one that leads to all other networks, "" if unknown.
    """

    cpus: int
    memory_mib: int
    gpus: int
    machine: str
    home: str
    free_mib: int
    free_tmp_mib: int
    python3: str
    programs: Mapping[str, str]
    interfaces: Mapping[str, str]
    outward: str

    def interface(self, address: str) -> str:
        """Return the interface by which others reach an address of the machine, "" if unknown.

        An address that is not its own is translated by a router on the way.
        """
        return self.interfaces.get(address, self.outward)


def probe(connection: Connection) -> Facts:
    """Inspect a machine.

    Raises:
        SshError: it cannot be reached or inspected.
    """
    printed = run(connection, f"/bin/sh -c {shlex.quote(SCRIPT)}", seconds=PROBE_SECONDS)
    return parse(printed, connection.name)


def parse(printed: str, name: str) -> Facts:
    """Return the facts that the script printed.

    Raises:
        SshError: they are not complete.
    """
    lines = [line.partition(" ") for line in printed.splitlines()]
    addresses = [value.split() for key, _, value in lines if key == "address"]
    programs = [value.partition(" ") for key, _, value in lines if key == "program"]
    paths = {name: path for name, _, path in programs if path}
    found = {key: value.strip() for key, _, value in lines if key not in ("address", "program")}
    try:
        return Facts(
            cpus=int(found["cpus"]),
            memory_mib=int(found["memoryMib"]),
            gpus=int(found["gpus"]),
            machine=found["machine"],
            home=found["home"],
            free_mib=int(found["freeMib"]),
            free_tmp_mib=int(found["freeTmpMib"]),
            python3=paths.get("python3", ""),
            programs={
                program: paths[names[0]]
                for program, known in COMMANDS.items()
                if (names := [name for name in known if name in paths])
            },
            interfaces=dict(addresses),
            outward=found["outward"],
        )
    except (KeyError, ValueError) as error:
        raise SshError(
            f"{name} is not a Linux machine that can be inspected "
            f"({error!r} in {json.dumps(found)})"
        ) from None


def faults(
    facts: Facts,
    name: str,
    *,
    gpus: int | None,
    makes_environment: bool,
    has_timer: bool = False,
) -> list[str]:
    """Return a machine's faults for a stack, a line each; `gpus` is None for as many as it has.

    `makes_environment`: a Python environment is to be made there. `has_timer`: a timer ends
    containers there, and runs in the machine's own Python.
    """
    found = []
    if makes_environment and not facts.python3:
        found.append(
            f"{name} has no python3 of 3.8 or later: install python3 and python3-venv there, or "
            "name an environment that has Ray in pythonEnvironment"
        )
    if has_timer and not facts.python3:
        found.append(
            f"{name} has no python3 of 3.8 or later, which the timer of the setting reservation "
            "needs: install it there, or remove the setting"
        )
    least = ENVIRONMENT_MIB if makes_environment else LEAST_MIB
    if facts.free_mib < least:
        found.append(
            f"{name} has {facts.free_mib} MiB free in {facts.home}, and {least} MiB are needed: "
            "make room there"
        )
    if facts.free_tmp_mib < LEAST_MIB:
        found.append(
            f"{name} has {facts.free_tmp_mib} MiB free in /var/tmp, and {LEAST_MIB} MiB are "
            "needed: make room there, or set stateDir to another place"
        )
    if gpus is not None and facts.gpus < gpus:
        found.append(
            f"{name} has {facts.gpus} GPUs, and its setting gpus says {gpus}: correct it, or "
            "install the driver"
        )
    return found
