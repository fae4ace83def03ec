"""Settings of stacks on Kubernetes: what they mean, and every kind of bad value."""

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from infra.machines.local import LocalHost
from infra.settings import config
from tests.unit.infra.conftest import faults

Settings = Callable[..., dict[str, str]]

WHERE = {"context": "lab", "namespace": "team"}
IMAGES = dict.fromkeys(("ray", "versitygw", "jupyter"), "registry.example/trainyard:1")
RAYS = "rayproject/ray:2.60.0-py311-cpu"
EXISTS = {"key": "gpu", "operator": "Exists"}
GOOD = {"runtime": "kubernetes", "kubernetes": WHERE, "images": IMAGES}


def _parse(settings: Settings, host: LocalHost, stack: str = "lab", **changes: Any) -> Any:
    return config.parse(settings(**{**GOOD, **changes}), host, stack)


def _faults(settings: Settings, host: LocalHost, stack: str = "lab", **changes: Any) -> str:
    return faults(settings(**{**GOOD, **changes}), host, stack)


def test_what_is_left_out_has_defaults(settings, host):
    found = _parse(settings, host).kubernetes
    assert (found.context, found.namespace, found.kubeconfig) == ("lab", "team", "")
    assert (found.storage_gib, found.storage_class, found.cpu_share) == (20, "", 1.0)
    assert found.pod_timeout_seconds == 900
    assert not found.shared


def test_without_a_notebook_none_is_wanted_of_its_images(settings, host):
    images = {name: IMAGES[name] for name in ("ray", "versitygw")}
    assert _parse(settings, host, images=images, imagePython="3.12")


def test_workers_are_not_sized_by_this_machine(settings):
    sizes = {
        cpus: _parse(settings, LocalHost(cpus=cpus, memory_mib=1024 * cpus)).workers
        for cpus in (1, 64)
    }
    assert sizes[1] == sizes[64]
    assert {(node.cpus, node.threads) for node in sizes[1]} == {(2, None)}


