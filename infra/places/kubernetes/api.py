"""Kubernetes' API by lightkube: one kind of object for all kinds, and errors that say what to do.

Imported late (`cluster.lazy_import`): lightkube takes a third of a second, which other stacks save.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import httpx2
import lightkube
import pulumi
import yaml
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import (
    GenericGlobalResource,
    GenericNamespacedResource,
    create_api_info,
)
from lightkube.models import meta_v1
from lightkube.types import CascadeType, PatchType

from trainyard.access.kubectl import Cluster

Manifest = dict[str, Any]
T = TypeVar("T")

MANAGER = "trainyard"  # who owns the fields that the stack sets
TIMEOUT_SECONDS = 15.0  # of one request
# For how long an API that has answered before may be away, as while its node restarts.
AWAY_SECONDS, AWAY_PAUSE_SECONDS = 60.0, 1.0
PASSING = (429, 502, 503, 504)
FORBIDDEN, NOT_FOUND, CONFLICT = 403, 404, 409
SECOND = len("2026-11-25T12:00:00")  # of a time, without what follows
SYSTEM = "kube-system"  # the namespace whose uid is the cluster's
# A kubeconfig of another shape, as lightkube finds it.
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, AssertionError)
# lightkube reads by msgspec 0.22, which ends the program (SIGSEGV) if two threads are the first to
# need a type: the types that it reads here are met while this is held.
LEARNING = Lock()
UNMADE = (
    *("FailedCreate", "FailedMount", "FailedAttachVolume", "ProvisioningFailed"),
    # KubeRay's, of a RayCluster.
    *("InvalidRayClusterSpec", "InvalidRayClusterMetadata"),
    *("FailedToCreateHeadPod", "FailedToCreateWorkerPod", "FailedToCreateService"),
    *("FailedToCreateServiceAccount", "FailedToCreateRole", "FailedToCreateRoleBinding"),
)
JOB_LABEL = "kueue.x-k8s.io/job-uid"  # of a Workload
# Group, version and plural of each kind.
KINDS = {
    "ConfigMap": ("", "v1", "configmaps"),
    "Deployment": ("apps", "v1", "deployments"),
    "Job": ("batch", "v1", "jobs"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "PersistentVolumeClaim": ("", "v1", "persistentvolumeclaims"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "RayCluster": ("ray.io", "v1", "rayclusters"),
    "Secret": ("", "v1", "secrets"),
    "Service": ("", "v1", "services"),
    "StatefulSet": ("apps", "v1", "statefulsets"),
}
# Of a stack whose pods end by a timer, too.
OF_TIMER = {
    "Role": ("rbac.authorization.k8s.io", "v1", "roles"),
    "RoleBinding": ("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
}
# What is read only.
OF_KUEUE = {
    "LocalQueue": ("kueue.x-k8s.io", "v1beta2", "localqueues"),
    "Workload": ("kueue.x-k8s.io", "v1beta2", "workloads"),
}
PRIORITY_CLASS = ("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses")
POD = ("", "v1", "pods")
EVENT = ("", "v1", "events")
NAMESPACE = ("", "v1", "namespaces")
DEPLOYMENT = KINDS["Deployment"]
CRD = ("apiextensions.k8s.io", "v1", "customresourcedefinitions")
REVIEW = ("authorization.k8s.io", "v1", "selfsubjectaccessreviews")


class KubernetesError(pulumi.RunError):
    """A cluster does not do a request; the message says why and what to do."""


class Api:
    """One namespace of a cluster."""

    def __init__(self, cluster: Cluster, client: lightkube.Client) -> None:
        self.cluster = cluster
        self.server = str(client.config.cluster.server)
        self._client = client
        self._has_answered = False

    @cache  # noqa: B019 - there is one of each cluster
    def uid(self) -> str:
        """Return an id of the cluster, whatever its contexts are called."""
        with explained("the cluster's identity", self.cluster):
            found = unless(FORBIDDEN, lambda: self.of_cluster(NAMESPACE, "Namespace", SYSTEM))
        return str(found["metadata"]["uid"]) if found else self.server

    def get(self, kind: str, name: str) -> Manifest | None:
        """Return an object; None if it does not exist."""

        def ask() -> Manifest:
            return dict(self._client.get(_namespaced(kind), name))

        with explained(f"{kind} {name}", self.cluster):
            return unless(NOT_FOUND, lambda: self._patiently(ask))

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Apply a manifest on the server, which takes over what others changed of its fields.

        Raises:
            ApiError: the cluster refuses it.
        """
        wanted = _namespaced(str(manifest["kind"]))(manifest)
        return dict(
            self._patiently(lambda: self._client.apply(wanted, force=True, dry_run=dry_run))
        )

    def merge(self, kind: str, name: str, patch: Manifest) -> None:
        """Change some fields of an object; None removes one."""
        with explained(f"{kind} {name}", self.cluster):
            self._patiently(
                lambda: self._client.patch(
                    _namespaced(kind), name, patch, patch_type=PatchType.MERGE
                )
            )

    def delete(self, kind: str, name: str) -> None:
        """Start to delete an object, which is gone once all that belongs to it is."""

        def ask() -> None:
            self._client.delete(_namespaced(kind), name, cascade=CascadeType.FOREGROUND)

        with explained(f"{kind} {name}", self.cluster):
            unless(NOT_FOUND, lambda: self._patiently(ask))

    def pods(self, labels: Mapping[str, str]) -> list[Manifest]:
        """Return pods by their labels."""
        with explained("its pods", self.cluster):
            return self._patiently(
                lambda: [
                    dict(pod) for pod in self._client.list(_named(POD, "Pod"), labels=dict(labels))
                ]
            )

    def warning(self, live: Manifest) -> str:
        """Return why an object is not made or has no volume; "" if that is unknown or over.

        Events are kept for an hour: one from before this program last changed the object, or before
        something went well, does not tell the present state.
        """
        fields: dict[str, Any] = {"involvedObject.uid": live["metadata"]["uid"]}
        try:
            found = self._client.list(_named(EVENT, "Event"), fields=fields)
            events = [dict(event) for event in found]
        except httpx2.HTTPError:
            return ""
        # Containers of pods have a state that tells more, and newer things.
        telling = [e for e in events if e.get("reason") in UNMADE or e.get("type") == "Normal"]
        newest = max(telling, key=_when, default={"type": "Normal"})
        if newest["type"] == "Normal" or _when(newest)[0] < _changed(live):
            return ""
        return str(newest.get("message", ""))

    def queued(self, live: Manifest) -> str:
        """Return what Kueue says of an object that it has wait; "" if that is unknown."""
        labels = {JOB_LABEL: live["metadata"]["uid"]}
        try:
            found = self._client.list(_namespaced("Workload"), labels=labels)
            told = [each for one in found for each in dict(one)["status"]["conditions"]]
        except (httpx2.HTTPError, KeyError):
            return ""
        said = (each.get("message", "") for each in told if each["type"] == "QuotaReserved")
        return str(next(said, ""))

    def log(self, pod: str, container: str, *, lines: int | None = None) -> list[str]:
        """Return the last lines of a container's log, or all; none if it has no log."""
        try:
            found = self._client.log(pod, container=container, tail_lines=lines, newlines=False)
            return [str(line) for line in found]
        except httpx2.HTTPError:  # it has not started, or is gone
            return []

    def may(self, group: str, plural: str, verb: str, subresource: str = "") -> bool:
        """Return whether the context's user may do something in the namespace."""
        attributes = {
            "namespace": self.cluster.namespace,
            "group": group,
            "resource": plural,
            "subresource": subresource,
            "verb": verb,
        }
        with explained("the user's rights", self.cluster):
            review = self._client.create(
                _global(REVIEW, "SelfSubjectAccessReview")(
                    {
                        "apiVersion": "authorization.k8s.io/v1",
                        "kind": "SelfSubjectAccessReview",
                        "spec": {"resourceAttributes": attributes},
                    }
                )
            )
        return bool(dict(review)["status"].get("allowed"))

    def of_cluster(self, where: tuple[str, str, str], kind: str, name: str) -> Manifest | None:
        """Return an object that is in no namespace; None if it does not exist.

        Raises:
            ApiError: the user may not read it.
        """
        return unless(NOT_FOUND, lambda: dict(self._client.get(_global(where, kind), name)))

    def everywhere(
        self, where: tuple[str, str, str], kind: str, labels: Mapping[str, Any]
    ) -> list[Manifest]:
        """Return objects of all namespaces by their labels.

        Raises:
            ApiError: the user may not list them.
        """
        found = self._client.list(_named(where, kind), namespace="*", labels=dict(labels))
        return [dict(each) for each in found]

    def _patiently(self, action: Callable[[], T]) -> T:
        """Return the result of a repeatable action, also if the API is away meanwhile.

        An API that has not answered yet is not waited for: its address is more often wrong.
        """
        away = None
        while True:
            try:
                found = action()
            except Exception as error:
                now = time.monotonic()
                away = now if away is None else away
                passes = _passes(error)
                if not (self._has_answered and passes) or now - away > AWAY_SECONDS:
                    self._has_answered |= not passes
                    raise
                time.sleep(AWAY_PAUSE_SECONDS)
            else:
                self._has_answered = True
                return found


