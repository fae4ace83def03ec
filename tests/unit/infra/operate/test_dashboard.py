"""The way to Ray's dashboard of a stack in a cluster: by kubectl, to that stack's own Service."""

from contextlib import contextmanager

import pytest

from infra.operate import dashboard
from trainyard.access import kubectl, outputs

KNOWN = {
    outputs.DASHBOARD_URL: "http://127.0.0.1:8265",
    outputs.SSH: {},
    outputs.KUBERNETES: {
        "kubeconfig": "/config",
        "context": "lab",
        "namespace": "team",
        "services": {"8265": "lab-ray-head-svc"},
    },
}


def test_a_dashboard_in_a_cluster_is_asked_through_kubectl(monkeypatch):
    asked = []

    @contextmanager
    def forwarded(cluster, service, port):
        asked.append((cluster.context, service, port))
        raise kubectl.KubectlError("no pods")
        yield

    monkeypatch.setattr(kubectl, "forwarded", forwarded)
    way = dashboard.way(KNOWN, [])
    with pytest.raises(dashboard.AskError, match="cannot be reached: no pods"):
        dashboard.ask_dashboard(KNOWN, way, "/nodes")
    # Never the port of this machine, which may be another stack's.
    assert asked == [("lab", "lab-ray-head-svc", 8265)]
