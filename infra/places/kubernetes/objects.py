"""Objects of a cluster as resources: applied on the server, whose dry run is the diff.

An object has the stack's own id in an annotation: another stack of the same name, perhaps another
user's, is noticed before any of its objects is touched.
"""

import base64
import copy
import json
import time
from collections.abc import Mapping
from dataclasses import field
from types import ModuleType
from typing import Any

from pulumi import dynamic

from cluster import kuberay, lazy_import
from cluster.provider import Args, Given, Provider, Resource, has_unknown, say, seen
from infra.places.kubernetes import pods
from node.life import ServiceError
from trainyard.access.kubectl import Cluster

Manifest = dict[str, Any]

OWNER = "trainyard/owner"  # annotation: id of the stack whose object it is
STACK_LABEL = "trainyard/stack"
KEPT_LABEL = "trainyard/kept-of"  # in its place, on claims that outlive the stack
DELETE_SECONDS = 180.0
LEAVE_SECONDS = 10.0  # within which KubeRay's operator acts on a change
POLL_SECONDS = 0.5
APPLY_TRIES = 5
CLAIM = "PersistentVolumeClaim"
# Kinds whose pod template the cluster does not change in place.
REPLACED = ("Job",)
# What the cluster itself writes into an object's metadata.
BOOKKEEPING = ("managedFields", "resourceVersion", "generation", "creationTimestamp", "uid")
GROUPS = "workerGroupSpecs"
OPERATORS = "ray.io/"  # begins the names of the finalizers of KubeRay's operator
# Fields of a group of workers that Ray's autoscaler sets.
AUTOSCALED = ("replicas", "scaleStrategy")


class ManifestArgs(Args):
    """Arguments of what knows an object of a cluster.

    Attributes:
        cluster: kubeconfig, context, namespace, and the cluster's uid.
        manifest: the object, as Kubernetes takes it.
    """

    cluster: Mapping[str, Any]
    owner: Given[str]
    manifest: Given[Manifest]

    @property
    def identity(self) -> tuple[str, str, str]:
        namespace, name = self.cluster["namespace"], self.manifest["metadata"]["name"]
        return (str(self.manifest["kind"]), str(namespace), str(name))

    @property
    def applied(self) -> Manifest:
        """The manifest to apply, with the stack's id and its pods' form."""
        found: Manifest = copy.deepcopy(plain(self.manifest))
        if found["kind"] == kuberay.KIND:
            kuberay.mark_form(found)
        found["metadata"].setdefault("annotations", {})[OWNER] = self.owner
        return found

    def opened(self) -> Any:
        """Return the API of the cluster that the object is in.

        Raises:
            ServiceError: its context leads to another cluster by now.
        """
        api = api_module().open_api(Cluster.of(self.cluster))
        # A user who may not read the cluster's identity knows it by its address.
        if self.cluster["uid"] not in (api.uid(), api.server):
            raise _elsewhere(self.cluster, self.cluster["context"], api)
        return api


class ObjectArgs(ManifestArgs):
    """Arguments of an object.

    Attributes:
        secrets: the texts of a Secret by key; {} for other objects.
        keep: whether it outlives the stack.
    """

    secrets: Given[Mapping[str, str]] = field(default_factory=dict, repr=False)
    keep: bool

    @property
    def applied(self) -> Manifest:
        """The manifest to apply, also with its secrets."""
        data = {key: base64.b64encode(text.encode()).decode() for key, text in self.secrets.items()}
        return {**super().applied, **({"data": data} if data else {})}


