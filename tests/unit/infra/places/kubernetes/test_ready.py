"""Waiting: what counts as ready, and why it is not, while it waits and when it gives up."""

import copy
from datetime import UTC, datetime, timedelta

import pytest

from cluster import kuberay
from infra.places.kubernetes import pods, ready
from node import life
from node.life import ServiceError

LABELS = {"trainyard/service": "store"}
SCHEDULED = {"type": "PodScheduled", "status": "True"}


def pod(name="lab-store-0", *, phase="Pending", conditions=(SCHEDULED,), labels=None, **status):
    """A pod as the API tells of it."""
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels or LABELS,
            "ownerReferences": [{"uid": "uid-x"}],
        },
        "spec": {"containers": [{"name": "store"}]},
        "status": {"phase": phase, "conditions": list(conditions), **status},
    }


def container(state, *, restarts=0, **more):
    return {
        "containerStatuses": [{"name": "store", "state": state, "restartCount": restarts, **more}]
    }


def waiting(reason, message=""):
    return {"waiting": {"reason": reason, "message": message}}


ENDED = {"terminated": {"exitCode": 3, "reason": "Error"}}
UNPLACED = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes: Insufficient cpu."}
IS_READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("found", "said", "final"),
    [
        (pod(conditions=[UNPLACED]), "is placed on no node: 0/1 nodes: Insufficient cpu.", False),
        (
            pod(**container(waiting("ErrImagePull", "no such host"), image="x:1")),
            "has no image x:1: no such host",
            False,
        ),
        (pod(**container(waiting("InvalidImageName"))), "has no image", True),
        (
            pod(**container(waiting("CreateContainerConfigError", "secret not found"))),
            "cannot start: secret not found",
            False,
        ),
        (
            pod(**container(waiting("CrashLoopBackOff"), restarts=2, lastState=ENDED)),
            "ended 2 times (exit code 3)",
            False,
        ),
        (
            pod(**container(waiting("CrashLoopBackOff"), restarts=3, lastState=ENDED)),
            "ended 3 times (exit code 3)",
            True,
        ),
        (
            pod(
                **container(
                    waiting("CrashLoopBackOff"),
                    restarts=1,
                    lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                )
            ),
            "exit code 137, out of memory",
            False,
        ),
    ],
)
def test_a_pod_says_why_it_is_not_ready(found, said, final):
    (trouble,) = pods.troubles([found])
    assert said in trouble.line
    assert "lab-store-0" in trouble.line
    assert trouble.final is final


def test_pods_that_only_need_time_have_no_trouble():
    creating = pod(**container(waiting("ContainerCreating")))
    back = pod(phase="Running", **container({"running": {}}, restarts=1, lastState=ENDED, ready=1))
    assert pods.troubles([creating, back]) == []
    assert pods.is_creating(creating)
    # KubeRay's wait for the head: the container after it has yet to begin.
    begun = pod(**container(waiting("PodInitializing")))
    begun["status"]["initContainerStatuses"] = [{"name": "wait", "state": {"running": {}}}]
    assert not pods.is_creating(begun)
    begun["status"]["initContainerStatuses"][0]["name"] = "packages"  # of gigabytes
    assert pods.is_creating(begun)
    assert not pods.is_creating(back)


def _set(kind, status, generation=2):
    live = {"kind": kind, "metadata": {"name": "x", "generation": generation}}
    live["metadata"]["uid"] = "uid-x"
    return live | {"spec": {"replicas": 1}, "status": status}


def _template(form="new"):
    return {"metadata": {"annotations": {kuberay.FORM: form}}}


def _ray(status, **fewest):
    groups = [
        {"groupName": name, "minReplicas": count, "template": _template()}
        for name, count in fewest.items()
    ]
    spec = {"headGroupSpec": {"template": _template()}, "workerGroupSpecs": groups}
    return _set("RayCluster", status) | {"spec": spec}


def _ray_pod(name, group, *, form="new", conditions=(IS_READY,)):
    # As KubeRay 1.7 labels them; 1.6 numbers only pods of several hosts each.
    labels = {kuberay.GROUP_LABEL: group, "ray.io/worker-group-replica-index": "0"}
    found = pod(name, conditions=conditions, labels=labels)
    found["metadata"] |= _template(form)["metadata"]
    return found


