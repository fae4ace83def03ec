"""A node provider for Ray's autoscaler, which starts and stops nodes in one of two ways.

Nodes that the stack has declared are programs of supervisord (`ProgramNodes`). It alone knows which
run. Nothing is kept here, so a crash never loses a node or starts one twice. On the head's machine
supervisord itself is asked; on another one the switch next to it (node_switch.py) is. The node of a
machine that does not answer for a minute counts as ended, and another one is started in its place.
Not sooner: Ray never recognizes a node again that it missed once, and after an hour ends it with
its jobs.

Nodes on rented machines are requested (`RequestedNodes`), since making them takes an account's key.
Two files in one folder of the head's machine list the requested nodes, written here, and the
launched ones, written by `python -m infra.operate.scale`, which meets the request. A request
outlives the head, and a machine has one name, so a crash never requests a node twice.

This module is a file of the head, and needs only Ray and supervisor. Ray's autoscaler imports it.
"""

import contextlib
import http.client
import itertools
import json
import os
import threading
import time
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ray.autoscaler import tags
from ray.autoscaler.node_launch_exception import NodeLaunchException
from ray.autoscaler.node_provider import NodeProvider
from supervisor.xmlrpc import SupervisorTransport

HERE = ("STARTING", "RUNNING", "BACKOFF", "STOPPING")  # states of a program that has processes
ANSWER_SECONDS = 3.0  # for the answer of a switch
RESTART_SECONDS = 5.0  # of a switch that was killed: until then its machine refuses connections
SILENT_SECONDS = 15.0  # until a machine that did not answer is asked again: each try takes time
KNOWN_SECONDS = 60.0  # for which the last state of a machine that does not answer counts
ANSWER_BYTES = 1024
ASKED_AT_ONCE = 32
REQUESTED, LAUNCHED = "requested.json", "launched.json"  # lists of nodes' names


class SwitchClient:
    """Starts and stops the node of another machine, by its switch, which requires a token."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._silent_until = 0.0
        self._last, self._answered = "", 0.0
        # The user's proxy does not reach the stack's machines.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def state(self) -> str:
        """Return the node's state; "" if the machine has not answered for a minute."""
        if state := self.ask("GET", "state"):
            return state
        return self._last if time.monotonic() - self._answered < KNOWN_SECONDS else ""

    def ask(self, method: str, action: str) -> str:
        """Return the node's state after an action; "" if the machine does not answer."""
        headers = {"Authorization": f"Bearer {self._token}"}
        url = f"{self._url}/{action}"
        request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310
        begun = time.monotonic()
        while time.monotonic() >= self._silent_until:
            try:
                with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
                    self._last = str(json.loads(answer.read(ANSWER_BYTES))["state"])
                    self._answered = time.monotonic()
                    return self._last
            except (OSError, http.client.HTTPException, LookupError, ValueError) as error:
                refused = isinstance(error, urllib.error.URLError) and isinstance(
                    error.reason, ConnectionRefusedError
                )
                if refused and time.monotonic() - begun < RESTART_SECONDS:
                    time.sleep(0.2)
                else:
                    self._silent_until = time.monotonic() + SILENT_SECONDS
        if method == "POST":
            self._last = ""  # it may have been done or not
        return ""


class ProgramNodes:
    """Nodes that are programs of supervisord, here or on other machines.

    Args:
        folder: of supervisord.
        switches: URL of the switch of each node on another machine, by its name.
        token: that the switches require.
    """

    def __init__(self, folder: str, switches: dict[str, str], token: str) -> None:
        self._folder = folder
        self._switches = {name: SwitchClient(url, token) for name, url in switches.items()}
        self._asking = ThreadPoolExecutor(ASKED_AT_ONCE)

    def existing(self) -> set[str]:
        return {name for name, state in self._states().items() if state in HERE}

    def exists(self, name: str) -> bool:
        if name in self._switches:
            return self._switches[name].state() in HERE
        return self._local().get(name) in HERE

    def start(self, names: Iterable[str], count: int) -> int:
        """Start so many of these nodes; one whose machine does not answer is not free."""
        states = self._states()
        free = [name for name in names if states.get(name) not in (None, *HERE)]
        return len([*itertools.islice(filter(self._start, free), count)])

    def stop(self, name: str) -> None:
        """Stop a node, unless it has ended or its machine is gone."""
        if name in self._switches:
            self._switches[name].ask("POST", "stop")
            return
        with contextlib.suppress(xmlrpc.client.Fault), self._supervisor() as supervisor:
            supervisor.stopProcess(name, False)

    def _start(self, name: str) -> bool:
        if name in self._switches:
            return self._switches[name].ask("POST", "start") in HERE
        with self._supervisor() as supervisor:
            return bool(supervisor.startProcess(name, False))

    def _states(self) -> dict[str, str]:
        """Return the states of all nodes whose machines answer."""
        asked = {name: self._asking.submit(switch.state) for name, switch in self._switches.items()}
        found = {name: answer.result() for name, answer in asked.items()}
        return self._local() | {name: state for name, state in found.items() if state}

    def _local(self) -> dict[str, str]:
        with self._supervisor() as supervisor:
            return {each["name"]: each["statename"] for each in supervisor.getAllProcessInfo()}

    @contextlib.contextmanager
    def _supervisor(self) -> Iterator[Any]:
        # A connection for each call: there are several threads.
        transport = SupervisorTransport(None, None, f"unix://{self._folder}/supervisor.sock")
        try:
            yield xmlrpc.client.ServerProxy("http://localhost", transport=transport).supervisor
        finally:
            transport.close()