class ObjectProvider(Provider[ObjectArgs]):
    """One object of a cluster."""

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Refuse another name: the claim of a store would be another one too, and empty."""
        faults = []
        if (
            olds
            and (before := ObjectArgs.of(olds).identity) != (after := ObjectArgs.of(news).identity)
            and before[:2] == after[:2]
        ):
            text = (
                f"{before[0]} {before[2]} is this stack's, and its name or the setting owner now "
                f"make it {after[2]}. Nothing was changed. Set it back; or end the stack (make "
                "down), and bring it up again: it starts empty, and claims that are kept stay "
                "under the old name"
            )
            faults.append(dynamic.CheckFailure("manifest", text))
        return dynamic.CheckResult(news, faults)

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Ask the cluster, by a dry run, what applying it again would change."""
        if has_unknown(news) or has_unknown(olds):
            return dynamic.DiffResult(changes=True)
        old, new = ObjectArgs.of(olds), ObjectArgs.of(news)
        api = new.opened()
        if old.cluster["uid"] not in (new.cluster["uid"], api.server):
            raise _elsewhere(old.cluster, new.cluster["context"], api)
        if old.identity != new.identity:
            return dynamic.DiffResult(
                changes=True, replaces=["manifest"], delete_before_replace=True
            )
        live = _mine(api, new)
        if live is None or pods.is_ending(live):
            return dynamic.DiffResult(changes=True)
        if new.manifest["kind"] in REPLACED:
            status = live.get("status") or {}
            failed = status.get("failed", 0) and not status.get("succeeded", 0)
            again = failed or plain(old.manifest) != plain(new.manifest)
            return dynamic.DiffResult(
                changes=bool(again) or plain(olds) != plain(news),
                replaces=["manifest"] if again else [],
                delete_before_replace=True,
            )
        tried = apply(api, new.applied, dry_run=True)
        changed = content(tried) != content(live) or old.keep != new.keep
        changed = changed or _has_old_ports(api, tried)
        return dynamic.DiffResult(changes=changed or plain(olds) != plain(news))

    def make(self, args: ObjectArgs) -> tuple[str, dict[str, Any]]:
        """Apply it; one that this stack made in an `up` that was killed is its own."""
        api = args.opened()
        kind, _, name = args.identity
        live = _mine(api, args)
        if live is not None and pods.is_ending(live):
            if kind == CLAIM:
                raise ServiceError(_going(api, name))
            _await_end(api, kind, name)
            live = None
        leaving = _leaving(api, args, live)
        applied = apply(api, args.applied)
        _await_leave(api, leaving, live, applied)
        if _has_old_ports(api, applied):
            api.delete("Service", kuberay.head_service(name))
        # Only now: without the label, a claim that the cluster refuses this stack has no owner.
        if live is not None and KEPT_LABEL in (live["metadata"].get("labels") or {}):
            api.merge(CLAIM, name, {"metadata": {"labels": {KEPT_LABEL: None}}})
        return "/".join(args.identity), {}

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether it is there as it was applied; changes by hand are differences."""
        args = ObjectArgs.of(props)
        api = args.opened()
        kind, _, name = args.identity
        live = api.get(kind, name)
        if live is None or _owner(live) != args.owner or pods.is_ending(live):
            return seen(id_, None)
        tried = apply(api, args.applied, dry_run=True)
        if content(tried) == content(live):
            return dynamic.ReadResult(id_, props)
        found = {**props, "manifest": drifted(args.manifest, tried, live)}
        if args.secrets:
            found["secrets"] = {
                key: base64.b64decode(text).decode(errors="replace")
                for key, text in (live.get("data") or {}).items()
            }
        return dynamic.ReadResult(id_, found)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Delete it and all that belongs to it; a claim to be kept is only released."""
        args = ObjectArgs.of(props)
        api = args.opened()
        kind, namespace, name = args.identity
        live = api.get(kind, name)
        if live is None:
            return
        if _owner(live) != args.owner:
            say(
                f"{kind} {name} in namespace {namespace} no longer belongs to this stack: "
                "left alone"
            )
            return
        if args.keep:
            _release(api, args)
            return
        api.delete(kind, name)
        _await_end(api, kind, name)


class Object(Resource[ObjectArgs], module="kubernetes", name="Object"):
    """An object of a cluster."""

    _kind = ObjectProvider


def plain(value: Any) -> Any:
    """Return a value as Kubernetes has it: engines pass whole numbers on as floats."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if not key.startswith("__")}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def content(found: Mapping[str, Any]) -> Manifest:
    """Return an object without its status and without the cluster's notes of each write."""
    kept = {key: value for key, value in found.items() if key != "status"}
    metadata = dict(kept.get("metadata") or {})
    kept["metadata"] = {key: metadata[key] for key in metadata if key not in BOOKKEEPING}
    return kept


def drifted(wanted: Any, tried: Any, live: Any) -> Any:
    """Return a manifest with the values that differ in the cluster.

    `tried` is the object as applying it would make it: the cluster rewrites some values.
    """
    if tried == live:
        return wanted
    if all(isinstance(each, dict) for each in (wanted, tried, live)):
        return {
            key: drifted(each, tried.get(key), live[key])
            for key, each in wanted.items()
            if key in live
        }
    same = isinstance(wanted, list) and isinstance(live, list) and len(wanted) == len(live)
    if same and isinstance(tried, list) and len(tried) == len(live):
        return [drifted(*each) for each in zip(wanted, tried, live, strict=True)]
    return live


