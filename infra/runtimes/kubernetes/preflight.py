"""What a stack needs of a cluster, looked at before anything is declared: also by a preview."""

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

from lightkube.core.exceptions import ApiError

from access.kubectl import Cluster
from infra.runtimes.kubernetes.api import (
    CRD,
    FORBIDDEN,
    KINDS,
    NAMESPACE,
    Api,
    KubernetesError,
    explained,
    open_api,
)

CRD_NAME = "rayclusters.ray.io"
# Of the CRD, what a stack sets and an older operator would drop without a word.
NEEDED = (
    ("spec", "authOptions"),
    ("spec", "upgradeStrategy"),
    ("spec", "autoscalerOptions", "args"),  # since 1.7
)
KUBERAY = "1.7.0"
# renovate: datasource=helm depName=kuberay-operator registryUrl=https://ray-project.github.io/kuberay-helm
HELM = (
    "helm repo add kuberay https://ray-project.github.io/kuberay-helm/",
    "helm repo update",
    f"helm upgrade --install kuberay-operator kuberay/kuberay-operator --version {KUBERAY}",
)
# Helm never updates a CRD that is there; the file is too long for an annotation of kubectl's.
UPDATE_CRDS = (
    "kubectl apply --server-side --force-conflicts -k "
    f'"github.com/ray-project/kuberay/ray-operator/config/crd?ref=v{KUBERAY}"'
)
VERBS = ("get", "create", "patch", "delete")
PARALLEL = 8
_ASKED: ContextVar[bool] = ContextVar("asked", default=True)


@contextlib.contextmanager
def unasked() -> Iterator[None]:
    """Have the program ask no cluster: what it declares is only written down."""
    token = _ASKED.set(False)
    try:
        yield
    finally:
        _ASKED.reset(token)


def check(cluster: Cluster) -> str:
    """Return what tells the cluster from others; "" while none is asked.

    Raises:
        KubernetesError: a stack cannot be there; the message lists all faults.
    """
    if not _ASKED.get():
        return ""
    api = open_api(cluster)
    uid = api.uid()  # does it answer at all
    faults = [*_namespace(api), *_operator(api), *_rights(api)]
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
            return  # who may not look at it may still use it
    if found is None:
        yield (
            f"namespace {name} does not exist: kubectl --context {api.cluster.context} create "
            f"namespace {name}; or name another one as kubernetes.namespace"
        )
    elif (found.get("status") or {}).get("phase") == "Terminating":
        yield f"namespace {name} is being deleted: wait for its end, or name another one"


def _operator(api: Api) -> Iterator[str]:
    helm = "; ".join(each for each in HELM)
    with explained("KubeRay's CRD", api.cluster):
        try:
            found = api.of_cluster(CRD, "CustomResourceDefinition", CRD_NAME)
        except ApiError as error:
            if error.status.code != FORBIDDEN:
                raise
            return  # what is missing is then told by the RayCluster's own refusal
    if found is None:
        yield f"KubeRay's operator is not installed (no CRD {CRD_NAME}): {helm}"
        return
    schema = _schema(found)
    if schema is None:
        yield f"KubeRay's CRD {CRD_NAME} has no version v1: it is too old. {UPDATE_CRDS}; {helm}"
        return
    missing = [".".join(path) for path in NEEDED if not _has(schema, path)]
    if missing:
        yield (
            f"KubeRay's CRD {CRD_NAME} is too old, it lacks {', '.join(missing)}: {UPDATE_CRDS}; "
            f"{helm}"
        )


def _schema(crd: dict[str, Any]) -> dict[str, Any] | None:
    for version in crd["spec"]["versions"]:
        if version["name"] == "v1" and version.get("served"):
            found: dict[str, Any] = version["schema"]["openAPIV3Schema"]
            return found
    return None


def _has(schema: dict[str, Any], path: Iterable[str]) -> bool:
    for name in path:
        schema = (schema.get("properties") or {}).get(name)  # type: ignore[assignment]
        if schema is None:
            return False
    return True


def _rights(api: Api) -> Iterator[str]:
    asked = [(group, plural, verb, "") for group, _, plural in KINDS.values() for verb in VERBS]
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
