"""The parts of a connection; the rest needs a real sshd."""

from trainyard.access.ssh import Connection

PROPS = {"host": "192.0.2.4", "user": "ada", "hostKey": "ssh-ed25519 AAAA", "port": 22.0}


def test_a_connection_comes_out_of_a_resources_properties():
    made = Connection.of({**PROPS, "agent": "/x", "instanceId": "i"})
    assert made == Connection(host="192.0.2.4", user="ada", host_key="ssh-ed25519 AAAA")
    assert made.name == "ada@192.0.2.4"
    other = Connection.of({**PROPS, "port": 2222.0, "privateKey": "canary"})
    assert (other.port, other.private_key) == (2222, "canary")
    assert other.name == "ada@192.0.2.4:2222"
    assert "canary" not in repr(other)  # F35
