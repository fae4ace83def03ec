"""A stand-in for KubeRay's operator: nothing that runs with it was tested with KubeRay itself.

It follows the operator's source (1.7) for a RayCluster: what is made, what is deleted, and the
status. Traps are followed too: `state` stays `ready` when pods are lost or the spec changes,
`observedGeneration` is written only with another change of the status, and the head's service keeps
the ports that it was made with. Runs by `python -m tests.fakes.kubernetes.kuberay KUBECONFIG`.
"""

import contextlib
import datetime
import hashlib
import sys
import time
import traceback
from typing import Any

import httpx2
import lightkube
from lightkube import codecs
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import Pod
from lightkube.resources.events_v1 import Event
from lightkube.types import PatchType

from tests.fakes.kubernetes import kuberay_pods as pods
from tests.fakes.kubernetes.kuberay_pods import Manifest

RayCluster = create_namespaced_resource("ray.io", "v1", "RayCluster", "rayclusters")
NAME = "kuberay-operator"
POLL_SECONDS = 1.0
TIMEOUT_SECONDS = 60.0
CONFLICT, NOT_FOUND = 409, 404
GENERATION = "observedGeneration"


class _FailedError(Exception):
    """A pod could not be made or deleted; the condition ReplicaFailure says why."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def main(kubeconfig: str) -> None:
    """Look after all RayClusters, until the process is ended."""
    config = lightkube.KubeConfig.from_file(kubeconfig).get()
    timeout = httpx2.Timeout(TIMEOUT_SECONDS)
    client = lightkube.Client(config=config, field_manager=NAME, timeout=timeout)
    while True:
        try:
            for cluster in client.list(RayCluster, namespace="*"):
                if not cluster.metadata.deletionTimestamp:
                    _reconcile(client, _plain(cluster))
        except (ApiError, httpx2.HTTPError):
            traceback.print_exc()  # as the operator does: it tries again
        time.sleep(POLL_SECONDS)


def _reconcile(client: lightkube.Client, cluster: Manifest) -> None:
    failure = None
    suspended = bool(cluster["spec"].get("suspend"))
    try:
        if cluster["spec"].get("enableInTreeAutoscaling"):
            for manifest in pods.rights(cluster):
                _create(client, manifest)
        _create(client, pods.head_service(cluster))
        found = _pods(client, cluster)
        head = [pod for pod in found if _type(pod) == pods.HEAD]
        if suspended or (head and _is_outdated(cluster, head[0])):
            _delete(client, found)
        else:
            _head(client, cluster, head)
            for group in cluster["spec"].get("workerGroupSpecs", []):
                _workers(
                    client,
                    cluster,
                    group,
                    [pod for pod in found if _group(pod) == group["groupName"]],
                )
    except _FailedError as error:
        failure = error
    _tell(client, cluster, _pods(client, cluster), failure, suspended=suspended)


def _is_outdated(cluster: Manifest, head: Any) -> bool:
    """Return whether a head is of another spec, where that is to replace all pods."""
    if (cluster["spec"].get("upgradeStrategy") or {}).get("type") != "Recreate":
        return False
    noted = (head.metadata.annotations or {}).get(pods.HASH)
    return bool(noted) and noted != pods.spec_hash(cluster["spec"])


def _head(client: lightkube.Client, cluster: Manifest, head: list[Any]) -> None:
    if not head:
        _create_pod(client, cluster, pods.head_pod(cluster), "Head")
    elif _is_done(head[0]):
        _delete(client, head)
        raise _FailedError("", f"the head {head[0].metadata.name} has ended")


def _workers(
    client: lightkube.Client, cluster: Manifest, group: Manifest, found: list[Any]
) -> None:
    if group.get("suspend"):
        _delete(client, found)
        return
    if done := [pod for pod in found if _is_done(pod)]:
        _delete(client, done)
        raise _FailedError("", f"{len(done)} workers of {group['groupName']} have ended")
    doomed = set((group.get("scaleStrategy") or {}).get("workersToDelete") or [])
    _delete(client, [pod for pod in found if pod.metadata.name in doomed])
    kept = [pod for pod in found if pod.metadata.name not in doomed]
    missing = pods.desired(group) - len(kept)
    for _ in range(missing):
        _create_pod(client, cluster, pods.worker_pod(cluster, group), "Worker")
    if missing < 0 and not cluster["spec"].get("enableInTreeAutoscaling"):
        _delete(client, kept[:-missing])  # any; where it grows, the autoscaler alone decides


def _is_done(pod: Any) -> bool:
    """Return whether a pod will not run again."""
    if pod.status.phase in {"Failed", "Succeeded"}:
        return True
    states = {status.name: status.state for status in pod.status.containerStatuses or []}
    ray = states.get(pod.spec.containers[0].name)
    return bool(ray and ray.terminated) and pod.spec.restartPolicy == "Never"


def _tell(
    client: lightkube.Client,
    cluster: Manifest,
    found: list[Any],
    failure: _FailedError | None,
    *,
    suspended: bool,
) -> None:
    """Write the status if more of it differs than the generation that was looked at."""
    old = cluster.get("status") or {}
    groups = cluster["spec"].get("workerGroupSpecs", [])
    head = next((pod for pod in found if _type(pod) == pods.HEAD), None)
    workers = [pod for pod in found if _type(pod) == pods.WORKER]
    wanted = sum(pods.desired(group) for group in groups)
    all_ready = bool(found) and all(_is_ready(pod) for pod in found)
    status = {
        GENERATION: cluster["metadata"]["generation"],
        "desiredWorkerReplicas": wanted,
        "minWorkerReplicas": sum(group.get("minReplicas", 0) for group in groups),
        "maxWorkerReplicas": sum(group.get("maxReplicas", 0) for group in groups),
        "availableWorkerReplicas": sum(pod.status.phase == "Running" for pod in workers),
        "readyWorkerReplicas": sum(_is_ready(pod) for pod in workers),
        "head": {
            "podIP": (head.status.podIP or "") if head else "",
            "podName": head.metadata.name if head else "",
            "serviceIP": (head.status.podIP or "") if head else "",
            "serviceName": pods.service_name(cluster),
        },
    }
    state = old.get("state", "")
    if failure is None and len(found) == wanted + 1 and all_ready:
        state = "ready"
    if suspended and not found:
        state = "suspended"
    if state:
        status["state"] = state
    status["conditions"] = _conditions(old, head, failure, all_ready=all_ready, state=state)
    if any(old.get(name) != value for name, value in status.items() if name != GENERATION):
        name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
        with _unless(NOT_FOUND):
            client.patch(
                RayCluster.Status,
                name,
                {"status": {**status, "lastUpdateTime": _now()}},
                namespace=namespace,
                patch_type=PatchType.MERGE,
            )
            _say(f"{namespace}/{name}: {status}")


def _conditions(
    old: Manifest, head: Any, failure: _FailedError | None, *, all_ready: bool, state: str
) -> list[Manifest]:
    before = {each["type"]: each for each in old.get("conditions") or []}
    ready = head is not None and _is_ready(head)
    reason = "HeadPodRunningAndReady" if ready else "ContainersNotReady"
    if head is None:
        reason = "HeadPodNotFound"
    found = {"HeadPodReady": ("True" if ready else "False", reason, "")}
    was = before.get("RayClusterProvisioned", {}).get("status") == "True"
    if state == "suspended":
        found["RayClusterSuspended"] = ("True", "RayClusterSuspended", "")
        was = all_ready = False
    found["RayClusterProvisioned"] = (
        ("True", "AllPodRunningAndReadyFirstTime", "All Ray Pods are ready for the first time")
        if was or all_ready
        else ("False", "RayClusterPodsProvisioning", "RayCluster Pods are being provisioned")
    )
    if failure and failure.reason:
        found["ReplicaFailure"] = ("True", failure.reason, str(failure))
    conditions = []
    for kind, (status, why, message) in found.items():
        last = before.get(kind, {})
        changed = _now() if last.get("status") != status else last["lastTransitionTime"]
        told = {"type": kind, "status": status, "reason": why, "message": message}
        conditions.append({**told, "lastTransitionTime": changed})
    return conditions


def _create_pod(client: lightkube.Client, cluster: Manifest, pod: Manifest, kind: str) -> None:
    try:
        made = client.create(Pod.from_dict(pod))
    except ApiError as error:
        if error.status.code == CONFLICT:
            return
        message = (
            f"Failed to create {kind.lower()} Pod {pod['metadata']['namespace']}/"
            f"{pod['metadata'].get('name', '')}, {error.status.message}"
        )
        _event(client, cluster, f"FailedToCreate{kind}Pod", message)
        raise _FailedError(f"FailedCreate{kind}Pod", message) from None
    _say(f"created {made.metadata.namespace}/{made.metadata.name}")


def _event(client: lightkube.Client, cluster: Manifest, reason: str, message: str) -> None:
    """Tell what went wrong, each thing once."""
    about = cluster["metadata"]
    digest = hashlib.sha1((about["uid"] + message).encode()).hexdigest()[:10]
    event = {
        "metadata": {"name": f"{about['name']}.{digest}", "namespace": about["namespace"]},
        "eventTime": f"{_now()[:-1]}.000001Z",  # a fraction of zero would not be sent, but has to
        "type": "Warning",
        "reason": reason,
        "action": "Create",
        "note": message[:1024],
        "reportingController": NAME,
        "reportingInstance": NAME,
        "regarding": {
            "apiVersion": cluster["apiVersion"],
            "kind": cluster["kind"],
            "name": about["name"],
            "namespace": about["namespace"],
            "uid": about["uid"],
        },
    }
    with _unless(CONFLICT):
        client.create(Event.from_dict(event))


def _create(client: lightkube.Client, manifest: Manifest) -> None:
    with _unless(CONFLICT):
        client.create(codecs.from_dict(manifest))


def _delete(client: lightkube.Client, doomed: list[Any]) -> None:
    for pod in doomed:
        if pod.metadata.deletionTimestamp:
            continue
        with _unless(NOT_FOUND):
            client.delete(Pod, pod.metadata.name, namespace=pod.metadata.namespace)
            _say(f"deleted {pod.metadata.namespace}/{pod.metadata.name}")


def _pods(client: lightkube.Client, cluster: Manifest) -> list[Any]:
    about = cluster["metadata"]
    labels = {"ray.io/cluster": about["name"]}
    return list(client.list(Pod, namespace=about["namespace"], labels=labels))


def _type(pod: Any) -> str:
    return str(pod.metadata.labels["ray.io/node-type"])


def _group(pod: Any) -> str:
    return str(pod.metadata.labels["ray.io/group"])


def _is_ready(pod: Any) -> bool:
    return pod.status.phase == "Running" and any(
        each.type == "Ready" and each.status == "True" for each in pod.status.conditions or []
    )


def _plain(resource: Any) -> Manifest:
    found: Manifest = resource.to_dict()
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", **found}


@contextlib.contextmanager
def _unless(code: int) -> Any:
    """Let an answer of the API pass that says that there is nothing to do."""
    try:
        yield
    except ApiError as error:
        if error.status.code != code:
            raise


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _say(text: str) -> None:
    sys.stdout.write(f"{_now()} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
