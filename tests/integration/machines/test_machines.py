"""Machines of tests leave nothing. What they can do, the tests that use them need."""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.machines import Machines, NoMachinesError, root
from tests.fakes.machines.machines import FOLDERS

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
BOOT_SECONDS = 60  # some 2 s where nothing else runs


def listens(ip, port=22, seconds=BOOT_SECONDS):
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((ip, port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def left(number):
    """Existing parts on this machine of the machines on a network; other networks have theirs."""

    def lines(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return set(done.stdout.splitlines())

    def ours(found):
        names = (f"tym{number}", f"10.77.{number}.", f"10.78.{number}.")
        return {line for line in found if any(name in line for name in names)}

    groups = {str(path) for path in Path("/sys/fs/cgroup").glob("**/tym*")}
    return {
        "links": ours(path.name for path in Path("/sys/class/net").iterdir()),
        "rules": ours(lines("iptables-save")),
        "routes": ours(lines("ip", "route")),
        "mounts": ours(Path("/proc/self/mountinfo").read_text().splitlines()),
        "folders": ours(path.name for path in FOLDERS.iterdir()),
        "control groups": ours(groups),
        "processes": ours(lines("ps", "-eo", "args")),
    }


def networks_of_processes():
    """The network namespace of each process."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            found.add((process / "ns/net").readlink())
    return found


@pytest.fixture(scope="module")
def possible(pytestconfig):
    """Machines are possible, and their parts exist: making those takes a minute once."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    try:
        with Machines(), capture.global_and_fixture_disabled():
            for packages in (root.PACKAGES, root.WITH_DOCKER):
                with root.held(packages):
                    pass
    except NoMachinesError as error:
        pytest.skip(str(error))


def test_machines_end_with_their_maker_and_the_next_one_sweeps(possible):
    """Killed, so it cannot clean up."""
    program = (
        "from tests.fakes.machines import Machines; import time; machines = Machines();"
        "print(machines.network.number, *machines.boot('i-1'), flush=True);"
        "print(machines.path('i-1', '/proc/1/ns/net').readlink(), flush=True); time.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as maker:
        try:
            number, ip, _ = maker.stdout.readline().split()
            own = Path(maker.stdout.readline().strip())
            listens(ip)
            with Machines() as others:  # does not take what is in use
                assert others.network.number != int(number)
                listens(ip)
        finally:
            maker.kill()
    deadline = time.monotonic() + BOOT_SECONDS
    while own in networks_of_processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert own not in networks_of_processes()
    with Machines() as machines:
        swept = left(number)
        if machines.network.number != int(number):
            assert not any(swept.values()), swept
    assert not any(left(number).values()), left(number)
