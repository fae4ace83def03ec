"""The key that logs in at a stack's host, and files that are not keys; no host is reached."""

import asyncio
from unittest.mock import AsyncMock

import asyncssh
import pytest

from tests.ssh_keys import keygen, new_key
from trainyard.client import ssh_key
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Ssh

PASSPHRASE = "canary-passphrase"


def holding(*keys):
    """An agent with keys."""
    return AsyncMock(**{"get_keys.return_value": [*keys]})


def find(key_file="", private_key="", agent=None):
    ssh = Ssh(
        host="192.0.2.4",
        port=22,
        user="ada",
        host_key="ssh-ed25519 AAAA",
        key_file=str(key_file),
        private_key=private_key,
    )
    return asyncio.run(ssh_key.find(ssh, agent))


def refused(**given):
    with pytest.raises(ClientError) as raised:
        find(**given)
    message = str(raised.value)
    assert "PRIVATE" not in message
    assert "\n" not in message
    return message


def shown(path):
    return keygen("-lf", path).split()[1]


def test_the_file_goes_before_the_outputs_and_these_before_the_agent(tmp_path):
    mine, stacks = new_key(tmp_path / "mine"), new_key(tmp_path / "stacks")
    agent = holding("of the agent")
    (key,) = find(mine, stacks.read_text(), agent)
    assert ssh_key.fingerprint(key) == shown(mine)
    for absent in ("", tmp_path / "absent"):
        (key,) = find(absent, stacks.read_text(), agent)
        assert ssh_key.fingerprint(key) == shown(stacks)
    agent.get_keys.assert_not_called()
    assert find(agent=agent) == ["of the agent"]
    agent.get_keys.assert_called_once_with()


def test_without_any_key_it_is_told():  # F38
    for agent in (None, holding()):
        said = refused(agent=agent)
        assert "the stack names no key for ada@192.0.2.4" in said
        assert "ssh-add KEY" in said


def test_a_file_that_is_there_goes_before_the_outputs_even_if_it_cannot_be_used(tmp_path):  # F38
    path, link = new_key(tmp_path / "key"), tmp_path / "link"
    link.symlink_to(path)
    for private_key in ("", path.read_text()):
        said = refused(key_file=link, private_key=private_key)
        assert f"cannot read the stack's key file {link} (it is a symbolic link)" in said


def test_what_is_no_key_is_named(tmp_path):  # F38
    path = tmp_path / "key"
    assert f"{path} (No such file or directory): copy it" in refused(key_file=path)
    path.write_text("not a key")
    path.chmod(0o600)
    assert f"key file {path} is not a readable private key" in refused(key_file=path)
    assert "output 'ssh' has no private key" in refused(private_key="not a key")


def test_a_locked_key_is_the_agents(tmp_path):  # F38
    path = new_key(tmp_path / "key", PASSPHRASE)
    agent = holding("unlocked")
    assert find(path, agent=agent) == ["unlocked"]
    public = asyncssh.read_public_key(tmp_path / "key.pub").public_data
    agent.get_keys.assert_called_once_with([public])
    for other in (None, holding()):
        said = refused(key_file=path, agent=other)
        assert f"key file {path} has a passphrase, and no SSH agent" in said
        assert f"ssh-add {path}" in said
