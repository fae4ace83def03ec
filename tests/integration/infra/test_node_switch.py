"""The switch of another machine's worker: a real supervisord, asked over the network.

One machine plays the head's and two others; with real hosts see hosts/test_stack.py.
"""

import json
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.autoscaler import tags
from ray.autoscaler.node_launch_exception import NodeLaunchException

from infra.machines.process import DaemonProvider, ProgramProvider
from node import node_provider, node_switch
from node.folders import FolderMark
from node.node_provider import ProgramNodes, StackNodeProvider, SwitchClient
from node.supervisor import Supervisor
from tests.killing import kill
from tests.waiting import wait_for

pytestmark = pytest.mark.integration

MARK = {"id": "0123abcd", "project": "trainyard", "stack": "dev", "by": "ada@here"}
HERE, THERE, DEAD = "ray-worker-0", "ray-worker-1", "ray-worker-2"
SWITCH = "node-switch-1"
TOKEN = "canary-of-the-switch"
WORKER = {tags.TAG_RAY_USER_NODE_TYPE: "cpu"}


class Stack:
    """Parked workers, and the switch of one of them."""

    def __init__(self, folder: Path, port: int, dead: int) -> None:
        self.folder, self.port = folder, port
        self.url = f"http://127.0.0.1:{port}"
        self._supervisor = Supervisor(folder=folder, mark=FolderMark.of(MARK))
        self._add(HERE, ["sleep", "600"], onDemand=True)
        self._add(THERE, ["sleep", "600"], onDemand=True)
        files = f"{folder}/{SWITCH}/files"
        settings = {"address": "127.0.0.1", "port": port, "program": THERE, "token": TOKEN}
        self._add(
            SWITCH,
            [sys.executable, f"{files}/node_switch.py", f"{files}/settings.json"],
            # Alone, as on a machine of a stack.
            files={"node_switch.py": Path(node_switch.__file__).read_text()},
            secrets={"settings.json": json.dumps(settings)},
            health=[f"{self.url}/health"],
        )
        token = folder / "token"
        token.write_text(TOKEN)
        self.config = {
            "supervisor": str(folder),
            "head": ["ray-head", "_head"],
            "nodes": dict.fromkeys([DEAD, THERE, HERE], "cpu"),
            "switches": {THERE: self.url, DEAD: f"http://127.0.0.1:{dead}"},
            "token": str(token),
        }

    def _add(self, name: str, command: list[str], **changes: Any) -> None:
        props = {"folder": str(self.folder), "name": name, "command": command, "mark": MARK}
        props |= {"environment": {}, "files": {}, "secrets": {}, "folders": [], "health": []}
        ProgramProvider().create(
            {**props, "stopSeconds": 0.0, "ports": [], "startTimeout": 30.0, **changes}
        )

    def pid(self, name: str) -> int:
        state = self._supervisor.state(name)
        assert state is not None
        return int(state["pid"])

    def ask(self, method: str, path: str, token: str = TOKEN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, None


@pytest.fixture
def stack(short_folder, free_port) -> Iterator[Stack]:
    folder = short_folder / "s"
    props = {"folder": str(folder), "identifier": "test", "ports": {}, "mark": MARK}
    DaemonProvider().create(props)
    try:
        yield Stack(folder, free_port(), free_port())
    finally:
        DaemonProvider().delete(str(folder), props)


def test_a_switch_does_three_things_for_those_with_its_token(stack):  # F33
    assert stack.ask("GET", "/health", token="") == (200, {})
    assert stack.ask("GET", "/state") == (200, {"state": "STOPPED"})
    for token in ("", "canary", TOKEN[:-1], f"{TOKEN}x"):
        assert stack.ask("POST", "/start", token)[0] == 401
    for method, path in (("GET", "/start"), ("POST", "/state"), ("POST", f"/start/{HERE}")):
        assert stack.ask(method, path)[0] == 404
    assert stack.pid(THERE) == 0
    assert stack.ask("POST", "/start")[1]["state"] in ("STARTING", "RUNNING")
    pid = stack.pid(THERE)
    assert pid
    assert stack.ask("POST", "/start")[0] == 200  # it runs already
    assert stack.pid(THERE) == pid
    assert stack.ask("POST", "/stop")[1]["state"] in ("STOPPING", "STOPPED")
    wait_for("its end", lambda: stack.pid(THERE) == 0)
    assert stack.ask("POST", "/stop")[0] == 200
    assert stack.pid(HERE) == 0


def test_who_asks_badly_gets_no_answer_and_keeps_none_from_others(stack):  # F33
    address, patience = ("127.0.0.1", stack.port), 2 * node_switch.REQUEST_SECONDS
    with socket.create_connection(address, patience) as slow:
        slow.sendall(b"GET /state")
        with socket.create_connection(address, patience) as long:
            long.sendall(b"GET /state HTTP/1.1\r\nX: " + b"x" * 3 * node_switch.HEAD_BYTES)
            assert _rest(long) == b""
        with socket.create_connection(address, patience) as odd:
            odd.sendall(b"canary\r\n\r\n")
            assert b" 400 " in _rest(odd)
        assert stack.ask("GET", "/state")[0] == 200
        slow.settimeout(0.01)
        with pytest.raises(TimeoutError):  # as long as it has not been given up
            slow.recv(1)
        slow.settimeout(patience)
        assert _rest(slow) == b""


def _rest(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1000)
    except ConnectionResetError:  # what was sent was not read to its end
        return b""


def _switches(provider: StackNodeProvider) -> dict[str, SwitchClient]:
    assert isinstance(provider._nodes, ProgramNodes)
    return provider._nodes._switches


@pytest.fixture
def provider(stack, monkeypatch) -> StackNodeProvider:
    monkeypatch.setattr(node_provider, "SILENT_SECONDS", 60.0)
    return StackNodeProvider(stack.config, "test")


def test_a_machine_that_does_not_answer_is_skipped(stack, provider, monkeypatch):
    monkeypatch.setattr(node_provider, "RESTART_SECONDS", 0.2)
    assert provider.non_terminated_nodes({}) == ["ray-head"]
    provider.create_node_with_resources_and_labels({}, WORKER, 1, {}, {})
    assert provider.non_terminated_nodes({}) == ["ray-head", THERE]
    with pytest.raises(NodeLaunchException, match="1 of 2 nodes of cpu were started"):
        provider.create_node_with_resources_and_labels({}, WORKER, 2, {}, {})
    assert stack.pid(HERE)
    assert stack.pid(THERE)
    assert provider.is_terminated(DEAD)
    assert provider.non_terminated_nodes({}) == ["ray-head", THERE, HERE]
    provider.terminate_node(DEAD)
    provider.terminate_node(THERE)
    provider.terminate_node(HERE)
    wait_for("the end of both", lambda: not (stack.pid(THERE) or stack.pid(HERE)))
    # Before Ray has looked, these names are of nodes that it knows.
    with pytest.raises(NodeLaunchException, match="0 of 1 nodes of cpu were started"):
        provider.create_node_with_resources_and_labels({}, WORKER, 1, {}, {})
    assert provider.non_terminated_nodes({}) == ["ray-head"]


def test_a_machine_that_misses_an_answer_keeps_its_node_for_a_minute(stack, provider, monkeypatch):
    del _switches(provider)[DEAD]
    provider.create_node_with_resources_and_labels({}, WORKER, 1, {}, {})
    _switches(provider)[THERE]._url = "http://127.0.0.1:1"  # nobody is there
    monkeypatch.setattr(node_provider, "RESTART_SECONDS", 0.0)
    assert provider.is_running(THERE)
    monkeypatch.setattr(node_provider, "KNOWN_SECONDS", 0.0)
    assert provider.is_terminated(THERE)
    monkeypatch.setattr(node_provider, "KNOWN_SECONDS", 60.0)
    assert provider.is_running(THERE)
    provider.terminate_node(THERE)  # it may have been stopped
    assert provider.is_terminated(THERE)


def test_a_killed_switch_loses_no_node_and_starts_none_twice(stack, provider):  # F2
    del _switches(provider)[DEAD]
    provider.create_node_with_resources_and_labels({}, WORKER, 1, {}, {})
    pid = stack.pid(THERE)
    kill(lambda: stack.pid(SWITCH))
    # Its machine refuses connections until supervisord has started it again.
    assert provider.non_terminated_nodes({}) == ["ray-head", THERE]
    kill(lambda: stack.pid(SWITCH))
    provider.create_node_with_resources_and_labels({}, WORKER, 1, {}, {})
    assert stack.pid(HERE)
    with pytest.raises(NodeLaunchException):
        provider.create_node_with_resources_and_labels({}, WORKER, 1, {}, {})
    assert stack.pid(THERE) == pid
