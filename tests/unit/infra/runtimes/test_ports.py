"""A port in use is an error that names the port, its holder and the setting."""

import os
import re
import socket
from collections.abc import Iterator

import pytest

from infra.runtimes import ports


@pytest.fixture
def held() -> Iterator[socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))
    yield listener
    listener.close()


def test_all_held_ports_are_told_at_once(held: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        first, second = held.getsockname()[1], other.getsockname()[1]
        with pytest.raises(ports.PortsInUseError) as raised:
            ports.refuse_held({"dashboardPort": [first], "gcsPort": [second]})
    lines = str(raised.value).splitlines()
    assert len(lines) == 2
    for line, port, setting in zip(
        lines, (first, second), ("dashboardPort", "gcsPort"), strict=True
    ):
        assert f"port {port} ({setting})" in line
        assert f"pid {os.getpid()}" in line
        proposed = re.search(rf"config set {setting} (\d+)", line)
        assert proposed
        assert int(proposed[1]) not in (first, second)


def test_free_ports_pass(held: socket.socket) -> None:
    port = held.getsockname()[1]
    held.close()
    ports.refuse_held({"dashboardPort": [port]})