def with_others(wanted: Manifest, live: Mapping[str, Any] | None) -> Manifest:
    """Return a RayCluster with what Ray's autoscaler and Kueue have set in groups of workers.

    The list of groups has one owner as a whole: an apply without these would end its workers.
    """
    if wanted["kind"] != kuberay.KIND or live is None:
        return wanted
    there = {group["groupName"]: group for group in live["spec"].get(GROUPS) or []}
    found = copy.deepcopy(wanted)
    for group in found["spec"].get(GROUPS) or []:
        before = there.get(group["groupName"], {})
        sized = "replicas" in group
        kept = {key: before[key] for key in AUTOSCALED if key in before and not sized}
        # Not lifted to minReplicas: operator and autoscaler both do that without writing it down.
        if "replicas" in kept:
            kept["replicas"] = min(kept["replicas"], group["maxReplicas"])
        group.update(kept)
        if before and kuberay.QUEUE_LABEL in wanted["metadata"]["labels"]:
            _keep_admission(group, before)
    return found


def _keep_admission(group: Manifest, live: Mapping[str, Any]) -> None:
    """Keep what Kueue wrote when it admitted pods; of pods that are recreated it writes it again.

    That is its marks, labels and taints of a flavor's nodes, and the whole group in Go's form.
    """
    template, there = group["template"], live["template"]
    if kuberay.form(template) != kuberay.form(there):
        return
    for wanted, found, keys in (
        (group, live, ("scaleStrategy",)),
        (template["metadata"], there["metadata"], ("labels", "annotations")),
        (template["spec"], there["spec"], ("nodeSelector",)),
    ):
        wanted |= {key: found[key] for key in keys if key in found}
    own = template["spec"].get("tolerations") or []
    added = [each for each in there["spec"].get("tolerations") or [] if each not in own]
    if added:
        template["spec"]["tolerations"] = [*own, *added]


