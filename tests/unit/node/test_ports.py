"""A port in use is an error that names the port, its holder and the setting."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from node import ports
from node.owned_processes import STACK

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


def test_all_held_ports_are_told_at_once(held):
    with socket.create_server(("127.0.0.1", 0)) as other:
        first, second = held.getsockname()[1], other.getsockname()[1]
        with pytest.raises(ports.ServiceError) as raised:
            ports.refuse_held({"dashboardPort": [first], "gcsPort": [second]})
    *lines, advice = str(raised.value).splitlines()
    assert "`train up --find-ports`" in advice
    assert len(lines) == 2
    for line, port, setting in zip(
        lines, (first, second), ("dashboardPort", "gcsPort"), strict=True
    ):
        assert line.startswith(f"port {port} ({setting}) is held by ")
        assert f"pid {os.getpid()}" in line


def test_a_port_that_two_programs_may_listen_on_is_held():  # F64
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
        one.listen()
        other.bind(one.getsockname())
        (line,) = ports.describe_listening({"servePort": [one.getsockname()[1]]})
    assert f"(servePort) is held by {psutil.Process().name()} (pid {os.getpid()}: " in line


def test_who_alone_listens_is_seen_quickly(monkeypatch):
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
        wanted = {"servePort": [one.getsockname()[1]]}
        assert ports.are_of([], wanted)
        one.listen()
        assert ports.are_of([os.getpid()], wanted)
        assert not ports.are_of([1, 2**30], wanted)
        with subprocess.Popen(["sleep", "60"], pass_fds=[other.fileno()]) as process:
            other.bind(one.getsockname())
            other.listen()
            other.close()
            assert not ports.are_of([os.getpid()], wanted)
            assert ports.are_of([os.getpid(), process.pid], wanted)
            process.kill()
        monkeypatch.setattr(ports, "SOCKETS", [Path("/proc/net/of-another-system")])
        assert not ports.are_of([os.getpid()], wanted)


def test_the_stack_of_a_holder_is_named():
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        env={STACK: "id stack lab of project trainyard, made by ada@gpu1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        (line,) = ports.describe_listening({"dashboardPort": [port]})
        assert line.endswith("), stack lab of project trainyard, made by ada@gpu1")
        assert ports.describe_listening({"dashboardPort": [port]}, {process.pid}) == []
        process.communicate("\n")


def test_free_ports_pass(held):
    port = held.getsockname()[1]
    held.close()
    ports.refuse_held({"dashboardPort": [port]})
