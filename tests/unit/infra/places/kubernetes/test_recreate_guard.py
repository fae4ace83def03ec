"""A change that recreates all pods of Ray is refused while jobs run."""

import base64
import copy

import pytest

from cluster import kuberay
from cluster.provider import FORCE
from infra.operate import dashboard
from infra.places.kubernetes import recreate_guard
from infra.places.kubernetes.objects import STACK_LABEL, ObjectProvider
from infra.places.kubernetes.recreate_guard import RecreateGuardProvider
from node.life import ServiceError
from trainyard.access import outputs

TOKEN = "token-of-the-pods"
JOBS = [
    {"submission_id": "raysubmit_1", "status": "RUNNING", "metadata": {"run": "night"}},
    {"submission_id": "raysubmit_2", "status": "SUCCEEDED", "metadata": {}},
]
CLUSTER = {
    "spec": {
        "headGroupSpec": {"template": {"spec": {"containers": []}}},
        "workerGroupSpecs": [
            {"groupName": "gpu", "maxReplicas": 1, "template": {"spec": {"containers": []}}}
        ],
    }
}


@pytest.fixture
def olds(cluster):
    return {
        "cluster": vars(cluster) | {"uid": "cluster-1"},
        "owner": "stack-1",
        "manifest": {
            "kind": "RayCluster",
            "metadata": {"name": "lab-ray", "labels": {STACK_LABEL: "lab"}},
            **CLUSTER,
        },
        "secret": "lab-ray-token",
        "dashboard": "http://127.0.0.1:8265",
    }


@pytest.fixture
def asked(fake, olds, monkeypatch):
    """What the dashboard of a cluster that is there was asked with; it answers with JOBS."""
    ObjectProvider().create({**olds, "secrets": {}, "keep": False})
    monkeypatch.delenv(FORCE, raising=False)
    fake.objects["pods", "head"] = _pod(ready=True)
    data = {kuberay.TOKEN_KEY: base64.b64encode(TOKEN.encode()).decode()}
    fake.objects["secrets", "lab-ray-token"] = {"metadata": {"name": "lab-ray-token"}, "data": data}
    found = []

    def ask(known, way, path):
        found.append((known, way, path))
        return JOBS

    monkeypatch.setattr(dashboard, "ask_dashboard", ask)
    return found


def _pod(*, ready, **metadata):
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": "head", **metadata}, "status": {"conditions": conditions}}


def _update(olds, **changes):
    return RecreateGuardProvider().update("lab-ray", olds, olds | changes)


def _other(olds):
    """Another image of the head, as a change of `_update`."""
    found = copy.deepcopy(olds["manifest"])
    found["spec"]["headGroupSpec"]["template"]["spec"]["containers"] = [{"image": "new"}]
    return {"manifest": found}


def test_jobs_that_would_be_lost_are_named(olds, asked, monkeypatch):
    with pytest.raises(ServiceError, match=r"lost: raysubmit_1 \(night\)\. Wait") as error:
        _update(olds, **_other(olds))
    assert "raysubmit_2" not in str(error.value)
    ((known, way, _),) = asked
    assert known == {outputs.DASHBOARD_URL: olds["dashboard"], outputs.RAY_TOKEN: TOKEN}
    monkeypatch.setattr(recreate_guard, "forwarded", lambda *to: to)
    assert way("127.0.0.1", 8265)[1:] == ("lab-ray-head-svc", 8265)


def test_who_forces_it_is_not_asked(olds, asked, monkeypatch):
    monkeypatch.setenv(FORCE, "1")
    assert _update(olds, **_other(olds)).outs["manifest"] == _other(olds)["manifest"]
    assert asked == []


def test_what_makes_no_pod_anew_asks_nobody(olds, asked):
    _update(olds, dashboard="http://127.0.0.1:9265")
    assert asked == []


@pytest.mark.parametrize("head", [_pod(ready=False), _pod(ready=True, deletionTimestamp="now")])
def test_a_head_that_does_not_run_or_ends_is_not_asked(olds, asked, fake, head, capfd):
    fake.objects["pods", "head"] = head
    _update(olds, **_other(olds))
    assert asked == []
    assert "Ray's head does not run, so its pods are recreated" in capfd.readouterr().err


@pytest.mark.parametrize("ends", [False, True])
def test_a_head_that_does_not_answer_is_ended_only_if_it_ends_by_itself(
    olds, asked, fake, monkeypatch, capfd, ends
):
    def ask(*_):
        fake.objects["pods", "head"] = _pod(
            ready=True, **({"deletionTimestamp": "now"} if ends else {})
        )
        raise dashboard.AskError("no answer")

    monkeypatch.setattr(dashboard, "ask_dashboard", ask)
    if ends:
        _update(olds, **_other(olds))
        assert "Ray's head ends, so its pods are recreated: no answer" in capfd.readouterr().err
        return
    with pytest.raises(
        ServiceError, match=r"cannot tell which jobs would be lost: no answer\. Run"
    ):
        _update(olds, **_other(olds))


def test_pods_of_an_older_form_than_the_state_says_are_guarded_too(olds, asked, fake):
    news = olds | _other(olds)  # an `up` before passed the guard, and failed before the RayCluster
    provider = RecreateGuardProvider()
    assert provider.diff("lab-ray", news, news).changes
    with pytest.raises(ServiceError, match="these jobs would be lost"):
        provider.update("lab-ray", news, news)
    assert not provider.diff("lab-ray", olds, olds).changes
    fake.objects["rayclusters", "lab-ray"]["spec"]["headGroupSpec"]["template"] = {}  # by hand
    assert provider.diff("lab-ray", olds, olds).changes
    with pytest.raises(ServiceError, match="these jobs would be lost"):
        provider.update("lab-ray", olds, olds)


def test_a_stack_that_moves_to_another_namespace_is_guarded(olds, asked):
    with pytest.raises(ServiceError, match="these jobs would be lost"):
        _update(olds, cluster=olds["cluster"] | {"namespace": "other"})


def test_a_cluster_that_is_gone_has_no_jobs(olds, asked, fake):
    del fake.objects["rayclusters", "lab-ray"]
    _update(olds, **_other(olds))
    assert asked == []


@pytest.mark.parametrize(
    ("path", "value", "replaced"),
    [
        (("maxReplicas",), 2, False),
        (("replicas",), 2, False),
        (("template", "spec", "tolerations"), [{"key": "gpu"}], False),
        (("template", "spec", "nodeSelector"), {"gpu": "h100"}, True),
        (("rayStartParams",), {"num-cpus": "2"}, True),
    ],
)
def test_pods_are_replaced_when_their_inputs_change(path, value, replaced):
    changed = copy.deepcopy(CLUSTER)
    place = changed["spec"]["workerGroupSpecs"][0]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    assert (kuberay.made_from(changed) != kuberay.made_from(CLUSTER)) == replaced
    del changed["spec"]["workerGroupSpecs"]  # as a user may by hand
    assert kuberay.made_from(changed)["workerGroupSpecs"] == []
