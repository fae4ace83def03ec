"""The key that logs in at a stack's host, and files that are not keys; no host is reached."""

from __future__ import annotations

import asyncio
import os

import asyncssh
import pytest

from tests.ssh_keys import keygen, new_key
from trainyard.client import ssh_key
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Ssh

PASSPHRASE = "canary-passphrase"


class Agent:
    """Holds keys; notes what it was asked for."""

    def __init__(self, *held):
        self.held = held
        self.asked = []

    async def get_keys(self, wanted=None):
        self.asked.append(wanted)
        return list(self.held)


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
    agent = Agent("of the agent")
    (key,) = find(mine, stacks.read_text(), agent)
    assert ssh_key.fingerprint(key) == shown(mine)
    for absent in ("", tmp_path / "absent"):
        (key,) = find(absent, stacks.read_text(), agent)
        assert ssh_key.fingerprint(key) == shown(stacks)
    assert agent.asked == []
    assert find(agent=agent) == ["of the agent"]
    assert agent.asked == [None]


def test_without_any_key_it_is_told():  # F38
    for agent in (None, Agent()):
        said = refused(agent=agent)
        assert "the stack names no key for ada@192.0.2.4" in said
        assert "ssh-add KEY" in said


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o777])
def test_a_key_that_others_can_use_is_refused(tmp_path, mode):  # F38
    path = new_key(tmp_path / "key")
    path.chmod(mode)
    assert f"(mode {mode:04o}, at most 0600): chmod 600 {path}" in refused(key_file=path)
    for of_its_user in (0o400, mode & 0o700):
        path.chmod(of_its_user)
        assert len(find(path)) == 1


def test_a_link_in_the_place_of_a_key_is_not_followed(tmp_path):  # F38
    link = tmp_path / "link"
    link.symlink_to(new_key(tmp_path / "key"))
    for private_key in ("", (tmp_path / "key").read_text()):
        said = refused(key_file=link, private_key=private_key)
        assert f"cannot read the stack's key file {link} (it is a symbolic link)" in said


def test_what_is_no_key_is_named(tmp_path):  # F38
    path = tmp_path / "key"
    assert f"{path} (No such file or directory): copy it" in refused(key_file=path)
    for content, said in (
        (b"not a key", f"key file {path} is not a readable private key"),
        (b"\xff\xfe", f"cannot read the stack's key file {path} (not text)"),
    ):
        path.write_bytes(content)
        path.chmod(0o600)
        assert said in refused(key_file=path)
    path.unlink()
    path.mkdir(mode=0o700)
    assert f"{path}" in refused(key_file=path)
    path.rmdir()
    os.mkfifo(path, 0o600)
    writer = os.open(path, os.O_RDWR)  # or it would be waited for
    assert f"key file {path} is not a file" in refused(key_file=path)
    os.close(writer)
    assert "output 'ssh' has no private key" in refused(private_key="not a key")


def test_a_locked_key_is_the_agents(tmp_path):  # F38
    path = new_key(tmp_path / "key", PASSPHRASE)
    agent = Agent("unlocked")
    assert find(path, agent=agent) == ["unlocked"]
    public = asyncssh.read_public_key(tmp_path / "key.pub").public_data
    assert agent.asked == [[public]]
    for other in (None, Agent()):
        said = refused(key_file=path, agent=other)
        assert f"key file {path} has a passphrase, and no SSH agent" in said
        assert f"ssh-add {path}" in said
