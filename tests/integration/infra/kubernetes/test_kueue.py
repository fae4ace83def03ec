"""A stack's Ray runs when Kueue says so: the real manager, quotas and priorities."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cluster import kuberay
from tests.fakes.kubernetes import NoKubernetesError, kueue
from tests.integration.infra.kubernetes.conftest import Lab, give_to_pods, train
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

WORKERS = {"name": "cpu", "count": 1, "gpus": 0, "cpus": 1, "memoryMib": 1024}
WAITS = "waits in Kueue's queue team: couldn't assign flavors"
START_SECONDS, READY_SECONDS = 60, 200


@pytest.fixture
def manager(pytestconfig, kubernetes, kuberay) -> Iterator[None]:
    """Kueue, which takes RayClusters with a queue's label; gone afterwards with its webhooks."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            process = kueue.manager(kubernetes)
    except NoKubernetesError as error:
        pytest.skip(str(error))
    try:
        with process:
            yield
    finally:
        kubernetes.kubectl("delete", ",".join(kueue.WEBHOOKS), "--all")


def _apply(lab: Lab, *objects: dict[str, Any]) -> bool:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return bool(lab.kubectl("apply", "--server-side", "--filename=-", text=text, check=False))


def _urgent(lab: Lab) -> dict[str, Any]:
    """Another team's cluster, which needs all of the quota; its pod never runs Ray."""
    memory = {"requests": {"memory": "3Gi", "cpu": "100m"}, "limits": {"memory": "3Gi"}}
    ray = {"name": "ray", "image": "trainyard-test/base:latest", "resources": memory}
    template = {"spec": {"containers": [ray | {"command": ["sleep", "1000"]}]}}
    labels = {kuberay.QUEUE_LABEL: "team", kuberay.PRIORITY_LABEL: "urgent"}
    return {
        "apiVersion": kuberay.API_VERSION,
        "kind": kuberay.KIND,
        "metadata": {"name": "urgent", "namespace": lab.namespace, "labels": labels},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": template}},
    }


def test_a_stack_waits_for_its_quota_and_makes_room(manager, namespace, make_lab, tmp_path):
    lab: Lab = make_lab(
        namespace,
        kubernetes={"shared": {"hostPath": str(tmp_path)}, "queue": "team"},
        objectStore="directory",
        accelerator="none",
        nodeGroups=[WORKERS],
        startTimeoutSeconds=READY_SECONDS,
    )
    give_to_pods(tmp_path)
    refused = lab.stack.engine("up", "--yes", check=False)
    assert (
        "kubernetes.queue = 'team': no LocalQueue of that name" in refused.stdout + refused.stderr
    )
    none = kueue.queue(namespace, memory="1Mi")
    wait_for("Kueue's webhooks answer", lambda: _apply(lab, *none), START_SECONDS)

    def waits() -> bool:
        conditions = [
            each
            for workload in lab.get("workloads")["items"]
            for each in workload.get("status", {}).get("conditions", ())
        ]
        return any("couldn't assign" in each["message"] for each in conditions)

    with ThreadPoolExecutor() as pool:
        began = pool.submit(lab.stack.engine, "up", "--yes")
        wait_for("it waits for a quota", waits, READY_SECONDS)
        assert lab.pods("head") == {}
        assert _apply(lab, *kueue.queue(namespace, memory="3Gi"))
        up = began.result()
    assert WAITS in up.stdout + up.stderr
    # What Kueue wrote into the pods' templates is no drift.
    group = lab.get("rayclusters", lab.stack.outputs()["kubernetes"]["rayCluster"])
    (group,) = group["spec"]["workerGroupSpecs"]
    assert group["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    lab.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    outputs = lab.stack.write_outputs(tmp_path)
    # A stack of a higher class gets the quota, and this one waits until that has ended.
    assert _apply(lab, _urgent(lab))
    wait_for("it makes room", lambda: not lab.pods("head").keys() - {"x"}, READY_SECONDS)
    lab.kubectl("delete", "raycluster", "urgent")
    lab.stack.engine("up", "--yes")
    assert "ALIVE" in train(lab, outputs, "status")
    lab.stack.engine("destroy", "--yes")
