"""The files of a stack for Argo CD and Flux: a real API server takes all of them."""

from pathlib import Path

import pytest
import yaml
from pulumi.runtime import settings as pulumi_settings

from infra.manifests import files, program
from tests.fakes.kubernetes import Node

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kuberay")]
ROOT = Path(__file__).parents[4]


def test_a_cluster_takes_each_file(  # E3
    kubernetes: Node, namespace: str, tmp_path: Path
) -> None:
    names = ("ray", "versitygw", "grafana", "jupyter", "prometheus", "alertmanager")
    config = {
        "runtime": "kubernetes",
        "kubernetes": {
            "context": "none",
            "kubeconfig": "/none",
            "namespace": namespace,
            "shared": {"hostPath": "/srv/shared"},
            "pullSecrets": ["registry"],
        },
        "images": {name: f"registry.example/{name}:1" for name in names},
        "nodeGroups": [
            {
                "name": "gpu",
                "min": 0,
                "max": 2,
                "gpus": 1,
                "nodeSelector": {"kind": "h100"},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            }
        ],
        "accelerator": "nvidia",
        "alertWebhookUrl": "https://chat.example/key",
    }
    settings = {"config": {f"trainyard:{key}": value for key, value in config.items()}}
    (tmp_path / "Pulumi.yaml").write_bytes((ROOT / "Pulumi.yaml").read_bytes())
    (tmp_path / "Pulumi.lab.yaml").write_text(yaml.safe_dump(settings))
    folder = tmp_path / "files"
    try:
        found = program.run("lab", tmp_path)
    finally:
        pulumi_settings.reset_options(project="project", stack="stack")
    written = files.write("lab", found, folder)
    apply = ("apply", "--server-side", "--dry-run=server", "--namespace", namespace)
    filled = program.VARIABLE.sub(r"\1", (folder / files.SECRETS_FILE).read_text())
    told = kubernetes.kubectl(*apply, "-f", "-", text=filled)
    told += kubernetes.kubectl(*apply, "-k", str(folder))
    assert len(told.splitlines()) == len(found.objects)
    assert "raycluster.ray.io/lab-ray" in told
    assert files.LIST_FILE in written
