"""All faults of hosts are reported in one message, before anything is made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.fakes.machines import Machines
from trainyard.access import ssh_run
from trainyard.access.ssh import Connection, SshError

pytestmark = pytest.mark.integration


@pytest.fixture
def host(guests: Machines, boot_host: Callable[..., Any]) -> Any:
    booted: list[str] = []

    def boot(name: str, **options: Any) -> dict[str, Any]:
        booted.append(name)
        found: dict[str, Any] = boot_host(name, **options)
        return found

    yield boot
    for name in booted:
        guests.destroy(name)


def fails(stack: Any, *expected: str) -> None:
    done = stack.engine("up", "--yes", check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    for text in expected:
        assert text in said, said
    assert "Traceback" not in said
    # Only the stack itself was begun.
    assert " create ..." not in said, said


def test_all_faults_of_all_hosts_at_once(
    host: Callable[..., Any], declare_on_hosts: Callable[..., Any]
) -> None:
    one, two, bare = host("bad-a"), host("bad-b"), host("bad-e", without=("python3",))
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    nobody = {name: one[name].rpartition(".")[0] + ".250" for name in ("address", "privateAddress")}
    hosts = [
        {**one, "user": "nobody-here"},
        {**two, "hostKey": " ".join(other.split()[:2])},  # F38
        {**one, **nobody},
        bare,
    ]
    stack = declare_on_hosts(hosts, workers=4)
    fails(
        stack,
        "nobody-here",
        "does not show the host key",
        "cannot be reached by SSH",
        f"ubuntu@{bare['address']} has no python3",
    )


def test_a_full_disk_is_seen_before_and_a_file_that_does_not_fit_leaves_nothing(
    host: Callable[..., Any],
    declare_on_hosts: Callable[..., Any],
    guests: Machines,
    key_file: Path,
    tmp_path: Path,
) -> None:
    small = host("bad-c", disk_mib=32)
    stack = declare_on_hosts([small], workers=1)
    fails(stack, "MiB free in /home", "make room there")
    large, target = tmp_path / "large", f"/home/{small['user']}/large"
    large.write_bytes(bytes(64 * 1024 * 1024))
    connection = Connection(
        host=small["address"],
        user="ubuntu",
        host_key=small["hostKey"],
        private_key=ssh_run.read_key(key_file),
    )
    with pytest.raises(SshError, match=f"does not take {target}"):
        ssh_run.copy(connection, large, target, mode=0o600)
    assert not guests.path("bad-c", target).exists()
