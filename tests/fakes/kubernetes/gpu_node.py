"""A node with GPUs that does not exist: an object of the API, and a loop that plays its kubelet.

The scheduler places pods on it by their requests. Nothing runs in them: they are Ready at once,
and gone once they are deleted. Runs by `python -m tests.fakes.kubernetes.gpu_node KUBECONFIG`.
"""

import datetime
import sys
import time
import traceback
from typing import Any

import httpx2
import lightkube
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from tests.fakes import kubernetes
from tests.fakes.kubernetes.process import Process

NAME = "gpu1"
GPUS = 8
AMOUNTS = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
# As on real nodes: only pods that tolerate it come here.
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
POLL_SECONDS = 0.5
TIMEOUT_SECONDS = 60.0
ADDRESSES = "10.245.0"  # of unreachable pods
CONFLICT, NOT_FOUND = 409, 404


def process(node: kubernetes.Node) -> Process:
    """Return the loop of a cluster's GPU node; it is not started yet."""
    return Process([sys.executable, "-m", __name__, node.kubeconfig], node.folder / "log" / NAME)


def main(kubeconfig: str) -> None:
    """Make the node, and play its kubelet until the process is ended."""
    config = lightkube.KubeConfig.from_file(kubeconfig).get()
    timeout = httpx2.Timeout(TIMEOUT_SECONDS)
    client = lightkube.Client(config=config, field_manager="fake-kubelet", timeout=timeout)
    try:
        client.create(Node.from_dict(_node()))
    except ApiError as error:
        if error.status.code != CONFLICT:
            raise
    while True:
        try:
            client.patch(Node.Status, NAME, _alive(), patch_type=PatchType.STRATEGIC)
            for number, pod in enumerate(
                client.list(Pod, namespace="*", fields={"spec.nodeName": NAME})
            ):
                _play(client, pod, f"{ADDRESSES}.{number % 250 + 2}")
        except (ApiError, httpx2.HTTPError):
            traceback.print_exc()
        time.sleep(POLL_SECONDS)


def _node() -> dict[str, Any]:
    return {
        "metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME, **PRODUCT}},
        "spec": {"taints": [TAINT]},
    }


def _alive() -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "Fake", "lastHeartbeatTime": _now()}
    return {"status": {"capacity": AMOUNTS, "allocatable": AMOUNTS, "conditions": [ready]}}


def _play(client: lightkube.Client, pod: Any, address: str) -> None:
    name, namespace = pod.metadata.name, pod.metadata.namespace
    try:
        if pod.metadata.deletionTimestamp:
            client.delete(Pod, name, namespace=namespace, grace_period=0)
        elif pod.status.phase == "Pending":
            client.patch(
                Pod.Status,
                name,
                {"status": _running(pod, address)},
                namespace=namespace,
                patch_type=PatchType.STRATEGIC,
            )
    except ApiError as error:
        if error.status.code != NOT_FOUND:  # it is gone already
            raise


def _running(pod: Any, address: str) -> dict[str, Any]:
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    conditions = ("Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "podIP": address,
        "startTime": _now(),
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": _now()} for kind in conditions
        ],
        "initContainerStatuses": [_status(one, done) for one in pod.spec.initContainers or []],
        "containerStatuses": [
            _status(one, {"running": {"startedAt": _now()}}) for one in pod.spec.containers
        ],
    }


def _status(container: Any, state: dict[str, Any]) -> dict[str, Any]:
    about = {"name": container.name, "image": container.image, "imageID": ""}
    return {**about, "ready": True, "restartCount": 0, "state": state}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main(sys.argv[1])
