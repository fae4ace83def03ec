"""Checks a cluster for a stack's needs before anything is declared, also in a preview."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from lightkube.core.exceptions import ApiError

from cluster import kuberay
from infra.places.kubernetes.api import (
    CRD,
    DEPLOYMENT,
    FORBIDDEN,
    KINDS,
    NAMESPACE,
    OF_TIMER,
    PRIORITY_CLASS,
    Api,
    KubernetesError,
    explained,
    open_api,
    unless,
)
from trainyard.access.kubectl import Cluster

CRD_NAME = "rayclusters.ray.io"
# The Deployment of its operator: by its Helm chart, and by its kustomization.
OPERATOR = {"app.kubernetes.io/name": ["kuberay-operator", "kuberay"]}
TAG = re.compile(r"operator:v?(\d+)\.(\d+)\.(\d+)")  # of its image; other tags tell no version
KUBERAY = "1.7.0"
# renovate: datasource=helm depName=kuberay-operator registryUrl=https://ray-project.github.io/kuberay-helm
HELM = (
    "helm repo add kuberay https://ray-project.github.io/kuberay-helm/",
    "helm repo update",
    f"helm upgrade --install kuberay-operator kuberay/kuberay-operator --version {KUBERAY}",
)
# Helm never updates an existing CRD; the file is too long for kubectl's annotation.
UPDATE_CRDS = (
    "kubectl apply --server-side --force-conflicts -k "
    f'"github.com/ray-project/kuberay/ray-operator/config/crd?ref=v{KUBERAY}"'
)
VERBS = ("get", "create", "patch", "delete")
PARALLEL = 8
_ASKED: ContextVar[bool] = ContextVar("asked", default=True)


@contextlib.contextmanager
def unasked() -> Iterator[None]:
    """Have the program ask no cluster: its declarations are only recorded."""
    token = _ASKED.set(False)
    try:
        yield
    finally:
        _ASKED.reset(token)


def check(cluster: Cluster, *, grows: bool, gcs: int, ends: bool, queue: str, priority: str) -> str:
    """Return an id of the cluster; "" while none is asked.

    `gcs` is the port of Ray's head. A stack needs more if it grows, if a timer ends its pods, or
    if it names a queue and a priority class of Kueue.

    Raises:
        KubernetesError: a stack cannot be there; the message lists all faults.
    """
    if not _ASKED.get():
        return ""
    api = open_api(cluster)
    uid = api.uid()  # does it answer at all
    port = gcs if kuberay.tells_port(grows=grows, gcs=gcs) else 0
    faults = [*_namespace(api), *_crd(api, port), *_operator(api, port), *_rights(api, ends)]
    faults += _kueue(api, queue, priority)
    if faults:
        lines = "\n".join(f"  - {fault}" for fault in faults)
        raise KubernetesError(f"A stack cannot be in {cluster.name}:\n{lines}")
    return uid


def _namespace(api: Api) -> Iterator[str]:
    name = api.cluster.namespace
    with explained(f"namespace {name}", api.cluster):
        try:
            found = api.of_cluster(NAMESPACE, "Namespace", name)
        except ApiError as error:
            if error.status.code != FORBIDDEN:
                raise
            return  # a user who may not look at it may still use it
    if found is None:
        yield (
            f"namespace {name} does not exist: kubectl --context {api.cluster.context} create "
            f"namespace {name}; or name another one as kubernetes.namespace"
        )
    elif (found.get("status") or {}).get("phase") == "Terminating":
        yield f"namespace {name} is being deleted: wait for its end, or name another one"


def _crd(api: Api, port: int) -> Iterator[str]:
    """Yield the faults of KubeRay's CRD; port 0 need not be told to the autoscaler."""
    helm = "; ".join(HELM)
    with explained("KubeRay's CRD", api.cluster):
        try:
            found = api.of_cluster(CRD, "CustomResourceDefinition", CRD_NAME)
        except ApiError as error:
            if error.status.code != FORBIDDEN:
                raise
            return  # the refusal of the RayCluster then tells what is missing
    if found is None:
        yield f"KubeRay's operator is not installed (no CRD {CRD_NAME}): {helm}"
        return
    served = (each for each in found["spec"]["versions"] if each.get("served"))
    version = next((each for each in served if each["name"] == "v1"), None)
    if version is None:
        yield f"KubeRay's CRD {CRD_NAME} has no version v1: it is too old. {UPDATE_CRDS}; {helm}"
        return
    schema = version["schema"]["openAPIV3Schema"]
    missing = [".".join(path) for path in kuberay.NEEDED if not _has(schema, path)]
    if missing:
        yield (
            f"KubeRay's CRD {CRD_NAME} is too old, it lacks {', '.join(missing)}: a stack needs "
            f"KubeRay {kuberay.OLDEST} or later. {UPDATE_CRDS}; {helm}"
        )
    elif port and not _has(schema, kuberay.ARGS):
        yield (
            f"KubeRay's CRD {CRD_NAME} lacks {'.'.join(kuberay.ARGS)}, without which Ray's "
            f"autoscaler does not find the head at gcsPort = {port}: {_other_port()}. "
            f"{UPDATE_CRDS}; {helm}"
        )


