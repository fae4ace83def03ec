"""Stacks on existing machines."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

KEYLESS = {"stateDir": "", "dataDir": "", "workers": 2}


@pytest.fixture(scope="session")
def key_file(tmp_path_factory) -> Path:
    """A private key that all hosts let in."""
    path = tmp_path_factory.mktemp("ssh") / "key"
    path.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    path.chmod(0o600)
    return path


@pytest.fixture(scope="session")
def boot_host(guests, key_file) -> Callable[..., dict[str, Any]]:
    """Boot a machine; its entry for the setting hosts is returned."""

    def boot(name: str, **options: Any) -> dict[str, Any]:
        key = asyncssh.generate_private_key("ssh-ed25519")
        private = key.export_private_key().decode()
        lines = "".join(f"    {line}\n" for line in private.splitlines())
        public = " ".join(key.export_public_key().decode().split()[:2])
        login = asyncssh.read_private_key(key_file).export_public_key().decode().strip()
        user_data = (
            f"#cloud-config\nssh_keys:\n  ed25519_private: |\n{lines}  ed25519_public: {public}\n"
        )
        ip, private_ip = guests.boot(name, "", name, user_data, login, **options)
        guests.wait(name)
        return {
            "address": ip,
            "user": "ubuntu",
            "hostKey": public,
            "privateAddress": private_ip,
        }

    return boot


@pytest.fixture(scope="module")
def declare_on_hosts(declare, key_file) -> Iterator[Callable[..., Any]]:
    """Make a project for hosts; a test that brings it up destroys it."""
    folders: list[Path] = []

    def make(hosts: list[dict[str, Any]], **changes: Any) -> Any:
        base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
        folders.append(base)
        changes = {"sshKeyFile": str(key_file), **KEYLESS, "hosts": hosts, **changes}
        if "nodeGroups" in changes:
            del changes["workers"]
        stack = declare(base, **changes)
        # Nothing of this user's own SSH.
        stack.environment.pop("SSH_AUTH_SOCK", None)
        return stack

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _no_agent() -> Iterator[None]:
    before = os.environ.pop("SSH_AUTH_SOCK", None)
    yield
    if before is not None:
        os.environ["SSH_AUTH_SOCK"] = before
