"""A node provider for Ray's autoscaler: nodes are programs of supervisord, here or elsewhere.

All of them are declared there, and supervisord alone knows which run. Nothing is kept here, so a
crash never loses a node or starts one twice.

On the head's machine supervisord itself is asked; on another one the switch next to it
(node_switch.py) is. The node of a machine that does not answer for a minute counts as ended, and
another one is started in its place. Not sooner: Ray never recognizes a node again that it missed
once, and after an hour ends it with its jobs.

This module is a file of the head, and needs only Ray and supervisor. Ray's autoscaler imports it.
"""

import contextlib
import http.client
import itertools
import json
import threading
import time
import urllib.error
import urllib.request
import xmlrpc.client
from collections.abc import Iterator
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


class Switch:
    """Starts and stops the node of another machine.

    Args:
        url: of its switch.
        token: that it requires.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._silent_until = 0.0
        self._last, self._answered = "", 0.0
        # A proxy of the user is not for the machines of the stack.
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


class Provider(NodeProvider):
    """Starts and stops nodes.

    Args:
        provider_config: `supervisor`, the folder of supervisord; `head`, name and type of the head;
            `nodes`, types of the workers by name; of workers on other machines `switches`, URLs by
            name, and `token`, the file with their token.
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
        switches: dict[str, str] = provider_config.get("switches", {})
        token = Path(provider_config["token"]).read_text() if switches else ""
        self._switches = {name: Switch(url, token) for name, url in switches.items()}
        self._asking = ThreadPoolExecutor(ASKED_AT_ONCE)

    def non_terminated_nodes(self, tag_filters: dict[str, str]) -> list[str]:
        """Return the names of the nodes that have processes."""
        states = self._states()
        here = [self._head, *(name for name in self._workers if states.get(name) in HERE)]
        self._listed = frozenset(here)
        return [name for name in here if tag_filters.items() <= self.node_tags(name).items()]

    def is_running(self, node_id: str) -> bool:
        """Return whether a node has processes; only Ray knows whether it runs there."""
        return node_id == self._head or self._state(node_id) in HERE

    def is_terminated(self, node_id: str) -> bool:
        """Return whether a node has no processes."""
        return not self.is_running(node_id)

    def node_tags(self, node_id: str) -> dict[str, str]:
        """Return a node's tags for the autoscaler."""
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
            states = self._states()
            free = [
                name
                for name, kind in self._workers.items()
                if kind == wanted
                and name not in self._listed
                and states.get(name) not in (None, *HERE)
            ]
            started = len([*itertools.islice(filter(self._start, free), count)])
        if started < count:
            raise NodeLaunchException(
                "no node is free", f"{started} of {count} nodes of {wanted} were started", None
            )

    def terminate_node(self, node_id: str) -> None:
        """Stop a node, unless it has ended or its machine is gone."""
        if node_id in self._switches:
            self._switches[node_id].ask("POST", "stop")
            return
        with contextlib.suppress(xmlrpc.client.Fault), self._supervisor() as supervisor:
            supervisor.stopProcess(node_id, False)

    @staticmethod
    def bootstrap_config(cluster_config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration as it is."""
        return cluster_config

    def _start(self, name: str) -> bool:
        if name in self._switches:
            return self._switches[name].ask("POST", "start") in HERE
        with self._supervisor() as supervisor:
            return bool(supervisor.startProcess(name, False))

    def _state(self, name: str) -> str | None:
        if name in self._switches:
            return self._switches[name].state()
        return self._local().get(name)

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
        socket = f"unix://{self.provider_config['supervisor']}/supervisor.sock"
        transport = SupervisorTransport(None, None, socket)
        try:
            yield xmlrpc.client.ServerProxy("http://localhost", transport=transport).supervisor
        finally:
            transport.close()
