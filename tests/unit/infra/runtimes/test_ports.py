"""A port in use is an error that names the port, its holder and the setting."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from infra.runtimes import ports
from infra.runtimes.owned_processes import STACK

HOLDER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as held:
    print(held.getsockname()[1], flush=True)
    input()
"""


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
    *lines, advice = str(raised.value).splitlines()
    assert len(lines) == 2
    for line, port, setting in zip(
        lines, (first, second), ("dashboardPort", "gcsPort"), strict=True
    ):
        assert line.startswith(f"port {port} ({setting}) is held by ")
        assert f"pid {os.getpid()}" in line
    step = re.search(r"add (\d+) to its setting portOffset \(`.* config set portOffset \1`", advice)
    assert step
    assert int(step[1]) % 100 == 0


def test_the_proposed_offset_leads_to_free_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_are_free", lambda numbers: 8465 in [*numbers])
    assert "add 200 to its setting portOffset" in ports.advice({"a": [8265], "b": [9000]})
    monkeypatch.setattr(ports, "_are_free", lambda _: False)
    assert ports.advice({"a": [8265]}).endswith("change its settings of ports")


def test_the_stack_of_a_holder_is_named() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={STACK: "id stack lab of project trainyard, made by ada@gpu1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        (line,) = ports.held({"dashboardPort": [port]})
        assert line.endswith("), stack lab of project trainyard, made by ada@gpu1")
        assert ports.held({"dashboardPort": [port]}, {process.pid}) == []
        process.communicate("\n")


def test_free_ports_pass(held: socket.socket) -> None:
    port = held.getsockname()[1]
    held.close()
    ports.refuse_held({"dashboardPort": [port]})