def apply(api: Any, wanted: Manifest, *, dry_run: bool = False) -> Manifest:
    """Apply a manifest; an object that changes at that moment is read and applied to again.

    Raises:
        KubernetesError: the cluster refuses it.
    """
    errors = api_module()
    kind, name = str(wanted["kind"]), str(wanted["metadata"]["name"])
    with errors.explained(f"{kind} {name}", api.cluster):
        for left in reversed(range(APPLY_TRIES)):
            live = api.get(kind, name) if kind == kuberay.KIND else None
            ready = with_others(wanted, live)
            if live is not None:
                ready = copy.deepcopy(ready)
                ready["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
            try:
                return dict(api.apply(ready, dry_run=dry_run))
            except errors.ApiError as error:
                if error.status.code != errors.CONFLICT or not left:
                    raise
    raise AssertionError("a last try returns or raises")


def _leaving(api: Any, args: ObjectArgs, live: Manifest | None) -> list[str]:
    """Return uids of a RayCluster's pods that its newest form does not tell from newer ones.

    They come from a change by hand: the form's mark is as this program wrote it.
    """
    if live is None or live["kind"] != kuberay.KIND:
        return []
    marks = {kuberay.form(template) for _, template, _ in kuberay.templates(args.applied)}
    found = pods.owned(api.pods({kuberay.CLUSTER_LABEL: args.identity[-1]}), _uid(live))
    return [_uid(pod) for pod in found if kuberay.form(pod) in marks]


def _await_leave(api: Any, uids: list[str], live: Manifest | None, applied: Manifest) -> None:
    """Wait until KubeRay has begun to end pods, if it does so: until then they look ready."""
    if live is None or not uids or kuberay.made_from(live) == kuberay.made_from(applied):
        return
    labels = {kuberay.CLUSTER_LABEL: str(live["metadata"]["name"])}
    deadline = time.monotonic() + LEAVE_SECONDS
    while time.monotonic() < deadline:
        if not any(_uid(pod) in uids and not pods.is_ending(pod) for pod in api.pods(labels)):
            return
        time.sleep(POLL_SECONDS)


def _uid(live: Mapping[str, Any]) -> str:
    return str(live["metadata"]["uid"])


def _has_old_ports(api: Any, live: Manifest) -> bool:
    """Return whether a RayCluster's head has ports that its service lacks.

    KubeRay makes the service once and never changes it. If it is gone, KubeRay makes it again.
    """
    if live["kind"] != kuberay.KIND:
        return False
    name = str(live["metadata"]["name"])
    service = api.get("Service", kuberay.head_service(name)) or {"metadata": {}}
    if (service["metadata"].get("labels") or {}).get(kuberay.CLUSTER_LABEL) != name:
        return False
    opened = {port.get("name"): port["port"] for port in service["spec"]["ports"]}
    return not kuberay.head_ports(live).items() <= opened.items()


def _mine(api: Any, args: ObjectArgs) -> Manifest | None:
    """Return the object as it is, None if it does not exist."""
    kind, namespace, name = args.identity
    live: Manifest | None = api.get(kind, name)
    if live is None:
        return None
    owner = _owner(live)
    stack = args.manifest["metadata"]["labels"][STACK_LABEL]
    labels = live["metadata"].get("labels") or {}
    kept = kind == CLAIM and labels.get(KEPT_LABEL) == stack and owner is None
    if owner == args.owner or kept:
        return live
    whose = "is another stack's" if owner else "was not made by Trainyard"
    kubectl = f"kubectl --context {api.cluster.context} -n {namespace}"
    way_out = f"or remove it: {kubectl} delete {kind.lower()} {name}"
    if kind == CLAIM and not owner:  # its results are worth more than its place
        way_out = f"or hand it over: {kubectl} label pvc {name} {KEPT_LABEL}={stack}"
    raise ServiceError(
        f"{kind} {name} is in namespace {namespace} already and {whose}: nothing of it was "
        "changed. Give this stack another name or another namespace (kubernetes.namespace), "
        f"{way_out}"
    )


def _release(api: Any, args: ObjectArgs) -> None:
    """Release a claim: the next stack of this name takes it over."""
    kind, namespace, name = args.identity
    found = args.manifest["metadata"].get("labels") or {}  # after a refresh, the live ones
    labels = {STACK_LABEL: None, KEPT_LABEL: found.get(STACK_LABEL)}
    api.merge(kind, name, {"metadata": {"annotations": {OWNER: None}, "labels": labels}})
    say(
        f"kept: claim {name} with results (setting keepData; kubectl --context "
        f"{api.cluster.context} -n {namespace} delete pvc {name} when you no longer need it)"
    )


def _going(api: Any, claim: str) -> str:
    return (
        f"claim {claim} was deleted, and goes with its data once no pod uses it: bring the results "
        "home now (train pull RUN, kubectl cp), end the stack, then run up again; nothing was "
        f"changed of it (context {api.cluster.context})"
    )


def _await_end(api: Any, kind: str, name: str) -> None:
    deadline = time.monotonic() + DELETE_SECONDS
    told = time.monotonic()
    while (live := api.get(kind, name)) is not None:
        if time.monotonic() > deadline:
            raise ServiceError(_stuck(api, kind, name, live))
        if time.monotonic() - told > 15:
            told = time.monotonic()
            say(f"{kind} {name} is ending; its pods: {_pods(api, live) or 'none left'}")
        time.sleep(POLL_SECONDS)


def _stuck(api: Any, kind: str, name: str, live: Mapping[str, Any]) -> str:
    own = ["foregroundDeletion", "orphan"]
    held = [each for each in live["metadata"].get("finalizers") or [] if each not in own]
    kubectl = f"kubectl --context {api.cluster.context} -n {api.cluster.namespace}"
    text = f"{kind} {name} is still there {DELETE_SECONDS:g} s after its deletion"
    if held and not any(each.startswith(OPERATORS) for each in held):
        return (
            f"{text}: {', '.join(held)} holds it. For the reason: {kubectl} describe "
            f"{kind.lower()} {name}; remove it, and destroy again"
        )
    if held:
        patch = json.dumps({"metadata": {"finalizers": None}})
        return (
            f"{text}: the finalizers {', '.join(held)} wait for an operator that no longer runs. "
            "Start it (helm install kuberay-operator kuberay/kuberay-operator) and destroy again; "
            f"or give them up: {kubectl} patch {kind.lower()} {name} --type merge -p '{patch}'"
        )
    return (
        f"{text}. Its pods: {_pods(api, live) or 'none'}. A node that does not answer keeps them: "
        f"{kubectl} delete pod --force NAME ends one; then destroy again"
    )


def _pods(api: Any, live: Mapping[str, Any]) -> str:
    selector = ((live.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if live["kind"] == kuberay.KIND:
        selector = {kuberay.CLUSTER_LABEL: live["metadata"]["name"]}
    found = api.pods(selector) if selector else []
    return ", ".join(f"{pod['metadata']['name']} ({pod['status'].get('phase')})" for pod in found)


def _owner(live: Mapping[str, Any]) -> str | None:
    return (live["metadata"].get("annotations") or {}).get(OWNER)


def _elsewhere(before: Mapping[str, Any], context: str, api: Any) -> ServiceError:
    if api.uid() == api.server and "://" not in before["uid"]:
        return ServiceError(
            f"this stack knows its cluster by the uid of the namespace kube-system "
            f"({before['uid']}), which the user of context {context} may not read: have an admin "
            "give the right to get that namespace, then try again"
        )
    return ServiceError(
        f"context {context} leads to another cluster than the one that this stack is in (uid "
        f"{before['uid']}): name a context of that one, or destroy the stack there first. If that "
        "cluster is gone for good, `pulumi stack rm --force` forgets the stack"
    )


def api_module() -> ModuleType:
    """Return the module of the API, which is imported late."""
    return lazy_import.module("infra.places.kubernetes.api")
