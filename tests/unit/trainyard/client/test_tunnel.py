"""The tunnel's own faults, before any host is asked; the rest is in tests/integration/training."""

from dataclasses import replace

import asyncssh
import pytest

from trainyard.client import connection, outputs, preflight, store
from trainyard.client.errors import ClientError

SSH = outputs.Ssh(
    host="127.0.0.1", port=1, user="ubuntu", host_key="", key_file="", private_key="canary"
)


@pytest.mark.parametrize("host_key", ["", "canary", "ssh-ed25519 AAAA"])
def test_without_a_host_key_to_pin_nothing_is_connected(host_key, stack):
    message = r"output 'ssh' of stack 'dev' has no host key to pin .*make up STACK=dev"
    with (
        pytest.raises(ClientError, match=message),
        connection.to(replace(stack, ssh=replace(SSH, host_key=host_key))),
    ):
        pass


def test_results_in_a_folder_of_another_machine_are_not_looked_for_here(stack, tmp_path):
    far = replace(stack, ssh=SSH)
    with pytest.raises(ClientError, match=r"are files, file://.* on ubuntu@127.0.0.1:1: look"):
        store.open_store(far)
    preflight.check_bucket(far)
    assert not (tmp_path / "storage").exists()


def refused_by(error, ssh, stack, monkeypatch):
    """The message when the connection fails with an error."""

    async def connect(*_, **__):
        raise error

    monkeypatch.setattr(asyncssh, "connect", connect)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(ClientError) as caught, connection.to(replace(stack, ssh=ssh)):
        pass
    return str(caught.value)


def machine(kind, folder, *, rented):
    """A machine with a host key of a kind: a rented one, or a host of the user's."""
    key = asyncssh.generate_private_key(kind)
    host_key = key.export_public_key().decode()
    private = key.export_private_key().decode()
    if rented:
        return replace(SSH, host_key=host_key, private_key=private)
    file = folder / "key"
    file.touch(mode=0o600)
    file.write_text(private)
    return replace(SSH, host_key=host_key, private_key="", key_file=str(file))


@pytest.mark.parametrize(
    ("kind", "name"), [("ssh-ed25519", "ed25519"), ("ecdsa-sha2-nistp256", "ecdsa")]
)
def test_another_key_of_a_host_is_compared_and_written_into_the_settings(
    kind, name, stack, tmp_path, monkeypatch
):
    ssh = machine(kind, tmp_path, rented=False)
    said = refused_by(asyncssh.HostKeyNotVerifiable("other"), ssh, stack, monkeypatch)
    assert f"ssh-keygen -lf /etc/ssh/ssh_host_{name}_key.pub" in said
    assert "write its new key into `hostKey` of the stack's hosts" in said
    assert "make up STACK=dev" in said
    assert "rent" not in said


def test_another_key_of_a_rented_machine_is_of_another_machine(stack, tmp_path, monkeypatch):
    ssh = machine("ssh-ed25519", tmp_path, rented=True)
    said = refused_by(asyncssh.HostKeyNotVerifiable("other"), ssh, stack, monkeypatch)
    assert "somebody may be in between, so nothing was sent" in said
    assert "`make refresh STACK=dev` tells" in said
    assert "hostKey" not in said
    assert "console" not in said


@pytest.mark.parametrize("rented", [True, False])
def test_only_a_rented_machine_is_behind_allowed_networks(rented, stack, tmp_path, monkeypatch):
    ssh = machine("ssh-ed25519", tmp_path, rented=rented)
    said = refused_by(TimeoutError(), ssh, stack, monkeypatch)
    assert said.startswith("cannot reach ubuntu@127.0.0.1:1 within 10 s (no answer)")
    assert ("allowedCidrs" in said) == rented
    assert ("make refresh STACK=dev" in said) == rented
    assert ("`ssh -v -p 1 ubuntu@127.0.0.1` shows" in said) != rented
