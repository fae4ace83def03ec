"""Declared nodes compared with those that a dashboard lists."""

import io
import json
from typing import Any

import pytest
import urllib3

from infra.operate.dashboard import AskError
from infra.operate.drift import ray_nodes
from trainyard.access import outputs

HEAD = {"name": "ray-head", "cpus": 0, "gpus": 0, "resources": {}}
WORKER = {"name": "ray-worker-0", "cpus": 4, "gpus": 1, "resources": {"TPU": 2}}
KNOWN = {
    outputs.NODES: [HEAD, WORKER],
    outputs.DASHBOARD_URL: "http://127.0.0.1:8265",
    outputs.RAY_TOKEN: "canary",
    outputs.SSH: {},
}


def _raylet(address: str, state: str = "ALIVE", **resources: float) -> dict[str, Any]:
    total = {"memory": 1.0, "accelerator_type:L4": 1.0, **resources}
    return {"raylet": {"nodeManagerAddress": address, "state": state, "resourcesTotal": total}}


@pytest.fixture
def answer(monkeypatch) -> Any:
    """Have the dashboard answer with a text; what it was asked is returned."""
    asked: list[dict[str, Any]] = []

    def set_answer(text: str, status: int = 200) -> list[dict[str, Any]]:
        def request(_self: Any, _method: str, url: str, **options: Any) -> Any:
            asked.append({"url": url, **options["headers"]})
            body = io.BytesIO(text.encode())
            return urllib3.HTTPResponse(body, status=status, preload_content=False)

        monkeypatch.setattr(urllib3.PoolManager, "request", request)
        return asked

    return set_answer


def _summary(*raylets: dict[str, Any]) -> str:
    return json.dumps({"data": {"summary": raylets}})


def test_nodes_that_are_as_declared(answer):
    asked = answer(
        _summary(
            _raylet("127.0.0.2"),
            _raylet("127.0.0.3", CPU=4.0, GPU=1.0, TPU=2.0),
            _raylet("127.0.0.3", state="DEAD", CPU=4.0, GPU=1.0, TPU=2.0),
        )
    )
    assert ray_nodes.differing("dev", KNOWN, None) == []
    assert asked == [
        {"url": "http://127.0.0.1:8265/nodes?view=summary", "Authorization": "Bearer canary"}
    ]


def test_a_node_that_is_missing_or_too_small_and_one_too_many(answer):
    answer(_summary(_raylet("127.0.0.2"), _raylet("10.0.0.9", CPU=8.0)))
    missing, more = ray_nodes.differing("dev", KNOWN, None)
    assert (missing.name, missing.expected) == ("ray-worker-0", "alive with CPU 4, GPU 1, TPU 2")
    assert missing.found == "alive are: 127.0.0.2 (none), 10.0.0.9 (CPU 8)"
    assert (more.name, more.found) == ("node at 10.0.0.9", "1 more with CPU 8")


def test_nodes_that_ray_starts_and_ends_need_not_be_alive(answer):
    grown = KNOWN | {outputs.NODES: [HEAD, WORKER | {"onDemand": True}, WORKER | {"name": "w"}]}
    worker = {"CPU": 4.0, "GPU": 1.0, "TPU": 2.0}
    for alive in (1, 2):
        answer(_summary(_raylet("127.0.0.2"), *[_raylet("127.0.0.3", **worker)] * alive))
        assert ray_nodes.differing("dev", grown, None) == []
    answer(_summary(_raylet("127.0.0.2")))
    (missing,) = ray_nodes.differing("dev", grown, None)
    assert missing.name == "w"
    answer(_summary(_raylet("127.0.0.2"), *[_raylet("127.0.0.3", **worker)] * 3))
    (more,) = ray_nodes.differing("dev", grown, None)
    assert more.expected == "only the nodes of the stack"


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("{}", 200, "gives no list of nodes"),
        ("<html>", 200, "gives no JSON"),
        (_summary({"raylet": {"state": "ALIVE"}}), 200, "gives no list of nodes"),
        ("no token", 401, "status 401"),
    ],
)
def test_a_dashboard_that_tells_nothing(answer, text, status, told):
    answer(text, status)
    with pytest.raises(AskError, match=told):
        ray_nodes.differing("dev", KNOWN, None)


def test_a_stack_without_nodes_is_not_asked():
    assert ray_nodes.differing("dev", {}, None) == []
