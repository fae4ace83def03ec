"""Waits for pods to be ready, for a Ray cluster, and for the end of a program that runs once.

While it waits it says why pods are not ready: no node has room, an image is missing, a program
crashed. The time that a service may take does not run while images are pulled.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi import dynamic

from cluster import kuberay
from cluster.provider import Args, Given, Resource, say
from infra.places.kubernetes import pods
from infra.places.kubernetes.objects import api_module
from infra.places.kubernetes.pods import Pod, Trouble
from infra.service.cancellation import WaitingProvider
from node import life
from trainyard.access.kubectl import Cluster

POLL_SECONDS = 0.5
GRACE_SECONDS = 10.0  # for which pods from before a change may still be listed
PULL_SECONDS = 3600  # images and volumes, for all of a service's pods
OPERATOR = "Is it running, and for this namespace? kubectl get pods -A -l "
OPERATOR += "app.kubernetes.io/name=kuberay-operator"
KUEUE = "kubectl get pods -n kueue-system"
UNMADE = "ReplicaFailure"  # condition of an object that may not make a pod
SUSPENDED = ("RayClusterSuspending", "RayClusterSuspended")  # KubeRay's, of a RayCluster
OPERATOR_SECONDS = 10  # within which KubeRay's operator looks at a new RayCluster
NO_OPERATOR = Trouble(
    name="of the head",
    container="",
    text=f"is not made: KubeRay's operator has not looked at the RayCluster. {OPERATOR}",
)


class ReadyArgs(Args):
    """Arguments of the pods of an object.

    Attributes:
        kind: the object's kind, such as StatefulSet.
        once: whether they have to end.
        version: a text that changes when the object does.
        timeout: seconds until they are ready.
    """

    cluster: Mapping[str, Any]
    kind: str
    name: str
    pods: Mapping[str, str]
    once: bool
    version: Given[str]
    timeout: float


class ReadyProvider(WaitingProvider[ReadyArgs]):
    """Pods that are ready, or have ended well."""

    health_output = "ready"

    def make(self, args: ReadyArgs) -> tuple[str, dict[str, Any]]:
        service = PodsDriver(args, tells=True)
        life.await_up(service, args.timeout, self._cancellation.sleep)
        return f"{args.kind}/{args.name}", {"ready": True}

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        return dynamic.ReadResult(id_, {**props, "ready": not self.fault(id_, props)})

    def fault(self, _id: str, props: dict[str, Any]) -> str:
        """Return why the pods are not ready now, "" if they are."""
        return life.fault(PodsDriver(ReadyArgs.of(props)))

    def log(self, _id: str, props: dict[str, Any], lines: int) -> list[str]:
        """Return the end of the log of each container of the pods, below a line with its name."""
        api, found = _api(ReadyArgs.of(props)), list[str]()
        for pod in api.pods(props["pods"]):
            for own in (each["name"] for each in pod["spec"]["containers"]):
                name = pod["metadata"]["name"]
                found += [f"==> {name} {own} <==", *api.log(name, own, lines=lines)]
        return found


class Ready(Resource[ReadyArgs], module="kubernetes", name="Ready"):
    """The pods of an object, once they are ready."""

    _kind = ReadyProvider
    ready: pulumi.Output[bool]


def settled(live: Mapping[str, Any], found: Sequence[Pod]) -> bool:
    """Return whether the pods of an object are there in its newest form."""
    status, spec = live.get("status") or {}, live["spec"]
    if live["kind"] == "Job":
        return bool(status.get("succeeded", 0) >= 1)
    if any(pods.loops(pod) for pod in found):
        return False
    if live["kind"] == kuberay.KIND:
        there = [pod for pod in found if pods.is_ready(pod) and not pods.is_ending(pod)]
        ready = status.get("state") == "ready" and not spec.get("suspend")
        # Beyond the fewest of a group, workers come and go as the autoscaler requests.
        return ready and all(
            sum(_is_of(pod, group, template) for pod in there) >= fewest
            for group, template, fewest in kuberay.templates(live)
        )
    if status.get("observedGeneration", 0) < live["metadata"].get("generation", 0):
        return False
    wanted = spec.get("replicas", 1)
    counts = [status.get(key, 0) for key in ("replicas", "readyReplicas", "updatedReplicas")]
    return all(count == wanted for count in counts)


def _is_of(pod: Pod, group: str, template: Mapping[str, Any]) -> bool:
    """Return whether a pod is of a group of a RayCluster, and like its template."""
    of_group = (pod["metadata"].get("labels") or {}).get(kuberay.GROUP_LABEL) == group
    return of_group and kuberay.form(pod) == kuberay.form(template)


def _pods(api: Any, live: Mapping[str, Any], labels: Mapping[str, str]) -> list[Pod]:
    """Return an object's pods; those of a RayCluster that was deleted have the same labels."""
    found: list[Pod] = api.pods(labels)
    return pods.owned(found, live["metadata"]["uid"]) if live["kind"] == kuberay.KIND else found