def _passes(error: Exception) -> bool:
    """Return whether another try may help."""
    if isinstance(error, ApiError):
        return error.status.code in PASSING
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code in PASSING
    # lightkube looks for the type of an error's content, which some gates leave out.
    return isinstance(error, httpx2.TransportError | KeyError)


def unless(code: int, ask: Callable[[], T]) -> T | None:
    """Return an answer; None for a refusal with a code of HTTP."""
    try:
        return ask()
    except ApiError as error:
        if error.status.code != code:
            raise
        return None


@cache
def _named(where: tuple[str, str, str], kind: str, form: type = GenericNamespacedResource) -> Any:
    group, version, plural = where
    return type(kind, (form,), {"_api_info": create_api_info(group, version, kind, plural)})


def _global(where: tuple[str, str, str], kind: str) -> Any:
    return _named(where, kind, GenericGlobalResource)


def _namespaced(kind: str) -> Any:
    return _named((KINDS | OF_TIMER | OF_KUEUE)[kind], kind)


@cache
def open_api(cluster: Cluster) -> Api:
    """Return a cluster's API; one connection serves all threads.

    Raises:
        KubernetesError: the kubeconfig cannot be used.
    """
    path = cluster.config_file
    try:
        with LEARNING:
            config = lightkube.KubeConfig.from_file(path)
            meta_v1.Status.from_dict({})  # of refusals
        if cluster.context not in config.contexts:
            known = ", ".join(sorted(config.contexts)) or "none"
            raise KubernetesError(
                f"kubernetes.context = {cluster.context!r}: {path} has no such context (there: "
                f"{known}); name one of them, or another file as kubernetes.kubeconfig"
            )
        client = lightkube.Client(
            config=config.get(cluster.context),
            namespace=cluster.namespace,
            field_manager=MANAGER,
            timeout=httpx2.Timeout(TIMEOUT_SECONDS),
        )
    except (ConfigError, yaml.YAMLError, OSError, *MALFORMED) as error:
        raise KubernetesError(
            f"kubernetes.kubeconfig = {str(path)!r} cannot be used ({_first_line(error)}): name "
            "the one file that kubectl uses for this cluster"
        ) from None
    return Api(cluster, client)


