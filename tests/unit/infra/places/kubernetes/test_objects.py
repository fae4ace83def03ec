"""Objects: the dry run as diff, strangers left alone, claims kept, sizes of the autoscaler kept."""

import copy

import pytest
from pulumi.runtime import rpc

from cluster import kuberay
from infra.places.kubernetes import objects
from infra.places.kubernetes.api import KubernetesError
from infra.places.kubernetes.objects import KEPT_LABEL, OWNER, STACK_LABEL, ObjectProvider
from node.life import ServiceError

RAY = ("rayclusters", "lab-ray")


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(objects, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(objects, "DELETE_SECONDS", 0.1)


@pytest.fixture
def props(cluster):
    """What a ConfigMap is declared by; others change the manifest."""
    return {
        "cluster": vars(cluster) | {"uid": "cluster-1"},
        "owner": "stack-1",
        "manifest": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "lab-x", "namespace": "team", "labels": {STACK_LABEL: "lab"}},
            "data": {"a": "1"},
        },
        "secrets": {},
        "keep": False,
    }


def _kind(props, kind, name, **more):
    found = copy.deepcopy(props)
    found["manifest"] |= {"kind": kind} | more
    found["manifest"].pop("data")
    found["manifest"]["metadata"]["name"] = name
    return found


def _changed(props, data):
    found = copy.deepcopy(props)
    found["manifest"]["data"] = data
    return found


def _diff(olds, news):
    return ObjectProvider().diff("", olds, news)


def test_an_object_is_made_once_and_then_the_same(fake, props):
    made = ObjectProvider().create(props)
    assert made.id == "ConfigMap/team/lab-x"
    assert fake.objects["configmaps", "lab-x"]["metadata"]["annotations"] == {OWNER: "stack-1"}
    assert not _diff(made.outs, props).changes
    assert fake.applied == [("lab-x", False), ("lab-x", True)]  # the diff wrote nothing


def test_a_change_in_the_settings_and_one_by_hand_are_both_seen(fake, props):
    ObjectProvider().create(props)
    assert _diff(props, _changed(props, {"a": "2"})).changes
    fake.objects["configmaps", "lab-x"]["data"]["a"] = "by hand"
    assert _diff(props, props).changes
    assert ObjectProvider().read("id", props).outs["manifest"]["data"] == {"a": "by hand"}
    ObjectProvider().update("id", props, props)
    assert not _diff(props, props).changes
    assert ObjectProvider().read("id", props).outs == props


def test_of_a_drifted_object_only_what_differs_is_told():
    wanted = {"memory": "1024Mi", "replicas": 1, "ports": [{"a": 1.0}, {"b": 2}], "gone": 1}
    tried = {"memory": "1Gi", "replicas": 1, "ports": [{"a": 1}, {"b": 2}], "gone": 1, "more": 0}
    live = {"memory": "1Gi", "replicas": 0, "ports": [{"a": 1}, {"b": 3}], "more": 0}
    expected = {"memory": "1024Mi", "replicas": 0, "ports": [{"a": 1.0}, {"b": 3}]}
    assert objects.drifted(wanted, tried, live) == expected


def test_an_object_that_is_gone_is_made_again(fake, props):
    ObjectProvider().create(props)
    del fake.objects["configmaps", "lab-x"]
    assert ObjectProvider().read("id", props).id == ""
    assert _diff(props, props).changes
    ObjectProvider().update("id", props, props)
    assert ("configmaps", "lab-x") in fake.objects


