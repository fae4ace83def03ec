"""The actors, reservations and nodes that the cluster's head knows, by the dashboard's API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainyard.client.dashboard import Dashboard, DashboardError, UnreadableError
from trainyard.client.feasibility import MIB, Bundle
from trainyard.client.outputs import StackOutputs

TIMEOUT_S = 5
LIMIT = 10_000  # the most that the API gives

SUPERVISOR_PREFIX = "_ray_internal_job_actor_"  # of the name of an entrypoint's actor
TRAIN_WORKER = "RayTrainWorker"
UNPLACED = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "PENDING", "RESCHEDULING", "RESTARTING")


@dataclass(frozen=True, kw_only=True)
class Actor:
    """An actor; `bundle` is empty when it lives in a reservation."""

    id: str
    kind: str
    name: str
    job: str  # Ray's own job id, which an entrypoint's actor does not share
    pid: int
    node: str
    state: str
    bundle: Bundle

    @property
    def submission(self) -> str:
        """The submission whose entrypoint this actor runs; "" for all others."""
        found = self.name.startswith(SUPERVISOR_PREFIX)
        return self.name.removeprefix(SUPERVISOR_PREFIX) if found else ""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """A placement group: bundles that one job takes together; `nodes` holds each one's node."""

    job: str
    state: str
    bundles: tuple[Bundle, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RayNode:
    """A node that is alive."""

    id: str
    address: str
    is_head: bool


class ClusterState:
    """Reads the state API of a stack's head; every method may raise a DashboardError."""

    def __init__(self, outputs: StackOutputs) -> None:
        self._dashboard = Dashboard(outputs)

    def actors(self) -> list[Actor]:
        """All actors that are not dead."""
        return [
            Actor(
                id=each["actor_id"],
                kind=each["class_name"],
                name=each["name"] or "",
                job=each["job_id"],
                pid=int(each["pid"] or 0),
                node=each["node_id"] or "",
                state=each["state"],
                bundle={} if each["placement_group_id"] else _bundle(each["required_resources"]),
            )
            for each in self._list("actors")
            if each["state"] != "DEAD"
        ]

    def placed(self) -> dict[str, list[str]]:
        """Addresses of the nodes that Ray Train's workers are or were on, by Ray's job id."""
        found: dict[str, list[str]] = {}
        addresses = {each["node_id"]: each["node_ip"] for each in self._list("nodes")}
        for each in self._list("actors"):
            if each["class_name"] == TRAIN_WORKER and each["node_id"]:
                where = addresses.get(each["node_id"], each["node_id"])
                found.setdefault(each["job_id"], []).append(where)
        return found

    def reservations(self) -> list[Reservation]:
        """All placement groups that are not removed."""
        return [
            Reservation(
                job=each["creator_job_id"],
                state=each["state"],
                bundles=tuple(_bundle(one["unit_resources"]) for one in each["bundles"]),
                nodes=tuple(one["node_id"] or "" for one in each["bundles"]),
            )
            for each in self._list("placement_groups")
            if each["state"] != "REMOVED"
        ]

    def nodes(self) -> list[RayNode]:
        """All nodes that are alive, the head first."""
        found = [
            RayNode(id=each["node_id"], address=each["node_ip"], is_head=each["is_head_node"])
            for each in self._list("nodes")
            if each["state"] == "ALIVE"
        ]
        return sorted(found, key=lambda node: (not node.is_head, node.address))

    def declared(self) -> list[dict[str, Any]]:
        """What each living node offers, in the form of the output `nodes`: the head first."""
        try:
            alive = [each for each in self._list("nodes") if each["state"] == "ALIVE"]
            return [_declared(each) for each in sorted(alive, key=lambda n: not n["is_head_node"])]
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnreadableError(f"not a list of nodes: {error!r}"[:80]) from None

    def _list(self, what: str) -> list[dict[str, Any]]:
        reply = self._dashboard.get(f"/api/v0/{what}", TIMEOUT_S, detail=1, limit=LIMIT)
        data = reply["data"]
        found: list[dict[str, Any]] = data["result"]["result"] if data else []
        return found


class OneLook(ClusterState):
    """The same at one moment: each list is asked for once, and a failure stays one."""

    def __init__(self, outputs: StackOutputs) -> None:
        super().__init__(outputs)
        self._seen: dict[str, list[dict[str, Any]] | DashboardError] = {}

    def _list(self, what: str) -> list[dict[str, Any]]:
        if what not in self._seen:
            try:
                self._seen[what] = super()._list(what)
            except DashboardError as error:
                self._seen[what] = error
        if isinstance(found := self._seen[what], DashboardError):
            raise found
        return found


def _bundle(amounts: dict[str, float] | None) -> Bundle:
    # Ray gives every node a resource of its own name, to place things there.
    return {k: float(v) for k, v in (amounts or {}).items() if not k.startswith("node:")}


def _declared(node: dict[str, Any]) -> dict[str, Any]:
    offers = _bundle(node["resources_total"])
    return {
        "name": node["node_ip"],
        "cpus": offers.pop("CPU", 0),
        "gpus": offers.pop("GPU", 0),
        "memoryMib": offers.pop("memory", 0) / MIB,
        "objectStoreMib": offers.pop("object_store_memory", 0) / MIB,
        "resources": offers,
    }
