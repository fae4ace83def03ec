"""A machine's resources: the script on this one, and the facts from its answers."""

import os
from dataclasses import replace

import psutil
import pytest

from infra.machines import probe
from infra.machines.probe import Facts
from tests import ran
from trainyard.access.ssh import SshError

PRINTED = """\
some banner of the login shell
cpus 8
memoryMib 32768
freeMib 100000
freeTmpMib 50000
machine x86_64
home /home/ada
program python3 /usr/bin/python3
program prometheus 
program alertmanager 
program prometheus-alertmanager /opt/my tools/prometheus-alertmanager
gpus 2
address 127.0.0.1 lo
address 10.0.0.4 eth1
outward eth0
"""  # noqa: W291 (a program that is not there leaves its line with a blank)
FACTS = Facts(
    cpus=8,
    memory_mib=32768,
    gpus=2,
    machine="x86_64",
    home="/home/ada",
    free_mib=100000,
    free_tmp_mib=50000,
    python3="/usr/bin/python3",
    programs={"alertmanager": "/opt/my tools/prometheus-alertmanager"},
    interfaces={"127.0.0.1": "lo", "10.0.0.4": "eth1"},
    outward="eth0",
)


def _run(path: str = os.environ["PATH"]) -> Facts:
    env = {"PATH": path, "HOME": os.environ["HOME"]}
    return probe.parse(ran.output(["/bin/sh", "-c", probe.SCRIPT], env=env, timeout=30), "here")


def test_the_script_finds_what_this_machine_has():
    facts = _run()
    assert facts.cpus == len(os.sched_getaffinity(0))
    assert facts.memory_mib == pytest.approx(psutil.virtual_memory().total / 2**20, abs=2)
    assert facts.machine == os.uname().machine
    assert facts.home == os.environ["HOME"]
    assert facts.free_mib > 0
    assert facts.free_tmp_mib > 0


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_the_script_counts_the_gpus_that_the_driver_lists(tmp_path, put_program, gpus):
    lines = "".join(f"GPU {i}: NVIDIA A10 (UUID: GPU-{i})\\n" for i in range(gpus))
    driver = f"printf '{lines}'" if gpus else "echo 'NVIDIA-SMI has failed'; exit 9"
    put_program(tmp_path, "nvidia-smi", driver)
    assert _run(f"{tmp_path}:{os.environ['PATH']}").gpus == gpus


def test_answers_become_facts():
    assert probe.parse(PRINTED, "ada@host") == FACTS
    assert FACTS.interface("10.0.0.4") == "eth1"
    assert FACTS.interface("192.0.2.4") == "eth0"  # a router's, on the way


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "Welcome to FreeBSD\n",
        PRINTED.replace("memoryMib 32768", "memoryMib "),
        PRINTED.replace("home /home/ada\n", ""),
        PRINTED.replace("gpus 2", "gpus many"),
    ],
)
def test_incomplete_answers_are_told(printed):
    with pytest.raises(SshError, match="ada@host is not a Linux machine"):
        probe.parse(printed, "ada@host")


def test_a_machine_that_has_all_has_no_fault():
    assert probe.faults(FACTS, "host", gpus=2, makes_environment=True) == []
    assert probe.faults(FACTS, "host", gpus=None, makes_environment=True) == []


def test_every_lack_is_told_with_what_to_do():
    poor = replace(FACTS, python3="", free_mib=20, free_tmp_mib=10, gpus=0)
    found = probe.faults(poor, "ada@host", gpus=2, makes_environment=True)
    assert [fault.partition(":")[0] for fault in found] == [
        "ada@host has no python3 of 3.8 or later",
        "ada@host has 20 MiB free in /home/ada, and 14336 MiB are needed",
        "ada@host has 10 MiB free in /var/tmp, and 1024 MiB are needed",
        "ada@host has 0 GPUs, and its setting gpus says 2",
    ]
    # An existing environment takes no room and brings its Python.
    enough = replace(poor, free_mib=2000, free_tmp_mib=2000)
    assert probe.faults(enough, "host", gpus=None, makes_environment=False) == []
    # Containers bring their Python too, but not the timer that ends them.
    (told,) = probe.faults(enough, "host", gpus=None, makes_environment=False, has_timer=True)
    assert told.startswith("host has no python3 of 3.8 or later, which the timer of the setting")