def test_an_object_that_is_being_deleted_is_not_there(fake, props, monkeypatch):
    """Preview, drift and refresh say so, and an `up` waits for its end."""
    made = ObjectProvider().create(props)
    key = "configmaps", "lab-x"
    fake.objects[key]["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
    assert ObjectProvider().read(made.id, props).id == ""
    assert _diff(made.outs, props).changes
    with pytest.raises(ServiceError, match="ConfigMap lab-x is still there"):
        ObjectProvider().update(made.id, props, props)
    monkeypatch.setattr(objects, "_await_end", lambda *_: fake.objects.pop(key))
    ObjectProvider().update(made.id, props, props)
    assert "deletionTimestamp" not in fake.objects[key]["metadata"]


def test_a_claim_that_is_being_deleted_is_told_before_its_data_goes(fake, props):
    claim = _kind(props, "PersistentVolumeClaim", "lab-data") | {"keep": True}
    made = ObjectProvider().create(claim)
    there = fake.objects["persistentvolumeclaims", "lab-data"]["metadata"]
    there["deletionTimestamp"] = "2026-11-26T00:00:00Z"  # a pod that uses it holds it
    assert _diff(made.outs, claim).changes
    with pytest.raises(ServiceError, match="claim lab-data was deleted, and goes with its data"):
        ObjectProvider().update(made.id, claim, claim)


def test_engines_that_pass_fractions_on_change_nothing(fake, props):
    ObjectProvider().create(props)
    news = _changed(props, {"a": 1.0})
    ObjectProvider().update("id", props, news)
    assert fake.objects["configmaps", "lab-x"]["data"] == {"a": 1}
    assert not _diff(_changed(props, {"a": 1}), news).changes


def test_what_is_not_known_yet_asks_nothing(fake, props):
    assert _diff(props, _changed(props, {"a": rpc.UNKNOWN})).changes
    assert fake.applied == []


@pytest.mark.parametrize("annotations", [{}, {OWNER: "stack-2"}])
def test_an_object_of_somebody_else_is_refused_and_left(fake, props, annotations):
    fake.objects["configmaps", "lab-x"] = {
        "kind": "ConfigMap",
        "metadata": {"name": "lab-x", "annotations": annotations},
        "data": {"a": "theirs"},
    }
    before = copy.deepcopy(fake.objects)
    with pytest.raises(ServiceError, match="ConfigMap lab-x is in namespace team already"):
        ObjectProvider().create(props)
    with pytest.raises(ServiceError, match="nothing of it was changed"):
        _diff(props, props)
    ObjectProvider().delete("id", props)
    assert fake.objects == before


def test_another_cluster_behind_the_context_is_noticed(fake, props):
    ObjectProvider().create(props)
    fake.objects["namespaces", "kube-system"] = {"metadata": {"uid": "cluster-2"}}
    objects.api_module().open_api.cache_clear()
    for call in (
        lambda: ObjectProvider().delete("id", props),
        lambda: ObjectProvider().read("id", props),
        lambda: _diff(props, {**props, "cluster": props["cluster"] | {"uid": "cluster-2"}}),
    ):
        with pytest.raises(ServiceError, match="another cluster"):
            call()
    assert fake.deleted == []


def test_secrets_are_in_the_data_and_in_no_manifest(fake, props):
    found = _kind(props, "Secret", "lab-s") | {"secrets": {"token": "t0p"}}
    ObjectProvider().create(found)
    assert fake.objects["secrets", "lab-s"]["data"] == {"token": "dDBw"}
    assert "dDBw" not in str(found["manifest"])
    fake.objects["secrets", "lab-s"]["data"] = {"token": "Ynk="}
    assert ObjectProvider().read("id", found).outs["secrets"] == {"token": "by"}


def test_a_job_is_replaced_the_old_one_first(fake, props):
    job = _kind(props, "Job", "lab-job", spec={"template": {"a": 1}})
    ObjectProvider().create(job)
    news = copy.deepcopy(job)
    news["manifest"]["spec"]["template"]["a"] = 2
    found = _diff(job, news)
    assert (found.replaces, found.delete_before_replace) == (["manifest"], True)
    assert not _diff(job, job).changes
    elsewhere = job | {"cluster": job["cluster"] | {"kubeconfig": "/moved"}}
    assert _diff(elsewhere, job).changes
    assert not _diff(elsewhere, job).replaces
    fake.objects["jobs", "lab-job"]["status"] = {"failed": 1}  # its archive was away
    assert _diff(job, job).replaces == ["manifest"]


def test_a_kept_claim_outlives_the_stack_and_the_next_one_takes_it(fake, props, capfd):
    claim = _kind(props, "PersistentVolumeClaim", "lab-data") | {"keep": True}
    ObjectProvider().create(claim)
    ObjectProvider().delete("id", claim)
    kept = fake.objects["persistentvolumeclaims", "lab-data"]["metadata"]
    assert kept["labels"] == {KEPT_LABEL: "lab"}  # nothing is left under the stack's label
    assert OWNER not in kept["annotations"]
    assert "kept: claim lab-data" in capfd.readouterr().err
    ObjectProvider().create(claim | {"owner": "stack-2"})
    again = fake.objects["persistentvolumeclaims", "lab-data"]["metadata"]
    assert (again["labels"], again["annotations"]) == ({STACK_LABEL: "lab"}, {OWNER: "stack-2"})


def test_a_claim_whose_labels_somebody_took_is_let_go(fake, props, capfd):
    claim = _kind(props, "PersistentVolumeClaim", "lab-data") | {"keep": True}
    ObjectProvider().create(claim)
    live = fake.objects["persistentvolumeclaims", "lab-data"]
    del live["metadata"]["labels"]
    ObjectProvider().delete("id", ObjectProvider().read("id", claim).outs)
    assert OWNER not in live["metadata"]["annotations"]
    assert "kept: claim lab-data" in capfd.readouterr().err
    with pytest.raises(ServiceError, match=f"label pvc lab-data {KEPT_LABEL}=lab"):
        ObjectProvider().create(claim | {"owner": "stack-2"})


def test_a_kept_claim_that_is_refused_stays_to_be_taken(fake, props):
    claim = _kind(props, "PersistentVolumeClaim", "lab-data") | {"keep": True}
    ObjectProvider().create(claim)
    ObjectProvider().delete("id", claim)
    fake.refuse = lambda _: (422, "spec is immutable after creation")
    with pytest.raises(KubernetesError, match="immutable"):
        ObjectProvider().create(claim | {"owner": "stack-2"})
    fake.refuse = lambda _: None
    ObjectProvider().create(claim | {"owner": "stack-2"})


def test_a_claim_of_nobody_is_handed_over_not_deleted(fake, props):
    fake.objects["persistentvolumeclaims", "lab-data"] = {"metadata": {"name": "lab-data"}}
    claim = _kind(props, "PersistentVolumeClaim", "lab-data") | {"keep": True}
    with pytest.raises(ServiceError, match=f"label pvc lab-data {KEPT_LABEL}=lab") as error:
        ObjectProvider().create(claim)
    assert "delete" not in str(error.value)


def test_who_may_not_read_the_clusters_identity_and_who_may_share_a_stack(fake, props):
    known_by_address = props["cluster"] | {"uid": "http://192.0.2.1"}
    ObjectProvider().create({**props, "cluster": known_by_address})
    assert _diff({**props, "cluster": known_by_address}, props).changes
    ObjectProvider().delete("id", {**props, "cluster": known_by_address})
    assert fake.deleted == ["lab-x"]


def test_who_may_not_read_the_identity_that_others_know_is_told_of_the_right(fake, props):
    del fake.objects["namespaces", "kube-system"]
    with pytest.raises(ServiceError, match="give the right to get that namespace"):
        ObjectProvider().create(props)


def test_a_claim_that_is_not_to_be_kept_goes(fake, props):
    claim = _kind(props, "PersistentVolumeClaim", "lab-data")
    ObjectProvider().create(claim)
    ObjectProvider().delete("id", claim)
    assert ("persistentvolumeclaims", "lab-data") not in fake.objects


def _cluster_of(props, *groups, dashboard=8265):
    ports = [{"name": "dashboard", "containerPort": dashboard}]
    head = {"template": {"spec": {"containers": [{"name": "ray-head", "ports": ports}]}}}
    spec = {"headGroupSpec": head, "workerGroupSpecs": list(groups)}
    return _kind(props, "RayCluster", "lab-ray", spec=spec)


def _template(image):
    return {"template": {"spec": {"containers": [{"image": image}]}}}


GROWS = {"groupName": "gpu", "minReplicas": 0, "maxReplicas": 4, **_template("a")}


def test_an_apply_keeps_the_sizes_that_the_autoscaler_gave(fake, props):
    ray = _cluster_of(props, GROWS)
    ObjectProvider().create(ray)
    live = fake.objects[RAY]["spec"]["workerGroupSpecs"][0]
    live |= {"replicas": 3, "scaleStrategy": {"workersToDelete": ["w"]}}
    assert not _diff(ray, ray).changes
    assert ObjectProvider().read("id", ray).outs == ray
    news = _cluster_of(props, GROWS | _template("b"))
    ObjectProvider().update("id", ray, news)
    found = fake.objects[RAY]["spec"]["workerGroupSpecs"][0]
    assert found["template"]["spec"] == _template("b")["template"]["spec"]
    assert (found["replicas"], found["scaleStrategy"]) == (3, {"workersToDelete": ["w"]})


def test_an_apply_keeps_where_kueue_has_admitted_pods_until_these_are_made_anew(fake, props):
    fixed = GROWS | {"replicas": 4}
    ray, news = (_cluster_of(props, fixed | _template(image)) for image in "ab")
    for each in (ray, news):
        each["manifest"]["metadata"]["labels"][kuberay.QUEUE_LABEL] = "team"
    ObjectProvider().create(ray)
    group = fake.objects[RAY]["spec"]["workerGroupSpecs"][0]
    group["scaleStrategy"] = {}
    template = group["template"]
    template["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "gpu"}
    flavor = {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}]}
    template["spec"] |= flavor
    assert not _diff(ray, ray).changes
    assert ObjectProvider().read("id", ray).outs == ray
    template["spec"]["containers"][0]["image"] = "of-a-stranger"
    assert _diff(ray, ray).changes
    ObjectProvider().update("id", ray, ray)
    found = fake.objects[RAY]["spec"]["workerGroupSpecs"][0]["template"]
    assert found["spec"] == {"containers": [{"image": "a"}]} | flavor
    assert found["metadata"]["labels"] == {"kueue.x-k8s.io/podset": "gpu"}
    ObjectProvider().update("id", ray, news)
    found = fake.objects[RAY]["spec"]["workerGroupSpecs"][0]["template"]
    assert found["spec"] == {"containers": [{"image": "b"}]}


