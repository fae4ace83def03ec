"""A stack's Ray runs when Kueue says so, and its jobs by the stack's own queue: all of it real."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cluster import kuberay
from cluster.kuberay_pods import STOP_SECONDS
from tests.fakes.kubernetes import kueue
from tests.integration.infra import drained, queued
from tests.integration.infra.kubernetes.conftest import (
    Lab,
    give_to_pods,
    shown,
    start_train,
    train,
)
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parents[4]
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

# Their pods have 4 GiB, which Go writes so, and not as MiB.
WORKERS = {"name": "cpu", "count": 2, "gpus": 0, "cpus": 1, "memoryMib": 1101}
WAITS = "waits in Kueue's queue team: couldn't assign flavors"
START_SECONDS, READY_SECONDS = 60, 300
MEMORY = "12Gi"  # what the stack's Ray needs, and a little more


@pytest.fixture
def manager(pytestconfig, kubernetes, kuberay) -> Iterator[None]:
    """Kueue, which takes RayClusters with a queue's label; gone afterwards with its webhooks."""
    try:
        with shown(pytestconfig, lambda: kueue.manager(kubernetes)):
            yield
    finally:
        kubernetes.kubectl("delete", ",".join(kueue.WEBHOOKS), "--all")


def _apply(lab: Lab, *objects: dict[str, Any]) -> bool:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return bool(lab.kubectl("apply", "--server-side", "--filename=-", text=text, check=False))


def _urgent(lab: Lab) -> dict[str, Any]:
    """Another team's cluster, which needs all of the quota; its pod never runs Ray."""
    memory = {"requests": {"memory": MEMORY, "cpu": "100m"}, "limits": {"memory": MEMORY}}
    ray = {"name": "ray", "image": "trainyard-test/base:latest", "resources": memory}
    template = {"spec": {"containers": [ray | {"command": ["sleep", "1000"]}]}}
    labels = {kuberay.QUEUE_LABEL: "team", kuberay.PRIORITY_LABEL: "urgent"}
    return {
        "apiVersion": kuberay.API_VERSION,
        "kind": kuberay.KIND,
        "metadata": {"name": "urgent", "namespace": lab.namespace, "labels": labels},
        "spec": {"headGroupSpec": {"rayStartParams": {}, "template": template}},
    }


def _told(lab: Lab) -> str:
    """All that Kueue says of what waits."""
    found = lab.get("workloads")["items"]
    return str([each.get("status", {}).get("conditions") for each in found])


def test_a_stack_waits_for_its_quota_and_its_run_goes_on_after_it_made_room(
    manager, namespace, make_lab, tmp_path
):
    (faults := tmp_path / "faults").mkdir()
    (faults / queued.HELD).touch()
    give_to_pods(faults)
    mine = {"name": "faults", "path": str(faults), "mount": "/data/faults", "readOnly": False}
    lab: Lab = make_lab(
        namespace,
        kubernetes={"queue": "team"},
        accelerator="none",
        nodeGroups=[WORKERS],
        queue=True,
        volumes=[mine],
        startTimeoutSeconds=READY_SECONDS,
    )
    refused = lab.stack.engine("up", "--yes", check=False)
    assert (
        "kubernetes.queue = 'team': no LocalQueue of that name" in refused.stdout + refused.stderr
    )
    none = kueue.queue(namespace, memory="1Mi")
    wait_for("Kueue's webhooks answer", lambda: _apply(lab, *none), START_SECONDS)
    with ThreadPoolExecutor() as pool:
        began = pool.submit(lab.stack.engine, "up", "--yes")
        wait_for("it waits for a quota", lambda: "couldn't assign" in _told(lab), READY_SECONDS)
        assert lab.pods("head") == {}
        assert _apply(lab, *kueue.queue(namespace, memory=MEMORY))
        up = began.result()
    assert WAITS in up.stdout + up.stderr
    # An `up` does not take what Kueue wrote into the pods' templates for a change by hand.
    (cluster,) = lab.get("rayclusters")["items"]
    (group,) = cluster["spec"]["workerGroupSpecs"]
    assert group["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert group["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "4Gi"
    lab.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    outputs = lab.stack.write_outputs(tmp_path)
    held = ("--env", "TINY_FAULTS=/data/faults", "--", "--epochs", "4")
    train(lab, outputs, *queued.SUBMIT, "first", *held)
    wait_for("the run holds", lambda: not any(faults.iterdir()), READY_SECONDS)
    # A cluster of a higher class gets the quota, and this one waits until that has ended.
    assert _apply(lab, _urgent(lab))
    wait_for("the stack makes room", lambda: WAITS in lab.stack.drift().stdout, READY_SECONDS)
    lab.kubectl("delete", "raycluster", "urgent")

    goes_on = partial(train, lab, outputs, "list")
    wait_for("the run goes on", lambda: "SUCCEEDED" in goes_on(), READY_SECONDS)
    (run,) = json.loads(train(lab, outputs, "runs", "--json"))
    assert run["epochs"] == "4/4"
    _drain_a_pod(lab, outputs, faults / "steps")
    lab.stack.engine("destroy", "--yes")


def _drain_a_pod(lab: Lab, outputs: Path, steps: Path) -> None:
    """End a pod in order: its run goes on, although neither it nor its job may fail once.

    A step takes longer than a pod without a drain has to end.
    """
    submit = ("submit", drained.__file__, "--name", "drained", "--retries", "0")
    slow = ("--step-seconds", str(2 * STOP_SECONDS), "--epochs", "2")
    there = ("--working-dir", str(ROOT), "--", "--steps", f"/data/faults/{steps.name}", *slow)
    job = start_train(lab, outputs, *submit, *there)
    try:
        wait_for("a step", steps.exists, READY_SECONDS)
        lab.kubectl("delete", "pod", min(lab.pods("worker")))  # until it is gone
        steps.with_name(f"{steps.name}.go").touch()
        said, _ = job.communicate(timeout=READY_SECONDS)
    finally:
        job.kill()
    assert job.returncode == 0, said[-4000:]
    assert "Notice: a node of this run is to go" in said