class PodsDriver(life.Driver):
    """The pods of an object, whose checks are probes.

    Args:
        args: of their Ready.
        tells: whether the user sees why they are not ready yet.
    """

    poll_seconds = POLL_SECONDS

    def __init__(self, args: ReadyArgs, *, tells: bool = False) -> None:
        self.name, self._args, self._tells = args.name, args, tells
        self._api = _api(args)
        self._begun = time.monotonic()
        self._told: set[tuple[str, str, str]] = set()
        self._shown: dict[str, int] = {}
        self._earlier: set[str] | None = None  # pods of the first look: a fault may be fixed by now
        self._loud: tuple[str, str] | None = None  # pod and container whose log says more
        self._said: list[str] = []  # what the log of an earlier one said, which may be gone by now

    def look(self) -> life.Look:
        kind, api = self._args.kind, self._api
        live = api.get(kind, self.name)
        if live is None:
            raise life.ServiceError(f"{kind} {self.name} is gone; run `up` again")
        found = _pods(api, live, self._args.pods)
        if self._args.once and self._tells:
            _show_logs(api, self.name, found, self._shown)
        if settled(live, found):
            return life.Look(runs=True)
        age = time.monotonic() - self._begun
        if self._earlier is None:
            self._earlier = {pod["metadata"]["name"] for pod in found}
        earlier = self._earlier if age <= GRACE_SECONDS else set()
        known = pods.troubles(found)
        known += _refusals(api, live, found, known)
        silent = kind == kuberay.KIND and not known
        if silent and not found and not live.get("status") and age > OPERATOR_SECONDS:
            known = [NO_OPERATOR]
        self._tell(known)
        failed = kind == "Job" and (live.get("status") or {}).get("failed", 0)
        final = failed or any(each.final and each.name not in earlier for each in known)
        pulling = not known and any(pods.is_creating(pod) for pod in found)
        works = self._args.once and any(p["status"].get("phase") == "Running" for p in found)
        if silent and not known:
            known = _silence(live, found)
        self._listen(known, found)
        return life.Look(
            runs=False,
            over="does not come up" if final else "",
            why=[each.line for each in known] or [f"{self.name} is not ready; no pod says why"],
            at_work=bool(
                works or (pulling and age < PULL_SECONDS) or any(each.patient for each in known)
            ),
        )

    def log(self, lines: int) -> list[str]:
        """Return the end of the log that says more; none without one."""
        found: list[str] = self._api.log(*self._loud, lines=lines) if self._loud else []
        return found or self._said[-lines:]

    def _tell(self, known: Sequence[Trouble]) -> None:
        for trouble in known if self._tells else ():
            if trouble.key not in self._told:
                self._told.add(trouble.key)
                say(f"{self.name}: {trouble.line}")

    def _listen(self, known: Sequence[Trouble], found: Sequence[Pod]) -> None:
        """Note whose log says more."""
        loud = [(each.name, each.container) for each in known if each.logs]
        if not known:
            loud = [
                (pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
                for pod in found
                if not pods.is_ready(pod)
            ]
        if loud and loud[0] != self._loud:
            self._said = self._api.log(*loud[0], lines=life.LOG_LINES) or self._said
        self._loud = loud[0] if loud else None
        cluster = self._api.cluster
        kubectl = f"kubectl --context {cluster.context} -n {cluster.namespace}"
        self.whole_log = f"{kubectl} logs {loud[0][0]} -c {loud[0][1]}" if loud else ""


def _refusals(
    api: Any, live: Mapping[str, Any], found: Sequence[Pod], known: Sequence[Trouble]
) -> list[Trouble]:
    """Return why pods are not made, or have no volume: events and conditions tell that."""
    told = {trouble.name for trouble in known}
    creating = {str(pod["metadata"]["name"]): pod for pod in found if pods.is_creating(pod)}
    waits = [
        Trouble(name=name, container="", text=f"waits: {text}")
        for name, pod in creating.items()
        if name not in told and (text := api.warning(pod))
    ]
    text = ""
    # KubeRay may also refuse a change while pods from before it are ready.
    if not found or (live["kind"] == kuberay.KIND and not known and not creating):
        text = api.warning(live)
    true = {
        each["type"]: str(each.get("message", ""))
        for each in (live.get("status") or {}).get("conditions") or []
        if each["status"] == "True"
    }
    text = true.get(UNMADE, text)
    text = f"waits: {text}" if text else ""
    if live["kind"] == kuberay.KIND and (live["spec"].get("suspend") or true.keys() & {*SUSPENDED}):
        waits.append(_suspended(api, live))
    elif text:
        name = str(live["metadata"]["name"])
        waits.append(Trouble(kind=str(live["kind"]), name=name, container="", text=text))
    return waits


def _suspended(api: Any, live: Mapping[str, Any]) -> Trouble:
    """Return why a RayCluster is suspended: it waits in a queue of Kueue, or somebody did it."""
    name, reason = str(live["metadata"]["name"]), ""
    labels = live["metadata"].get("labels") or {}
    if (queue := labels.get(kuberay.QUEUE_LABEL)) and live["spec"].get("suspend"):
        reason = api.queued(live)
        text = f"waits for an answer of Kueue; does it run? {KUEUE}"
        text = f"waits in Kueue's queue {queue}: {reason}" if reason else text
    else:
        patch = json.dumps({"spec": {"suspend": False}})
        text = (
            "is suspended, so KubeRay ends its pods and makes none. To start it without a queue: "
            f"kubectl --context {api.cluster.context} -n {api.cluster.namespace} patch raycluster "
            f"{name} --type merge -p '{patch}'"
        )
    kind = kuberay.KIND
    return Trouble(kind=kind, name=name, container="", text=text, patient=bool(reason))


def _silence(live: Mapping[str, Any], found: Sequence[Pod]) -> list[Trouble]:
    """Return the trouble with a KubeRay operator that does not act."""
    if not found or not all(pods.is_ready(pod) for pod in found):
        return []
    form = kuberay.form(live["spec"]["headGroupSpec"]["template"])
    for pod in found:
        if kuberay.form(pod) != form:
            name = str(pod["metadata"]["name"])
            text = (
                "is from before the change, and KubeRay's operator did not recreate it: delete it"
            )
            return [Trouble(name=name, container="", text=f"{text}. {OPERATOR}")]
    state = (live.get("status") or {}).get("state") or "none"
    text = f"is ready, and KubeRay's operator has not said so (status.state: {state}). {OPERATOR}"
    return [Trouble(name=str(found[0]["metadata"]["name"]), container="", text=text)]


def _show_logs(api: Any, name: str, found: Sequence[Pod], shown: dict[str, int]) -> None:
    """Show new log lines of a program that runs once: the progress that the user sees.

    The log is read at each look: no connection that went silent can hold the wait.
    """
    for pod in found:
        own = pod["metadata"]["name"]
        if pod["status"].get("phase") != "Pending":
            lines = api.log(own, pod["spec"]["containers"][0]["name"])
            for line in lines[shown.get(own, 0) :]:
                say(f"{name}: {line}")
            shown[own] = max(len(lines), shown.get(own, 0))


def _api(args: ReadyArgs) -> Any:
    return api_module().open_api(Cluster.of(args.cluster))
