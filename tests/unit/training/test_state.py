"""Reading the replies of a head's state API."""

from __future__ import annotations

from typing import Any

import pytest
import requests

from training.client.outputs import StackOutputs
from training.client.state import ClusterState

ACTOR = {
    "actor_id": "a1",
    "class_name": "JobSupervisor",
    "name": "_ray_internal_job_actor_raysubmit_1",
    "job_id": "01",
    "pid": 7,
    "node_id": None,
    "state": "PENDING_CREATION",
    "placement_group_id": None,
    "required_resources": {"GPU": 2.0, "node:__internal_head__": 0.001},
}
WORKER = ACTOR | {
    "class_name": "RayTrainWorker",
    "name": None,
    "node_id": "n1",
    "state": "ALIVE",
    "placement_group_id": "p1",
    "required_resources": {"CPU_group_0_p1": 1.0},
}
GROUP = {
    "creator_job_id": "02",
    "state": "PENDING",
    "bundles": [{"unit_resources": {"CPU": 1.0}, "node_id": None}],
}
NODES = [
    {"node_id": "n1", "node_ip": "10.0.0.2", "is_head_node": False, "state": "ALIVE"},
    {"node_id": "n0", "node_ip": "10.0.0.9", "is_head_node": True, "state": "ALIVE"},
    {"node_id": "n2", "node_ip": "10.0.0.3", "is_head_node": False, "state": "DEAD"},
]
REPLIES: dict[str, list[Any]] = {
    "actors": [ACTOR, WORKER, ACTOR | {"state": "DEAD"}],
    "placement_groups": [GROUP, GROUP | {"state": "REMOVED"}],
    "nodes": NODES,
}


@pytest.fixture
def state(stack: StackOutputs, monkeypatch: pytest.MonkeyPatch) -> ClusterState:
    def get(session: requests.Session, url: str, **_: Any) -> Any:
        assert session.headers["Authorization"] == f"Bearer {stack.ray_token}"
        reply = requests.Response()
        reply.status_code = 200
        found = REPLIES[url.rpartition("/api/v0/")[2]]
        monkeypatch.setattr(reply, "json", lambda: {"data": {"result": {"result": found}}})
        return reply

    monkeypatch.setattr(requests.Session, "get", get)
    return ClusterState(stack)


def test_actors_that_live_or_wait(state: ClusterState) -> None:
    entrypoint, worker = state.actors()
    assert (entrypoint.submission, entrypoint.bundle) == ("raysubmit_1", {"GPU": 2.0})
    # What a worker has is counted with its reservation.
    assert (worker.submission, worker.bundle, worker.node) == ("", {}, "n1")


def test_reservations_and_nodes(state: ClusterState) -> None:
    (group,) = state.reservations()
    assert (group.job, group.state, group.bundles) == ("02", "PENDING", ({"CPU": 1.0},))
    assert [node.address for node in state.nodes()] == ["10.0.0.9", "10.0.0.2"]


def test_an_error_of_the_head_is_one(stack: StackOutputs, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = requests.Response()
    reply.status_code = 500
    monkeypatch.setattr(requests.Session, "get", lambda *_, **__: reply)
    with pytest.raises(requests.HTTPError):
        ClusterState(stack).actors()