COUNTS = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
# Of a generation before: KubeRay writes the newest only with another change of the status.
RAY = {"state": "ready", "observedGeneration": 1}
HEAD = _ray_pod("head", "headgroup")


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (_set("Deployment", {"observedGeneration": 2, **COUNTS}), True),
        (_set("Deployment", {"observedGeneration": 1, **COUNTS}), False),  # of what was before
        (_set("StatefulSet", {"observedGeneration": 2, **COUNTS, "updatedReplicas": 0}), False),
        (_set("StatefulSet", {"observedGeneration": 2, "replicas": 1}), False),
        (_set("Job", {"succeeded": 1}), True),
        (_set("Job", {"active": 1}), False),
        (_ray(RAY), True),
        (_ray(RAY | {"state": "suspended"}), False),
        # Pods that the autoscaler requests need not exist.
        (_ray(RAY | {"desiredWorkerReplicas": 1}), True),
        (_ray({}), False),
    ],
)
def test_ready_is_what_the_newest_form_of_an_object_asks_for(live, expected):
    assert ready.settled(live, [HEAD]) is expected


def test_of_each_group_the_fewest_are_ready_and_others_may_come_and_go():
    live = _ray(RAY, cpu=0, gpu=1)
    gpu, ending = _ray_pod("a", "gpu"), _ray_pod("b", "gpu")
    ending["metadata"]["deletionTimestamp"] = "now"
    assert not ready.settled(live, [HEAD])
    assert not ready.settled(live, [HEAD, ending])
    assert not ready.settled(live, [HEAD, _ray_pod("c", "cpu")])  # more of another group
    assert ready.settled(live, [HEAD, gpu, ending])


def test_pods_of_before_a_change_do_not_count():
    live = _ray(RAY, gpu=1)
    old_head, old = (_ray_pod(n, g, form="old") for n, g in (("h", "headgroup"), ("w", "gpu")))
    new = _ray_pod("v", "gpu")
    assert not ready.settled(live, [old_head, new])
    assert not ready.settled(live, [HEAD, old])
    assert ready.settled(live, [HEAD, old, new])


def test_a_ray_cluster_whose_head_was_lost_is_not_ready():
    assert not ready.settled(_ray(RAY), [])
    assert not ready.settled(_ray(RAY), [_ray_pod("head", "headgroup", conditions=())])


class FakeApi:
    """An API that answers what it is told; each look is one step further."""

    def __init__(self, cluster, live, *looks, log=(), warning="", queued=()):
        self.cluster, self.live, self.looks = cluster, live, list(looks)
        self._log, self._warning, self._queued = list(log), warning, list(queued)

    def get(self, _kind, _name):
        return copy.deepcopy(self.live)

    def pods(self, _labels):
        self.found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return self.found

    def log(self, pod, *_, lines=0):
        there = pod in [each["metadata"]["name"] for each in self.found]
        return self._log[-lines:] if there else []

    def warning(self, _live):
        return self._warning

    def queued(self, _live):
        """Say why it waits, a look each; then it is admitted."""
        if len(self._queued) == 1:
            self.live["spec"]["suspend"], self.live["status"] = False, RAY
        return self._queued.pop(0) if self._queued else ""


@pytest.fixture
def wait(cluster, monkeypatch):
    monkeypatch.setattr(ready.PodsDriver, "poll_seconds", 0.01)

    def run(live, *looks, timeout=0.1, once=False, **more):
        monkeypatch.setattr(ready, "_api", lambda _: FakeApi(cluster, live, *looks, **more))
        props = _ready_props(cluster, live["kind"], "lab-store") | {"once": once}
        life.await_up(ready.PodsDriver(ready.ReadyArgs.of(props), tells=True), timeout)

    return run


NOTHING = _set("StatefulSet", {"observedGeneration": 1})


def test_a_pod_of_before_the_change_may_go_first(wait, monkeypatch):
    crashed = pod(**container(waiting("CrashLoopBackOff"), restarts=3, lastState=ENDED))
    placed = pod("lab-store-1", conditions=[UNPLACED])
    with pytest.raises(ServiceError, match="lab-store-1 is placed on no node"):
        wait(NOTHING, [crashed], [crashed], [placed])
    monkeypatch.setattr(ready, "GRACE_SECONDS", 0)
    with pytest.raises(ServiceError, match="does not come up"):
        wait(NOTHING, [crashed], timeout=3600)


