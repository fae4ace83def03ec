"""The actors, reservations and nodes that the cluster's head knows, by the dashboard's API."""

from dataclasses import dataclass
from typing import Any

from trainyard.client import fields
from trainyard.client.dashboard import Dashboard, UnreadableError
from trainyard.client.outputs import StackOutputs
from trainyard.packing import MIB, Bundle

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
    """A node."""

    id: str
    address: str
    is_head: bool
    alive: bool = True


class ClusterState:
    """Reads the state API of a stack's head; every method may raise a DashboardError."""

    def __init__(self, outputs: StackOutputs) -> None:
        self._dashboard = Dashboard(outputs)

    def actors(self) -> list[Actor]:
        """All actors that are not dead."""
        found = fields.decoded(self._list("actors"), _actor)
        return [actor for actor in found if actor.state != "DEAD"]

    def placed(self) -> dict[str, list[str]]:
        """Addresses of the nodes that Ray Train's workers are or were on, by Ray's job id."""
        found: dict[str, list[str]] = {}
        nodes = fields.decoded(self._list("nodes"), _node)
        addresses = {node.id: node.address for node in nodes}
        for actor in fields.decoded(self._list("actors"), _actor):
            if actor.kind == TRAIN_WORKER and actor.node:
                where = addresses.get(actor.node, actor.node)
                found.setdefault(actor.job, []).append(where)
        return found

    def reservations(self) -> list[Reservation]:
        """All placement groups that are not removed."""
        found = fields.decoded(self._list("placement_groups"), _reservation)
        return [group for group in found if group.state != "REMOVED"]

    def nodes(self) -> list[RayNode]:
        """All nodes that are alive, the head first."""
        found = [node for node in fields.decoded(self._list("nodes"), _node) if node.alive]
        return sorted(found, key=lambda node: (not node.is_head, node.address))

    def declared(self) -> list[dict[str, Any]]:
        """What each living node offers, in the form of the output `nodes`: the head first."""
        found = [each for each in fields.decoded(self._list("nodes"), _declared) if each[0].alive]
        if not found:
            raise UnreadableError("not a list of nodes")
        return [offers for _, offers in sorted(found, key=lambda each: not each[0].is_head)]

    def _list(self, what: str) -> list[dict[str, Any]]:
        reply = self._dashboard.get(f"/api/v0/{what}", TIMEOUT_S, detail=1, limit=LIMIT)
        try:
            data = fields.typed(reply, "data", dict)
            return fields.typed(fields.typed(data, "result", dict), "result", list) if data else []
        except fields.FieldError as error:
            raise UnreadableError(f"no list of {what}: {error}") from None


def _actor(value: Any) -> Actor:
    placed = fields.typed(value, "placement_group_id", str)
    return Actor(
        id=fields.typed(value, "actor_id", str),
        kind=fields.typed(value, "class_name", str),
        name=fields.typed(value, "name", str),
        job=fields.typed(value, "job_id", str),
        pid=int(fields.amount(value, "pid")),
        node=fields.typed(value, "node_id", str),
        state=fields.typed(value, "state", str),
        bundle={} if placed else fields.bundle(value["required_resources"]),
    )


def _reservation(value: Any) -> Reservation:
    bundles = fields.typed(value, "bundles", list)
    return Reservation(
        job=fields.typed(value, "creator_job_id", str),
        state=fields.typed(value, "state", str),
        bundles=tuple(fields.bundles([one["unit_resources"] for one in bundles])),
        nodes=tuple(fields.typed(one, "node_id", str) for one in bundles),
    )


def _node(value: Any) -> RayNode:
    return RayNode(
        id=fields.typed(value, "node_id", str),
        address=fields.identifier(value, "node_ip"),
        is_head=fields.typed(value, "is_head_node", bool),
        alive=fields.typed(value, "state", str) == "ALIVE",
    )


def _declared(value: Any) -> tuple[RayNode, dict[str, Any]]:
    node, offers = _node(value), fields.bundle(value["resources_total"])
    return node, {
        "name": node.address,
        "cpus": offers.pop("CPU", 0),
        "gpus": offers.pop("GPU", 0),
        "memoryMib": offers.pop("memory", 0) / MIB,
        "objectStoreMib": offers.pop("object_store_memory", 0) / MIB,
        "resources": offers,
    }
