"""Reading the replies of a head's state API."""

from unittest.mock import Mock

import pytest

from trainyard.client.dashboard import Dashboard, RefusedError
from trainyard.client.state import ClusterState

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
REPLIES = {
    "actors": [ACTOR, WORKER, ACTOR | {"state": "DEAD"}],
    "placement_groups": [GROUP, GROUP | {"state": "REMOVED"}],
    "nodes": NODES,
}


@pytest.fixture
def state(stack, monkeypatch):
    def get(_, path, *__, **query):
        assert query["detail"] == 1
        found = REPLIES[path.removeprefix("/api/v0/")]
        return {"data": {"result": {"result": found}}}

    monkeypatch.setattr(Dashboard, "get", get)
    return ClusterState(stack)


def test_actors_that_live_or_wait(state):
    entrypoint, worker = state.actors()
    assert (entrypoint.submission, entrypoint.bundle) == ("raysubmit_1", {"GPU": 2.0})
    # What a worker has is counted with its reservation.
    assert (worker.submission, worker.bundle, worker.node) == ("", {}, "n1")


def test_reservations_and_nodes(state):
    (group,) = state.reservations()
    assert (group.job, group.state, group.bundles) == ("02", "PENDING", ({"CPU": 1.0},))
    assert [node.address for node in state.nodes()] == ["10.0.0.9", "10.0.0.2"]


def test_workers_were_on_nodes_that_may_be_gone(state, monkeypatch):  # D44
    ended = WORKER | {"state": "DEAD", "job_id": "02", "node_id": "n2"}
    monkeypatch.setitem(REPLIES, "actors", [ACTOR, WORKER, ended, ended | {"node_id": "n9"}])
    assert state.placed() == {"01": ["10.0.0.2"], "02": ["10.0.0.3", "n9"]}


def test_an_error_of_the_head_is_one(stack, monkeypatch):
    monkeypatch.setattr(Dashboard, "get", Mock(side_effect=RefusedError(500, "busy")))
    with pytest.raises(RefusedError, match="status 500"):
        ClusterState(stack).actors()