def test_a_lower_maximum_bounds_the_size_and_a_fixed_group_has_its_own(props):
    live = {"spec": {"workerGroupSpecs": [GROWS | {"replicas": 4}]}}
    lower = _cluster_of(props, GROWS | {"maxReplicas": 2})["manifest"]
    assert objects.with_others(lower, live)["spec"]["workerGroupSpecs"][0]["replicas"] == 2
    fixed = _cluster_of(props, GROWS | {"replicas": 1})["manifest"]
    assert objects.with_others(fixed, live)["spec"]["workerGroupSpecs"][0]["replicas"] == 1


def test_the_fewest_of_a_group_are_no_change_once_the_cluster_has_written_its_default(props):
    # The CRD's default is 0, and Ray's autoscaler leaves it until it first scales the group.
    live = {"spec": {"workerGroupSpecs": [GROWS | {"minReplicas": 1, "replicas": 0}]}}
    wanted = _cluster_of(props, GROWS | {"minReplicas": 1})["manifest"]
    assert objects.with_others(wanted, live)["spec"]["workerGroupSpecs"][0]["replicas"] == 0


def test_pods_are_marked_by_what_they_are_made_from(fake, props):
    def forms(props):
        ObjectProvider().create(props)
        spec = fake.objects[RAY]["spec"]
        templates = [spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"]]
        return [each["metadata"]["annotations"][kuberay.FORM] for each in templates]

    before = forms(_cluster_of(props, GROWS))
    assert before[0] == before[1]
    assert forms(_cluster_of(props, GROWS | {"maxReplicas": 5})) == before
    after = forms(_cluster_of(props, GROWS | _template("b")))
    assert before[0] not in after


def test_pods_of_what_was_changed_by_hand_are_about_to_end_before_it_is_set_right(
    fake, props, monkeypatch
):
    ray = _cluster_of(props, GROWS)
    ObjectProvider().create(ray)
    marked = copy.deepcopy(fake.objects[RAY]["spec"]["headGroupSpec"]["template"]["metadata"])
    waited = []

    def act(_):
        waited.append("once")
        fake.objects["pods", "head"]["metadata"]["deletionTimestamp"] = "now"

    monkeypatch.setattr(objects.time, "sleep", act)
    owner = {"ownerReferences": [{"uid": fake.objects[RAY]["metadata"]["uid"]}]}
    for changed, expected in (({"containers": []}, ["once"]), ({}, [])):
        waited.clear()
        fake.objects["pods", "head"] = {"metadata": {"name": "head", "uid": "1", **marked, **owner}}
        fake.objects[RAY]["spec"]["headGroupSpec"]["template"]["spec"].update(changed)
        ObjectProvider().update("id", ray, ray)
        assert waited == expected


def _service(name, dashboard):
    return {
        "metadata": {"name": "lab-ray-head-svc", "labels": {"ray.io/cluster": name}},
        "spec": {"ports": [{"name": "dashboard", "port": dashboard}, {"name": "x", "port": 1}]},
    }


def test_a_service_of_the_head_with_ports_of_before_goes_so_that_kuberay_makes_another(fake, props):
    service = ("services", "lab-ray-head-svc")
    before, after = _cluster_of(props, GROWS), _cluster_of(props, GROWS, dashboard=9265)
    ObjectProvider().create(before)
    fake.objects[service] = _service("lab-ray", 8265)
    ObjectProvider().update("id", before, before)
    assert service in fake.objects
    ObjectProvider().update("id", before, after)
    assert fake.deleted == ["lab-ray-head-svc"]
    # An `up` was killed between the two.
    fake.objects[service] = _service("lab-ray", 8265)
    assert _diff(after, after).changes
    fake.objects[service] = _service("somebody-else", 8265)
    assert not _diff(after, after).changes


def test_a_patch_of_the_autoscaler_between_look_and_apply_is_not_overwritten(fake, props):
    ray = _cluster_of(props, GROWS)
    ObjectProvider().create(ray)
    tries = []

    def conflict(wanted):
        tries.append(wanted["metadata"].get("resourceVersion"))
        live = fake.objects[RAY]
        if len(tries) == 1:  # patched at this moment
            live["spec"]["workerGroupSpecs"][0]["replicas"] = 2
            live["metadata"]["resourceVersion"] = "7"
        old = tries[-1] != live["metadata"]["resourceVersion"]
        return (409, "the object has been modified") if old else None

    fake.refuse = conflict
    ObjectProvider().update("id", ray, ray)
    assert tries == ["1", "7"]
    assert fake.objects[RAY]["spec"]["workerGroupSpecs"][0]["replicas"] == 2


@pytest.mark.parametrize(
    ("code", "message", "said"),
    [
        (500, "failed to create typed patch object: .spec.rpc: not declared", "the cluster says"),
        (403, "pods is forbidden: exceeded quota: small", "have it raised"),
        (403, 'User "u" cannot patch', "Have the right granted"),
        (400, "admission webhook denied the request: no latest", "admission webhook denied"),
    ],
)
def test_a_refusal_is_one_message(fake, props, code, message, said):
    fake.refuse = lambda _: (code, message)
    with pytest.raises(KubernetesError) as error:
        ObjectProvider().create(props)
    assert said in str(error.value)
    assert message in str(error.value)
    assert "namespace team of context lab" in str(error.value)


def test_an_end_that_never_comes_says_what_holds_it(fake, props):
    ray = _cluster_of(props, GROWS)
    ObjectProvider().create(ray)
    fake.stays = True
    fake.objects[RAY]["metadata"]["finalizers"] = ["foregroundDeletion", "ray.io/gcs"]
    with pytest.raises(ServiceError, match=r"finalizers ray.io/gcs wait for an operator") as no:
        ObjectProvider().delete("id", ray)
    assert "patch raycluster lab-ray --type merge" in str(no.value)
    fake.objects[RAY]["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]
    with pytest.raises(ServiceError, match=r"pvc-protection holds it.*describe raycluster"):
        ObjectProvider().delete("id", ray)
    fake.objects[RAY]["metadata"]["finalizers"] = ["foregroundDeletion"]
    fake.objects["pods", "p"] = {"metadata": {"name": "p"}, "status": {"phase": "Running"}}
    with pytest.raises(ServiceError, match=r"Its pods: p \(Running\)"):
        ObjectProvider().delete("id", ray)


@pytest.mark.parametrize("name", ["lab-x", "lab-ada-x"])
def test_another_owner_does_not_take_the_claims_from_a_stack_that_is_up(props, name):  # D4
    provider = ObjectProvider()
    assert not provider.check({}, props).failures
    news = copy.deepcopy(props)
    news["manifest"]["metadata"]["name"] = name
    failures = provider.check(props, news).failures
    assert len(failures) == (name != "lab-x")
    for each in failures:
        assert "ConfigMap lab-x is this stack's, and its name or the setting owner" in each.reason
        assert "make it lab-ada-x. Nothing was changed. Set it back; or end" in each.reason
    elsewhere = {**news, "cluster": {**props["cluster"], "namespace": "other"}}
    assert not provider.check(props, elsewhere).failures  # the claims stay there, by their names
