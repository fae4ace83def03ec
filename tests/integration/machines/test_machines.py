"""Machines of tests are what they claim to be, and leave nothing."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import asyncssh
import pytest

from tests.fakes.machines import Machines, NoMachinesError, root
from tests.fakes.machines.machines import FOLDERS
from tests.waiting import wait_for

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[3]
BOOT_SECONDS = 60  # some 2 s where nothing else runs
KEY = asyncssh.generate_private_key("ssh-ed25519")
HOST_KEY = asyncssh.generate_private_key("ssh-ed25519")
LOGIN = KEY.export_public_key().decode().strip()


def user_data(key=HOST_KEY):
    """User data that plants a host key, as a stack does."""
    private = "".join(f"    {line}\n" for line in key.export_private_key().decode().splitlines())
    return (
        "#cloud-config\nssh_keys:\n"
        f"  ed25519_private: |\n{private}"
        f"  ed25519_public: {key.export_public_key().decode()}"
        "write_files:\n- {path: /etc/planted, content: by cloud-init}\n"
        "runcmd: [[sh, -c, 'id -u > /etc/ran-as']]\n"
    )


def ssh(ip, command, host_key=HOST_KEY, user="ubuntu"):
    """Run a command by SSH, as soon as the machine listens."""

    async def run():
        known = asyncssh.import_known_hosts(f"{ip} {host_key.export_public_key().decode()}")
        options = {"username": user, "client_keys": [KEY], "known_hosts": known, "config": None}
        async with asyncssh.connect(ip, **options) as connection:
            return (await connection.run(command, check=True)).stdout

    return answered(ip, lambda: asyncio.run(run()))


def answered(ip, ask):
    """A machine's answer, as soon as it comes: its first boot restarts sshd."""

    def attempt():
        with contextlib.suppress(asyncssh.ConnectionLost):
            return (ask(),)  # true, whatever the answer is

    listens(ip)
    return wait_for("an answer", attempt, BOOT_SECONDS)[0]


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


@pytest.fixture
def machines(possible):
    with Machines() as machines:
        yield machines


def test_a_machine_is_reached_by_ssh_with_the_host_key_of_its_user_data(machines):
    ip, private_ip = machines.boot("i-1", "first", "node-1", user_data(), LOGIN)
    found = ssh(ip, "hostname; id -un; sudo -n id -u; hostname -I").split()
    assert found == ["node-1", "ubuntu", "0", private_ip]
    machines.wait("i-1")
    assert machines.exec("i-1", "cat /etc/planted").stdout == "by cloud-init"
    assert machines.exec("i-1", "cat /etc/ran-as").stdout.strip() == "0"
    # The log may come a moment after `wait` returns.
    wait_for("its log", lambda: "finished" in machines.console("i-1"), BOOT_SECONDS)


def test_what_is_destroyed_is_gone(possible):
    with Machines() as machines:
        number = machines.network.number
        ip, _ = machines.boot("i-1", "", "", user_data(), LOGIN, docker=True)
        machines.boot("i-2", "", "", user_data(), LOGIN)
        ssh(ip, "setsid sleep 1000 >/dev/null 2>&1 </dev/null &")
        assert all(left(number)[kind] for kind in ("links", "rules", "routes", "folders"))
        own = machines.path("i-1", "/proc/1/ns/net").readlink()
        assert own in networks_of_processes()
        machines.destroy("i-1")
        assert own not in networks_of_processes()
        assert not (machines.folder / "i-1").exists()
        with pytest.raises(OSError):  # noqa: PT011 - as above
            listens(ip, seconds=0)
        machines.destroy("i-1")  # again is not an error
    machines.close()
    assert not any(left(number).values()), left(number)


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
