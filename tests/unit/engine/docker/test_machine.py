"""Providers of pulumi-docker that a program declares, as the engine takes them."""

import json

import pytest

from engine.docker import machine
from engine.errors import EngineError
from engine.values import UNKNOWN
from trainyard.access import docker_client

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"


def _settings(host="gpu1"):
    options = docker_client.ssh_options(KEY, "")
    return {"host": f"ssh://ada@{host}:22", "sshOpts": json.dumps(options)}


def test_the_machine_is_that_of_the_settings():  # A27
    assert machine.connection_of({}) is None
    assert machine.connection_of(_settings()).name == "ada@gpu1"
    assert (
        machine.settings_fault(_settings())
        == machine.settings_fault({"host": UNKNOWN, "sshOpts": "[]"})
        == ""
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"certPath": "/certs"}, "a docker provider with certPath, not host and sshOpts only"),
        ({"sshOpts": "[]"}, "as this engine does not know them"),
        ({"host": "tcp://gpu1:2375"}, "as this engine does not know them"),
    ],
)
def test_other_settings_are_refused(changes, said):
    assert said in machine.settings_fault(_settings() | changes)
    if "certPath" not in changes:
        with pytest.raises(EngineError, match="as this engine does not know them"):
            machine.connection_of(_settings() | changes)
