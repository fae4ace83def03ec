"""Facts of a machine for tests that probe none: it has everything that a stack needs."""

from infra.hosts.probe import Facts

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
