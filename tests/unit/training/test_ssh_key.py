"""Which key logs in at a stack's host, and which is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from training.client import ssh_key
from training.client.errors import ClientError
from training.client.outputs import Ssh

KEY = asyncssh.generate_private_key("ssh-ed25519")
OTHER = asyncssh.generate_private_key("ssh-ed25519")


class Agent:
    """An SSH agent with some keys; notes what it is asked for."""

    def __init__(self, *keys: asyncssh.SSHKey) -> None:
        self.keys = keys
        self.asked: list[Any] = []

    async def get_keys(self, identities: Sequence[bytes] | None = None) -> list[Any]:
        self.asked.append(identities)
        return [key for key in self.keys if not identities or key.public_data in identities]


def find(agent: Agent | None = None, **ssh: str) -> list[bytes]:
    """Public halves of the keys that are found."""
    values: dict[str, Any] = {
        "user": "me",
        "host": "lab",
        "port": 22,
        "host_key": "",
        "key_file": "",
        "private_key": "",
    }
    there = Ssh(**(values | ssh))
    client: Any = agent
    return [key.public_data for key in asyncio.run(ssh_key.find(there, client))]


def key_file(folder: Path, mode: int = 0o600, passphrase: str | None = None) -> Path:
    path = folder / "key"
    path.write_bytes(KEY.export_private_key("openssh", passphrase, rounds=1))
    path.chmod(mode)
    return path


def pem(key: asyncssh.SSHKey) -> str:
    return key.export_private_key("openssh").decode()


def test_the_file_comes_first_then_the_outputs_then_the_agent(tmp_path: Path) -> None:
    agent = Agent(OTHER)
    path = str(key_file(tmp_path))
    assert find(agent, key_file=path, private_key=pem(OTHER)) == [KEY.public_data]
    assert find(agent, key_file=str(tmp_path / "none"), private_key=pem(KEY)) == [KEY.public_data]
    assert find(agent, private_key=pem(KEY)) == [KEY.public_data]
    assert agent.asked == []
    assert find(agent) == [OTHER.public_data]
    assert agent.asked == [None]


def test_a_file_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key_file(tmp_path)
    assert find(key_file="~/key") == [KEY.public_data]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o601, 0o620, 0o602, 0o644, 0o666])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:  # F38
    path = key_file(tmp_path, mode)
    with pytest.raises(ClientError, match=f"mode {mode:04o}, at most 0600.*chmod 600 {path}"):
        find(Agent(KEY), key_file=str(path))
    path.chmod(0o400)
    assert find(key_file=str(path)) == [KEY.public_data]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"cannot read the stack's key file .* \(No such file or directory\)"),
        (b"\xff\xfe", r"cannot read the stack's key file .* \(not text\)"),
        (b"none", "is no private key that can be read"),
        (b"", "is no private key that can be read"),
    ],
)
def test_a_file_that_is_no_key(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(ClientError, match=said):
        find(Agent(KEY), key_file=str(path))


@pytest.mark.parametrize("public_file", [True, False])
def test_a_key_with_a_passphrase_comes_from_the_agent(tmp_path: Path, public_file: bool) -> None:
    path = key_file(tmp_path, passphrase="secret")
    if public_file:
        (tmp_path / "key.pub").write_bytes(KEY.export_public_key("openssh"))
    agent = Agent(OTHER, KEY)
    assert find(agent, key_file=str(path)) == [KEY.public_data]  # and not just any
    assert agent.asked == [[KEY.public_data]]
    for none in (Agent(OTHER), None):
        with pytest.raises(ClientError, match=rf"no SSH agent .* holds the key: ssh-add {path}"):
            find(none, key_file=str(path))


def test_without_any_key() -> None:
    for none in (Agent(), None):
        with pytest.raises(ClientError, match=r"names no key for .*, and no SSH agent"):
            find(none)
    with pytest.raises(ClientError, match="output 'ssh' has no private key to log in with"):
        find(private_key="none")


def test_a_fingerprint_is_that_of_ssh_keygen() -> None:
    assert ssh_key.fingerprint(KEY) == KEY.get_fingerprint()
    assert ssh_key.fingerprint(KEY).startswith("SHA256:")


def test_an_agent_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert asyncio.run(ssh_key.agent()) is None
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "ended"))
    assert asyncio.run(ssh_key.agent()) is None


def test_the_agent_is_the_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(path: str) -> tuple[str, str]:
        return "connected", path

    monkeypatch.setattr(asyncssh, "connect_agent", connect)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    assert asyncio.run(ssh_key.agent()) == ("connected", str(tmp_path / "agent"))