def _when(event: Manifest) -> tuple[str, int]:
    """Return the second of an event's last time, and a version that orders those of one second."""
    series = (event.get("series") or {}).get("lastObservedTime")
    second = series or event.get("lastTimestamp") or event.get("eventTime") or ""
    version = str(event["metadata"].get("resourceVersion", ""))
    return str(second)[:SECOND], int(version) if version.isdecimal() else 0


def _changed(live: Manifest) -> str:
    """Return the second in which this program changed an object last, by the cluster's clock."""
    fields = live["metadata"].get("managedFields") or []
    ours = [str(each.get("time", ""))[:SECOND] for each in fields if each["manager"] == MANAGER]
    return max(ours, default="")


@contextmanager
def explained(what: str, cluster: Cluster) -> Iterator[None]:
    """Turn errors of a cluster into one message about `what`.

    Raises:
        KubernetesError: an error occurred.
    """
    try:
        yield
    except ApiError as error:
        raise KubernetesError(f"{what} in {cluster.name}: {said(error)}") from None
    except (httpx2.HTTPError, ConfigError, KeyError) as error:
        raise KubernetesError(
            f"{what} in {cluster.name}: the cluster does not answer ({str(error) or repr(error)}). "
            f"`kubectl --context {cluster.context} get pods -n {cluster.namespace}` must work: "
            "look at the network, the login and the kubeconfig, then try again"
        ) from None
    except (OSError, ValueError) as error:  # of the kubeconfig's login program
        raise KubernetesError(
            f"{what} in {cluster.name}: the login by {str(cluster.config_file)!r} does not work "
            f"({_first_line(error)}): the program that it names under exec must be on PATH and "
            "answer with a token"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error) or repr(error)).partition("\n")[0]


def said(error: ApiError) -> str:
    """Return the cluster's reason for a refusal, and the next action."""
    text = str(error.status.message or error)
    code = error.status.code
    if "exceeded quota" in text:
        return f"{text}. Free some of it, lower what the settings ask for, or have it raised"
    if code in (401, FORBIDDEN):
        return f"the cluster refuses it: {text}. Have the right granted, or use another context"
    return f"the cluster says: {text}"