def test_a_reason_is_shown_once_while_it_waits(wait, capfd):
    unplaced = [pod(conditions=[UNPLACED])]
    with pytest.raises(ServiceError, match=r"not up after 0.1 s \(setting startTimeoutSecon"):
        wait(NOTHING, unplaced)
    assert capfd.readouterr().err.count("is placed on no node") == 1


def test_the_time_does_not_run_while_images_are_pulled(wait, monkeypatch):
    pulling = [pod(**container(waiting("ContainerCreating")))]
    unplaced = [pod(conditions=[UNPLACED])]
    looks = [*[pulling] * 30, unplaced]  # three times as long as it may take
    with pytest.raises(ServiceError, match="is placed on no node"):
        wait(NOTHING, *looks)
    monkeypatch.setattr(ready, "PULL_SECONDS", 0.05)
    with pytest.raises(ServiceError, match="no pod says why"):
        wait(NOTHING, pulling)


@pytest.mark.parametrize("text", ["exceeded quota: small", "admission webhook denied it"])
def test_pods_that_may_not_be_made_are_told_by_events(wait, text):
    with pytest.raises(ServiceError, match=text):
        wait(NOTHING, [], warning=text)


def test_an_operator_that_does_nothing_is_named(wait, monkeypatch):
    monkeypatch.setattr(ready, "OPERATOR_SECONDS", 0)
    with pytest.raises(ServiceError, match="KubeRay's operator has not looked"):
        wait(_ray({}), [])
    with pytest.raises(ServiceError, match=r"has not said so \(status.state: none\)"):
        wait(_ray({"observedGeneration": 2}), [HEAD])
    old = _ray_pod("head-1", "headgroup", form="old")
    with pytest.raises(ServiceError, match=r"pod head-1 is from before the change.*: delete it"):
        wait(_ray(RAY), [old])


@pytest.mark.parametrize("kind", ["Deployment", "RayCluster"])
def test_pods_that_are_refused_beside_others_are_told_by_a_condition(wait, kind):
    text = "pods is forbidden: exceeded quota: gpus"
    refused = {"type": "ReplicaFailure", "status": "True", "message": text}
    live = _ray(RAY, gpu=1) | {"kind": kind}
    live["status"] = RAY | {"observedGeneration": 2, "conditions": [refused]}
    with pytest.raises(ServiceError, match=text):
        wait(live, [HEAD])
    refused["status"] = "False"
    with pytest.raises(ServiceError, match=r"not up after"):
        wait(live, [HEAD])


def test_a_change_that_kuberay_refuses_is_told_while_pods_of_before_are_ready(wait):
    old = _ray_pod("head", "headgroup", form="old")
    with pytest.raises(ServiceError, match="The RayCluster spec is invalid: names"):
        wait(_ray(RAY), [old], warning="The RayCluster spec is invalid: names")


def test_a_program_that_runs_once_shows_its_log_and_fails_at_once(wait, capfd):
    runs = pod(phase="Running", **container({"running": {}}))
    failed = pod(phase="Failed", **container(ENDED))
    failed["spec"]["restartPolicy"] = "Never"
    live = _set("Job", {})
    with pytest.raises(ServiceError, match="exit code 3"):
        wait(live, [], [runs], [runs], [failed], once=True, timeout=0.3, log=["half of it"])
    assert capfd.readouterr().err.count("lab-store: half of it") == 1


def test_why_a_pod_failed_is_told_although_another_has_taken_its_place(wait):
    failed = pod(**container(ENDED))
    with pytest.raises(ServiceError, match="The image has no python"):
        wait(_set("StatefulSet", {}), [failed], [], log=["The image has no python"])


def _suspended(*, done):
    """What KubeRay 1.6.2 says of a cluster, from the moment that it is to be suspended."""
    ends = {"HeadPodReady", "RayClusterProvisioned", "RayClusterSuspending"}
    told = {**dict.fromkeys(ends, not done), "RayClusterSuspended": done}
    conditions = [{"type": kind, "status": str(told[kind]), "message": ""} for kind in told]
    return RAY | {"state": "suspended" if done else "ready", "conditions": conditions}