def _other_port() -> str:
    return f"set gcsPort to {kuberay.GCS_PORT}, or update KubeRay to {kuberay.ARGS_SINCE} or later"


def _operator(api: Api, port: int) -> Iterator[str]:
    """Yield operators that are too old for the CRD: they ignore fields that they do not know.

    Helm never updates CRDs, and a user who does so by hand may forget the operator. One that this
    user may not see, or whose image does not tell its version, is skipped.
    """
    with explained("KubeRay's operator", api.cluster):
        found = unless(FORBIDDEN, lambda: api.everywhere(DEPLOYMENT, "Deployment", OPERATOR))
    oldest = kuberay.ARGS_SINCE if port else kuberay.OLDEST
    what = f"gcsPort = {port} needs {oldest} or later: {_other_port()}" if port else ""
    what = what or f"a stack needs {oldest} or later"
    for deployment in found or ():
        name = f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            version = TAG.search(container["image"])
            if version and [*map(int, version.groups())] < [*map(int, oldest.split("."))]:
                yield (
                    f"KubeRay's operator, Deployment {name}, is {container['image']}; {what}. "
                    f"{UPDATE_CRDS}; {'; '.join(HELM)}"
                )


def _kueue(api: Api, queue: str, priority: str) -> Iterator[str]:
    """Yield names that Kueue does not know: their pods would never start."""
    kubectl, where = f"kubectl --context {api.cluster.context} get", api.cluster.namespace
    if queue and api.get("LocalQueue", queue) is None:
        yield (
            f"kubernetes.queue = {queue!r}: no LocalQueue of that name in namespace {where} (Kueue "
            f"0.15 or later): name one of `{kubectl} localqueues -n {where}`, or remove it"
        )
    with explained("Kueue's priority classes", api.cluster):
        if priority and api.of_cluster(PRIORITY_CLASS, "WorkloadPriorityClass", priority) is None:
            yield (
                f"kubernetes.priorityClass = {priority!r}: Kueue has no WorkloadPriorityClass of "
                f"that name: name one of `{kubectl} workloadpriorityclasses`, or remove it"
            )


def _has(schema: dict[str, Any], path: Iterable[str]) -> bool:
    for name in path:
        schema = (schema.get("properties") or {}).get(name)  # type: ignore[assignment]
        if schema is None:
            return False
    return True


def _rights(api: Api, ends: bool) -> Iterator[str]:
    kinds = [*KINDS.values(), *(OF_TIMER.values() if ends else ())]
    asked = [(group, plural, verb, "") for group, _, plural in kinds for verb in VERBS]
    asked += [("", "pods", "list", ""), ("", "pods", "get", ""), ("", "pods", "get", "log")]
    asked += [("", "pods", "create", "portforward"), ("", "events", "list", "")]
    with ThreadPoolExecutor(PARALLEL) as pool:
        allowed = list(pool.map(lambda each: api.may(*each), asked))
    refused: dict[str, list[str]] = {}
    for (group, plural, verb, part), may in zip(asked, allowed, strict=True):
        if not may:
            name = f"{plural}{f'/{part}' if part else ''}{f'.{group}' if group else ''}"
            refused.setdefault(name, []).append(verb)
    if refused:
        what = "; ".join(f"{', '.join(verbs)} {name}" for name, verbs in refused.items())
        yield (
            f"the user of context {api.cluster.context} may not {what} in namespace "
            f"{api.cluster.namespace}: have a Role with these bound to it (docs/kubernetes.md), or "
            "use another context"
        )
