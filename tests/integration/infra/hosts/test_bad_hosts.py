"""All faults of hosts are reported in one message, before anything is made."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.fakes.machines import Machines

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


def test_a_full_disk_is_seen_before(
    host: Callable[..., Any], declare_on_hosts: Callable[..., Any]
) -> None:
    small = host("bad-c", disk_mib=600)
    stack = declare_on_hosts([small], workers=1)
    fails(stack, "MiB free in /home", "make room there")


def test_a_gpu_that_is_not_there(
    host: Callable[..., Any], declare_on_hosts: Callable[..., Any]
) -> None:
    stack = declare_on_hosts([{**host("bad-d"), "gpus": 2}], workers=1)
    fails(stack, "has 0 GPUs, and its setting gpus says 2")


def test_key_files_that_cannot_be_used(
    declare_on_hosts: Callable[..., Any], tmp_path: Path
) -> None:  # F38
    known = {"address": "127.0.0.1", "user": "ubuntu", "hostKey": "ssh-ed25519 AAAA"}
    key = asyncssh.generate_private_key("ssh-ed25519")
    locked, open_, link = (tmp_path / name for name in ("locked", "open", "link"))
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "canary", "-f", str(locked)], check=True
    )
    open_.write_bytes(key.export_private_key())
    open_.chmod(0o644)
    link.symlink_to(locked)
    for path, text in (
        (locked, "has a passphrase and no SSH agent runs"),
        (open_, "0644"),
        (link, "link"),
        (tmp_path / "none", "No such file"),
    ):
        fails(declare_on_hosts([known], sshKeyFile=str(path), workers=1), text, str(path))