def test_a_suspended_cluster_is_told_with_what_has_it_go_on(wait, capfd):
    asked = _ray(RAY)
    asked["spec"]["suspend"] = True
    begun, done = (_ray(_suspended(done=each)) for each in (False, True))
    ending = copy.deepcopy(HEAD)
    ending["metadata"]["deletionTimestamp"] = "2026-11-25T14:16:06Z"
    for live, found in ((asked, [HEAD]), (begun, [ending]), (done, [])):
        with pytest.raises(ServiceError) as error:
            wait(live, found)
        for said in (str(error.value), capfd.readouterr().err):
            assert "RayCluster x is suspended" in said
            assert """patch raycluster x --type merge -p '{"spec": {"suspend": false}}'""" in said


def test_a_quota_is_waited_for_without_a_bound_and_a_kueue_that_is_silent_is_not(wait, capfd):
    live = _ray(_suspended(done=True))
    live["spec"]["suspend"] = True
    live["metadata"]["labels"] = {kuberay.QUEUE_LABEL: "team"}
    wait(copy.deepcopy(live), [HEAD], timeout=0.05, queued=["2 more cpu needed"] * 40)
    line = "RayCluster x waits in Kueue's queue team: 2 more cpu needed"
    assert capfd.readouterr().err.count(line) == 1
    wait(copy.deepcopy(live), [HEAD], timeout=0.5, queued=["", "", *["2 more cpu needed"] * 3])
    assert line in capfd.readouterr().err
    with pytest.raises(ServiceError, match=r"an answer of Kueue; does it run\? kubectl get pods"):
        wait(live, [])


def test_pods_of_a_cluster_that_was_deleted_are_not_its_successors(wait):
    left = copy.deepcopy(HEAD)
    left["metadata"]["ownerReferences"] = [{"uid": "uid-of-before"}]
    with pytest.raises(ServiceError, match="not up after"):
        wait(_ray(RAY), [left])
    wait(_ray(RAY), [left, HEAD])


def _ready_props(cluster, kind, name):
    found = {"cluster": vars(cluster), "kind": kind, "name": name, "pods": LABELS, "once": False}
    return found | {"version": "1", "timeout": 1, "ready": True}


def test_what_was_set_right_after_a_change_by_hand_is_waited_for(fake, cluster):
    provider = ready.ReadyProvider()
    props = _ready_props(cluster, "Deployment", "x")
    assert provider.diff("", props, props).changes  # deleted: about to be made again
    fake.objects["deployments", "x"] = _set("Deployment", {"observedGeneration": 1, **COUNTS})
    assert provider.diff("", props, props).changes
    fake.objects["deployments", "x"]["status"]["observedGeneration"] = 2
    assert not provider.diff("", props, props).changes
    ray = _ready_props(cluster, "RayCluster", "x")
    fake.objects["rayclusters", "x"] = _ray(RAY)
    assert provider.diff("", ray, ray).changes  # it has no pods yet
    fake.objects["pods", "head"] = HEAD
    assert not provider.diff("", ray, ray).changes


@pytest.mark.parametrize(("lived", "loops"), [(10, True), (3600, False)])
def test_ends_of_long_ago_do_not_count(lived, loops):  # F63
    now = datetime.now(UTC)
    since, begin = ((now - timedelta(seconds=each)).isoformat() for each in (10, 10 + lived))
    before = ENDED["terminated"] | {"startedAt": begin, "finishedAt": since}
    state, last = {"running": {"startedAt": since}}, {"terminated": before}
    assert pods.loops(pod(**container(state, restarts=3, lastState=last, ready=True))) is loops


def test_the_logs_of_all_containers_are_read_below_their_names(cluster, monkeypatch):
    found = FakeApi(cluster, {}, [pod(), pod("lab-store-1")], log=["a", "b", "c"])
    monkeypatch.setattr(ready, "_api", lambda _: found)
    log = ready.ReadyProvider().log("x", _ready_props(cluster, "StatefulSet", "lab-store"), 2)
    assert log == ["==> lab-store-0 store <==", "b", "c", "==> lab-store-1 store <==", "b", "c"]
