"""Each refusal or inability of a cluster is one message that says what to do."""

import json

import pytest

from tests.integration.infra.kubernetes.conftest import IMAGES, Lab

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SOON = 20  # seconds to wait for a service that never comes
REFUSED = "images of this test are not signed"
POLICY = "validatingadmissionpolicy"


def _fails(lab: Lab, *arguments: str) -> str:
    """The engine's message about a failed operation; no traceback is shown to a user."""
    done = lab.stack.engine(*arguments, check=False)
    said: str = done.stdout + done.stderr
    assert done.returncode != 0, said
    assert "Traceback" not in said
    return said


def test_rights_that_are_missing_are_listed(namespace, make_lab):
    lab = make_lab(namespace, kubernetes={"context": "nobody"})
    said = _fails(lab, "preview")
    assert "rayclusters" in said
    assert "statefulsets" in said


def test_an_admission_that_refuses_pods_of_ray_and_an_image_that_is_not_there(
    kubernetes, namespace, make_lab
):
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {"resourceRules": [{**pods, "resources": ["pods"]}]},
            "validations": [
                {
                    "expression": "!('ray.io/cluster' in object.metadata.labels)",
                    "message": REFUSED,
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {
            "policyName": namespace,
            "validationActions": ["Deny"],
            "matchResources": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
            },
        },
    }
    for manifest in (policy, binding):
        kubernetes.kubectl("apply", "-f", "-", text=json.dumps(manifest))
    try:
        images = {name: f"trainyard-test/{name}:latest" for name in IMAGES}
        images["prometheus"] = "trainyard-test/none:1"
        lab = make_lab(namespace, images=images, startTimeoutSeconds=SOON)
        said = _fails(lab, "up", "--yes")
        assert REFUSED in said
        assert "has no image trainyard-test/none:1" in said
        lab.stack.engine("destroy", "--yes")
    finally:
        for kind in (f"{POLICY}binding", POLICY):
            kubernetes.kubectl("delete", kind, namespace)


def test_destroy_ends_without_an_operator(kuberay, namespace, make_lab):
    lab = make_lab(namespace, startTimeoutSeconds=SOON)
    kuberay.stop()
    try:
        said = _fails(lab, "up", "--yes")
        assert "operator" in said
        lab.stack.engine("destroy", "--yes")
        assert lab.get("raycluster")["items"] == []
    finally:
        kuberay.start()