class RequestedNodes:
    """Nodes of an elastic group, which another program launches; all others exist always.

    Args:
        folder: of the two files.
        group: names of the group's nodes.
        others: names of the other workers.
        least: how many of the group are always requested.
    """

    def __init__(self, folder: Path, group: list[str], others: set[str], least: int) -> None:
        self._folder, self._group, self._others, self._least = folder, group, others, least
        self._writing = threading.Lock()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._write(self._requested())

    def existing(self) -> set[str]:
        """Return the names of the requested nodes, launched yet or not, and of the others.

        Nodes on their way count: otherwise Ray would request them again.
        """
        return {*self._others, *self._requested()}

    def exists(self, name: str) -> bool:
        return name in self.existing()

    def start(self, names: Iterable[str], count: int) -> int:
        """Request nodes.

        One that is still launched, and about to be ended, is not free: its Ray node has ended.
        """
        with self._writing:
            requested, launched = self._requested(), self._read(LAUNCHED) or []
            taken = {*self._others, *requested, *launched}
            free = [name for name in names if name not in taken][:count]
            if free:
                self._write([*requested, *free])
        return len(free)

    def stop(self, name: str) -> None:
        """Stop requesting a node; the others stay."""
        with self._writing:
            requested = self._requested()
            if name in requested:
                self._write([each for each in requested if each != name])

    def _requested(self) -> list[str]:
        """Return the requested nodes; without a request the launched ones, and at least `least`."""
        requested = self._read(REQUESTED)
        if requested is None:
            requested = self._read(LAUNCHED) or []
            others = [name for name in self._group if name not in requested]
            requested += others[: max(0, self._least - len(requested))]
        return [name for name in self._group if name in requested]

    def _read(self, name: str) -> list[str] | None:
        try:
            return [str(each) for each in json.loads((self._folder / name).read_text())]
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, requested: list[str]) -> None:
        """Write the request in one step and durably: half of it would end machines."""
        draft = self._folder / f"{REQUESTED}.new"
        with draft.open("w") as file:
            json.dump([name for name in self._group if name in requested], file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._folder / REQUESTED)


class StackNodeProvider(NodeProvider):
    """Starts and stops nodes.

    Args:
        provider_config: `head`, name and type of the head; `nodes`, types of the workers by name.
            For programs `supervisor`, the folder of supervisord; of workers on other machines
            `switches`, URLs by name, and `token`, the file with their token. For requests
            `requests`, the folder of the two files; `group`, names of the elastic group's nodes;
            `least`, how many of them are always requested.
        cluster_name: of the cluster.
    """

    def __init__(self, provider_config: dict[str, Any], cluster_name: str) -> None:
        super().__init__(provider_config, cluster_name)
        self._head, head_type = provider_config["head"]
        self._workers: dict[str, str] = provider_config["nodes"]
        self._types = {self._head: head_type, **self._workers}
        # Names that the last look told Ray: no new node may get one of them. Otherwise Ray takes it
        # for the node that ended, and never for idle.
        self._listed: frozenset[str] = frozenset()
        # Ray starts nodes in several threads, and two must not choose the same.
        self._choosing = threading.Lock()
        # Called from several threads.
        self._nodes: ProgramNodes | RequestedNodes
        if "requests" in provider_config:
            group: list[str] = provider_config["group"]
            others = {*self._workers} - {*group}
            folder, least = Path(provider_config["requests"]), provider_config["least"]
            self._nodes = RequestedNodes(folder, group, others, least)
        else:
            switches: dict[str, str] = provider_config.get("switches", {})
            token = Path(provider_config["token"]).read_text() if switches else ""
            self._nodes = ProgramNodes(provider_config["supervisor"], switches, token)

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        existing = self._nodes.existing()
        here = [self._head, *(name for name in self._workers if name in existing)]
        self._listed = frozenset(here)
        return [name for name in here if tag_filters.items() <= self.node_tags(name).items()]

    def is_running(self, node_id: str) -> bool:
        """Return whether a node exists; only Ray knows whether it runs there."""
        return node_id == self._head or self._nodes.exists(node_id)

    def is_terminated(self, node_id: str) -> bool:
        return not self.is_running(node_id)

    def node_tags(self, node_id: str) -> dict[str, str]:
        is_head = node_id == self._head
        return {
            tags.TAG_RAY_NODE_KIND: tags.NODE_KIND_HEAD if is_head else tags.NODE_KIND_WORKER,
            tags.TAG_RAY_USER_NODE_TYPE: self._types[node_id],
            tags.TAG_RAY_NODE_STATUS: tags.STATUS_UP_TO_DATE,
        }

    def set_node_tags(self, node_id: str, tags: dict[str, str]) -> None:
        """Do nothing: tags follow from the declarations."""

    def internal_ip(self, node_id: str) -> str:
        """Return the name: nobody logs in to a node."""
        return node_id

    external_ip = internal_ip

    def create_node_with_resources_and_labels(
        self,
        node_config: dict[str, Any],  # noqa: ARG002 (Ray's signature)
        tags_: dict[str, str],
        count: int,
        resources: dict[str, float],  # noqa: ARG002
        labels: dict[str, str],  # noqa: ARG002
    ) -> None:
        """Start nodes of a type.

        Raises:
            NodeLaunchException: fewer are free, or answer.
        """
        wanted = tags_[tags.TAG_RAY_USER_NODE_TYPE]
        with self._choosing:
            names = [
                name
                for name, kind in self._workers.items()
                if kind == wanted and name not in self._listed
            ]
            started = self._nodes.start(names, count)
        if started < count:
            raise NodeLaunchException(
                "no node is free", f"{started} of {count} nodes of {wanted} were started", None
            )

    def terminate_node(self, node_id: str) -> None:
        self._nodes.stop(node_id)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        return cluster_config
