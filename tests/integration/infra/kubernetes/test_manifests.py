"""The files of a stack for Argo CD and Flux, and for KubeRay's chart: a real cluster takes them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi.runtime import settings as pulumi_settings

from infra.operate.manifests import files, program
from tests import go_tools, ran
from tests.fakes.kubernetes import kuberay

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kuberay")]
ROOT = Path(__file__).parents[4]
READY_SECONDS = 300  # pods have a tenth of a processor each
# What KubeRay's chart cannot say, as the comments in the values tell; variables have the token in
# place of `authOptions`, and Kubernetes itself mounts the token of its API.
POD = {
    *("metadata.labels.app.kubernetes.io/managed-by", "spec.automountServiceAccountToken"),
    *("spec.containers.env", "spec.terminationGracePeriodSeconds"),
}
LACKING = {
    *("authOptions", "upgradeStrategy", "autoscalerOptions.env", "autoscalerOptions.volumeMounts"),
    *(f"headGroupSpec.template.{each}" for each in (*POD, "spec.volumes")),
    *("workerGroupSpecs.idleTimeoutSeconds", "workerGroupSpecs.labels"),
    *(f"workerGroupSpecs.template.{each}" for each in POD),
}
# The pod in which a task ran.
TASK = """\
import os, ray
ray.init(log_to_driver=False)
print(ray.get(ray.remote(num_cpus=1)(lambda: os.uname().nodename).remote()))
"""


def declared(folder: Path, namespace: str, **changes: Any) -> program.Declarations:
    """What the stack `lab` in a folder declares."""
    config = {
        "runtime": "kubernetes",
        "kubernetes": {
            "context": "none",
            "kubeconfig": "/none",
            "namespace": namespace,
            **changes.pop("kubernetes", {}),
        },
        "accelerator": "nvidia",
        **changes,
    }
    settings = {"config": {f"trainyard:{key}": value for key, value in config.items()}}
    (folder / "Pulumi.yaml").write_bytes((ROOT / "Pulumi.yaml").read_bytes())
    (folder / "Pulumi.lab.yaml").write_text(yaml.safe_dump(settings))
    try:
        return program.run("lab", folder)
    finally:
        pulumi_settings.reset_options(project="project", stack="stack")


def filled(folder: Path) -> str:
    """The Secrets of a folder, each variable as its own secret."""
    return program.VARIABLE.sub(r"\1", (folder / files.SECRETS_FILE).read_text())


def test_a_cluster_takes_each_file(kubernetes, namespace, tmp_path):  # E3
    names = ("ray", "versitygw", "grafana", "jupyter", "prometheus", "alertmanager")
    found = declared(
        tmp_path,
        namespace,
        kubernetes={"shared": {"nfs": "192.0.2.9:/srv/shared"}, "pullSecrets": ["registry"]},
        images={name: f"registry.example/{name}:1" for name in names},
        nodeGroups=[
            {
                "name": "gpu",
                "min": 0,
                "max": 2,
                "gpus": 1,
                "nodeSelector": {"kind": "h100"},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            }
        ],
        alertWebhookUrl="https://chat.example/key",
    )
    folder = tmp_path / "files"
    written = files.write("lab", found, folder)
    apply = ("apply", "--server-side", "--dry-run=server", "--namespace", namespace)
    told = kubernetes.kubectl(*apply, "-f", "-", text=filled(folder))
    told += kubernetes.kubectl(*apply, "-k", str(folder))
    assert len(told.splitlines()) == len(found.objects)
    assert "raycluster.ray.io/lab-ray" in told
    assert files.LIST_FILE in written


@pytest.fixture
def helm(kubernetes, namespace) -> Callable[..., str]:
    """Runs helm in the namespace; its output."""
    try:
        program_ = go_tools.obtain(kuberay.HELM)
    except go_tools.NoGoError as error:
        pytest.skip(str(error))

    def run(*arguments: str) -> str:
        where = (f"--kubeconfig={kubernetes.kubeconfig}", f"--namespace={namespace}")
        return ran.output([program_, *arguments, *where])

    return run


def test_kuberays_chart_starts_the_cluster_of_the_stack(  # E3
    kubernetes, namespace, helm, wait_for, tmp_path
):
    size = {"gpus": 0, "cpus": 1, "memoryMib": 2048}
    found = declared(
        tmp_path,
        namespace,
        kubernetes={"cpuShare": 0.1},
        images={name: f"trainyard-test/{name}:latest" for name in ("ray", "versitygw")},
        nodeGroups=[{"name": "cpu", "count": 1, **size}, {"name": "more", "max": 2, **size}],
        grafana=False,
    )
    files.write("lab", found, tmp_path / "files")
    values = tmp_path / "values.yaml"
    values.write_text(files.values("lab", found))
    in_namespace = f"--namespace={namespace}"
    kubernetes.kubectl("apply", in_namespace, "--filename=-", text=filled(tmp_path / "files"))
    (ours,) = (each for each in found.objects if each["kind"] == files.RAY_CLUSTER)
    others = [each for each in found.objects if each["kind"] not in {"Secret", files.RAY_CLUSTER}]
    objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": others})
    kubernetes.kubectl("apply", in_namespace, "--filename=-", text=objects)
    helm("install", "raycluster", str(kuberay.chart()), f"--values={values}")
    try:
        name = ours["metadata"]["name"]
        get = ("get", "raycluster", name, in_namespace, "--output=json")
        made = json.loads(kubernetes.kubectl(*get))
        assert _lacking(ours["spec"], made["spec"]) == LACKING

        def ready() -> bool:
            status = json.loads(kubernetes.kubectl(*get)).get("status", {})
            return bool(status.get("readyWorkerReplicas"))

        wait_for(ready, READY_SECONDS)
        head = json.loads(kubernetes.kubectl(*get))["status"]["head"]["podName"]
        ran = kubernetes.kubectl("exec", head, in_namespace, "--", "python3", "-c", TASK)
        assert ran.strip().startswith(f"{name}-cpu-worker")
    finally:
        helm("uninstall", "raycluster", "--wait")


def _lacking(ours: Any, made: Any, path: str = "") -> set[str]:
    """Paths of the manifest's values that another one has not, or has another value for."""
    if isinstance(ours, Mapping) and isinstance(made, Mapping):
        here = f"{path}." if path else ""
        return {
            each
            for key, value in ours.items()
            for each in (_lacking(value, made[key], here + key) if key in made else {here + key})
        }
    if isinstance(ours, list) and isinstance(made, list) and len(ours) == len(made):
        return {
            each
            for one, other in zip(ours, made, strict=True)
            for each in _lacking(one, other, path)
        }
    return set() if ours == made else {path}
