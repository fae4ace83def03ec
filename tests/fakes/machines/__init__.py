"""Machines for tests: each a network namespace with a root file system, cloud-init and sshd.

What is real: Debian's programs in a file system of its own, users, sudo, cloud-init and its user
data, sshd, cron, addresses, routes and the network's way to the package registries.
What is not: the kernel, its clock, CPUs and memory are this machine's; systemd is missing.
"""

from tests.fakes.machines.machines import Machines
from tests.fakes.machines.root import NoMachinesError

__all__ = ["Machines", "NoMachinesError"]
