"""A host key that is drawn before its machine is there."""

import asyncssh
import pulumi

from infra.machines.host_key import HostKey, HostKeyProvider


def test_a_pair_that_ssh_takes():
    made = HostKeyProvider().create({"name": "key-0", "privateKey": None, "publicKey": None})
    assert made.id == "key-0"
    private = asyncssh.import_private_key(made.outs["privateKey"])
    public = asyncssh.import_public_key(made.outs["publicKey"])
    assert private.public_data == public.public_data
    assert made.outs["publicKey"].startswith("ssh-ed25519 ")
    assert made.outs["publicKey"].count(" ") == 1


def test_no_two_machines_have_the_same():
    provider = HostKeyProvider()
    keys = {provider.create({"name": "x"}).outs["privateKey"] for _ in range(3)}
    assert len(keys) == 3


def test_a_machine_keeps_its_own():
    olds = HostKeyProvider().create({"name": "x"}).outs
    news = {"name": "y", "privateKey": None, "publicKey": None}
    assert HostKeyProvider().diff("x", olds, news).changes is False


def test_the_private_half_is_a_secret_output(recorded, requests):  # F35
    @pulumi.runtime.test
    def program():
        HostKey("key", pulumi.ResourceOptions())

    program()
    (request,) = [request for request in requests if request.type.endswith("host:HostKey")]
    assert list(request.additionalSecretOutputs) == ["privateKey"]
