"""A cluster that is a dictionary: what lightkube sends is answered as an API server would."""

import json
import re
from collections.abc import Callable
from typing import Any

import httpx2
import lightkube
import pytest
import yaml

from infra.places.kubernetes import api
from trainyard.access.kubectl import Cluster

PATH = re.compile(r"/namespaces/(?P<namespace>[^/]+)(/(?P<plural>[^/]+)(/(?P<name>[^/]+))?)?$")
MERGE = "application/merge-patch+json"


class FakeCluster:
    """Objects by plural and name, and what was asked.

    Attributes:
        objects: by (plural, name).
        refuse: answers in the place of an apply; None takes it.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.applied: list[tuple[str, bool]] = []
        self.refuse: Callable[[dict[str, Any]], tuple[int, str] | None] = lambda _: None
        self.deleted: list[str] = []
        self.allowed: Callable[[dict[str, Any]], bool] = lambda _: True
        self.stays = False

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        path = request.url.path
        if path.endswith("/selfsubjectaccessreviews"):
            asked = json.loads(request.content)["spec"]["resourceAttributes"]
            return _reply(201, {"status": {"allowed": self.allowed(asked)}})
        found = PATH.search(path)
        if path == "/apis/apps/v1/deployments":  # of all namespaces
            return self._list("deployments")
        if found is None:
            return self._get(tuple(path.rsplit("/", 2)[1:]))
        if found["plural"] is None:
            return self._get(("namespaces", found["namespace"]))
        assert found["namespace"] == "team", path
        if found["name"] is None:
            return self._list(found["plural"], request.url.params.get("fieldSelector", ""))
        return self._on((found["plural"], found["name"]), request)

    def _on(self, key: tuple[str, str], request: httpx2.Request) -> httpx2.Response:
        if request.method == "PATCH" and request.headers["content-type"] != MERGE:
            return self._apply(key, request)
        if request.method == "PATCH":
            merge(self.objects[key], json.loads(request.content))
        elif request.method == "DELETE":
            self.deleted.append(key[1])
            if not self.stays:
                self.objects.pop(key, None)
            return _reply(200, {"kind": "Status", "status": "Success"})
        return self._get(key)

    def _list(self, plural: str, fields: str = "") -> httpx2.Response:
        items = [each for (kind, _), each in self.objects.items() if kind == plural]
        if fields:
            items = [each for each in items if fields == f"involvedObject.uid={_object(each)}"]
        return _reply(200, {"items": items, "metadata": {}})

    def _get(self, key: Any) -> httpx2.Response:
        if key not in self.objects:
            return _reply(404, {"kind": "Status", "code": 404, "message": "not found"})
        return _reply(200, self.objects[key])

    def _apply(self, key: Any, request: httpx2.Request) -> httpx2.Response:
        wanted, dry = json.loads(request.content), "dryRun" in request.url.params
        if refusal := self.refuse(wanted):
            code, message = refusal
            return _reply(code, {"kind": "Status", "code": code, "message": message})
        self.applied.append((key[1], dry))
        live = json.loads(json.dumps(self.objects.get(key, {})))
        version = live.get("metadata", {}).get("resourceVersion", "0")
        merge(live, wanted)
        live["metadata"] |= {"resourceVersion": str(int(version) + 1), "uid": f"uid-{key[1]}"}
        if not dry:
            self.objects[key] = live
        return _reply(200, live)


def merge(live: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Take over fields; None removes one."""
    for key, value in wanted.items():
        if isinstance(value, dict) and isinstance(live.get(key), dict):
            merge(live[key], value)
        elif value is None:
            live.pop(key, None)
        else:
            live[key] = value


def _object(event: dict[str, Any]) -> str:
    return str(event["involvedObject"]["uid"])


def _reply(code: int, body: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(code, json=body)


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://192.0.2.1"}}],
                "users": [{"name": "u", "user": {"token": "not-a-secret"}}],
                "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return Cluster(kubeconfig=str(path), context="lab", namespace="team")


@pytest.fixture
def fake(monkeypatch) -> FakeCluster:
    found = FakeCluster()
    found.objects["namespaces", "kube-system"] = {"metadata": {"uid": "cluster-1"}}
    client = lightkube.Client

    def connect(**options: Any) -> lightkube.Client:
        return client(**options, transport=httpx2.MockTransport(found.answer))

    monkeypatch.setattr(lightkube, "Client", connect)
    api.open_api.cache_clear()
    yield found
    api.open_api.cache_clear()