def test_groups_may_grow_and_have_several_gpus(settings, host):
    group = {"name": "gpu", "min": 0, "max": 2, "gpus": 4}
    found = _parse(settings, host, accelerator="nvidia", nodeGroups=[group])
    assert [node.gpus for node in found.workers] == [4, 4]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kubernetes": {}}, "kubernetes.context"),
        ({"kubernetes": WHERE, "runtime": "auto"}, "set runtime to kubernetes"),
        ({"kubernetes": WHERE | {"contxt": "x"}}, "did you mean context?"),
        ({"kubernetes": WHERE | {"namespace": "Team_1"}}, "kubernetes.namespace"),
        ({"kubernetes": WHERE | {"kubeconfig": "config"}}, "must be an absolute path"),
        ({"kubernetes": WHERE | {"kubeconfig": "~nobody-here/c"}}, "must be an absolute path"),
        ({"kubernetes": WHERE | {"storageGib": 0}}, "kubernetes.storageGib"),
        ({"kubernetes": WHERE | {"group": 0}}, "kubernetes.group"),
        ({"kubernetes": WHERE | {"cpuShare": 2}}, "kubernetes.cpuShare"),
        ({"kubernetes": WHERE | {"podTimeoutSeconds": 59}}, "a whole number from 60 to 86400"),
        ({"kubernetes": WHERE | {"queue": "Team A"}}, "must be the name of a LocalQueue"),
        ({"kubernetes": WHERE | {"priorityClass": "high"}}, "kubernetes.queue is not set"),
        (
            {"kubernetes": WHERE | {"queue": "a"}, "nodeGroups": [{"name": "a", "max": 2}]},
            "set min to max, or remove kubernetes.queue",
        ),
        ({"kubernetes": WHERE | {"pullSecrets": "x"}}, "kubernetes.pullSecrets"),
        ({"kubernetes": WHERE | {"pullSecrets": ["A B"]}}, "names of Secrets"),
        ({"kubernetes": WHERE | {"shared": {"claim": "a", "hostPath": "/b"}}}, "with one of"),
        ({"kubernetes": WHERE | {"shared": {"claim": "A B"}}}, "kubernetes.shared.claim"),
        ({"kubernetes": WHERE | {"shared": {"hostPath": "../x"}}}, "kubernetes.shared.hostPath"),
        ({"kubernetes": WHERE | {"shared": {"nfs": "192.0.2.9"}}}, "must be SERVER:/folder"),
        ({"kubernetes": WHERE | {"image": RAYS}}, "images.ray are for the same pods"),
        ({"kubernetes": WHERE | {"image": RAYS}, "queue": True}, "name an image as images.ray"),
        ({"kubernetes": WHERE | {"image": RAYS}, "accelerator": "amd"}, "which has no ROCm"),
        ({"kubernetes": WHERE | {"bucket": "results"}}, "must be s3://BUCKET[/PREFIX]"),
        ({"kubernetes": WHERE | {"bucket": "s3://a-b"}, "objectStore": "minio"}, "are two stores"),
        ({"objectStore": "directory"}, "needs a volume that pods share"),
        (
            {"objectStore": "directory", "notebook": True},
            "set notebook and page to false, and remove tracking",
        ),
        ({"imagePython": "3.10"}, "imagePython"),
        ({"dataset": {"generate": True}}, "kubernetes.shared is not set"),
        ({"dataset": {"archive": "/data/food.zip"}}, "use dataset.url"),
        ({"dataset": {"generate": True, "volume": "mine"}}, "name one of volumes, or remove it"),
        ({"containerLimits": {"grafana": {"processes": 100}}}, "podPidsLimit"),
        ({"nodeGroups": [{"name": "gpu", "gpus": 1}]}, "set accelerator to nvidia or amd"),
        ({"nodeGroups": [{"name": "a", "image": "ray"}]}, "name the version, such as ray:1.0"),
        ({"nodeGroups": [{"name": "a", "nodeSelector": {"gpu": 1}}]}, "nodeGroups[0].nodeSelector"),
        ({"nodeGroups": [{"name": "a", "tolerations": [{}]}]}, "nodeGroups[0].tolerations"),
        ({"nodeGroups": [{"name": "a", "tolerations": [EXISTS | {"value": "b"}]}]}, "tolerations"),
        ({"nodeGroups": [{"name": "a", "tolerations": [{"effect": "Never"}]}]}, "tolerations"),
        ({"worker": {"gpus": 2}}, "remove worker.gpus"),
        ({"head": {"gpus": 1}}, "remove head.gpus"),
        ({"dashboardPort": 8080}, "must be neither 8080 nor 52365"),
        ({"servePort": 52365}, "set servePort to another port"),
        ({"hosts": [{"address": "192.0.2.1"}]}, "hosts"),
        ({"dataDir": "/data"}, "is for runtime process only"),
        ({"allowedCidrs": ["192.0.2.0/24"]}, "is for runtime docker only"),
    ],
)
def test_a_fault_says_what_is_wrong(settings, host, changes, said):
    assert said in _faults(settings, host, **changes)


@pytest.mark.parametrize("field", ["image", "nodeSelector", "tolerations"])
def test_what_only_pods_have_is_refused_elsewhere(settings, host, field):
    value = {"image": "ray:1", "nodeSelector": {"a": "b"}, "tolerations": [EXISTS]}[field]
    with pytest.raises(pulumi.RunError, match=rf"nodeGroups\.a\.{field}.*runtime = 'process'"):
        config.parse(
            settings(runtime="process", nodeGroups=[{"name": "a", field: value}]), host, "lab"
        )


def test_an_owner_that_no_name_has_room_for_is_refused(settings, host):  # D4
    assert _parse(settings, host, "l" * 20, owner="netid").names_of_objects.endswith("l-netid")
    said = _faults(settings, host, "l" * 25, owner="netid")
    assert f"owner = 'netid': makes names begin with '{'l' * 25}-netid', which has over 30" in said


@pytest.mark.parametrize("stack", ["Lab", "lab_1", "l" * 31])
def test_a_stack_whose_name_no_object_could_have_is_refused(settings, host, stack):
    assert "lowercase letters" in _faults(settings, host, stack)


def test_every_image_that_nothing_builds_is_told_next_to_other_faults(settings, host):
    said = _faults(settings, host, kubernetes={"namespace": "A"}, images={}, notebook=True)
    for key in ("kubernetes.context", "kubernetes.namespace", "images.ray", "images.versitygw"):
        assert key in said
    assert "build_images REGISTRY jupyter --push" in said
    assert "or set notebook and page to false" in said
    assert "images.minio" not in said  # the store that does not run
