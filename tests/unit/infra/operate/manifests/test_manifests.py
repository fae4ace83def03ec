"""A stack on Kubernetes as files: all that `up` applies, the same each time, and no secret."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import config, settings

from infra.operate.manifests import __main__ as command
from infra.operate.manifests import files, program
from infra.operate.manifests.program import Declarations
from tests import ran
from tests.raycluster_schema import validate

ROOT = Path(__file__).parents[5]
IMAGES = ("ray", "versitygw", "minio", "prometheus", "alertmanager", "grafana", "jupyter")
IMAGES += ("dataset", "gateway", "mlflow")
STACK: dict[str, Any] = {
    "runtime": "kubernetes",
    # Nothing is asked of it, so it need not be there.
    "kubernetes": {"context": "nowhere", "kubeconfig": "/nonexistent/config", "namespace": "ml"},
    "images": {name: f"registry.example/{name}:1" for name in IMAGES},
    "nodeGroups": [
        {"name": "cpu", "count": 1, "gpus": 0},
        {"name": "gpu", "min": 0, "max": 2, "gpus": 1},
    ],
    "accelerator": "nvidia",
}


def _folder(where: Path, **changes: Any) -> Path:
    where.mkdir(exist_ok=True)
    (where / "Pulumi.yaml").write_bytes((ROOT / "Pulumi.yaml").read_bytes())
    config = {f"trainyard:{key}": value for key, value in (STACK | changes).items()}
    (where / "Pulumi.lab.yaml").write_text(yaml.safe_dump({"config": config}))
    return where


@pytest.fixture(autouse=True)
def mocks() -> Iterator[None]:
    yield
    settings.reset_options(project="project", stack="stack")
    config.set_all_config({}, [])


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Declarations:
    return program.run("lab", _folder(tmp_path_factory.mktemp("stack")))


def _kinds(found: Declarations) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for each in found.objects:
        kinds.setdefault(str(each["kind"]), []).append(str(each["metadata"]["name"]))
    return {kind: sorted(names) for kind, names in sorted(kinds.items())}


def test_all_objects_of_the_program_are_there(found):  # E3
    kinds = _kinds(found)
    assert kinds["RayCluster"] == ["lab-ray"]
    assert kinds["NetworkPolicy"] == ["lab"]
    assert kinds["PodDisruptionBudget"] == ["lab-ray-head"]
    assert "lab-versitygw" in kinds["StatefulSet"]
    assert "lab-ray-token" in kinds["Secret"]
    assert "lab-versitygw-data" in kinds["PersistentVolumeClaim"]
    assert all(each["metadata"]["namespace"] == "ml" for each in found.objects)


def test_kuberays_definition_has_all_that_the_program_sets(found):
    (cluster,) = (each for each in found.objects if each["kind"] == "RayCluster")
    validate(cluster)


def test_what_is_no_object_is_named(found):
    # What is made in services that run, and nothing else.
    assert {each.partition(" ")[0] for each in found.others} == {"Bucket", "User"}
    remarks = files.remarks(found)
    assert all(f"#   {each}\n" in remarks for each in found.others)


def test_secrets_are_variables_that_fill_them_all(found):
    text = files.secrets_text(found)
    drawn = {name: name.lower() for name in (*found.drawn, *found.given)}
    filled = yaml.safe_load_all(program.VARIABLE.sub(lambda found: drawn[found[1]], text))
    secrets = {each["metadata"]["name"]: each["stringData"] for each in filled}
    assert secrets["lab-ray-token"]["auth_token"] == "ray_token"
    assert secrets["lab-ray"]["ray-token"] == "ray_token"
    credentials = secrets["lab-ray"]["aws-credentials"]
    assert "aws_secret_access_key = object_store_training\n" in credentials
    assert "export RAY_TOKEN=$(openssl rand -hex 32)" in text


@pytest.mark.parametrize("webhook", ["https://chat.example/key", {"secure": "v1:sealed"}])
def test_no_secret_of_the_settings_is_written(webhook, tmp_path):
    found = program.run("lab", _folder(tmp_path, alertWebhookUrl=webhook))
    text = files.stream("lab", found)
    assert "v1:sealed" not in text
    assert "chat.example" not in text
    assert "stand-in" not in text
    assert "ALERT_WEBHOOK_URL" in found.given
    assert "${ALERT_WEBHOOK_URL}" in files.secrets_text(found)


def test_what_is_made_of_secrets_is_given_by_hand(tmp_path):
    # MinIO's Prometheus token is signed with a key: filled in later, it would be wrong.
    found = program.run("lab", _folder(tmp_path, objectStore="minio"))
    (secret,) = (
        each["stringData"]
        for each in found.objects
        if each["kind"] == "Secret" and each["metadata"]["name"] == "lab-prometheus"
    )
    assert set(program.VARIABLE.findall(json.dumps(secret))) <= {*found.given, *found.drawn}
    assert any(name.startswith("LAB_PROMETHEUS_") for name in found.given)


def test_two_runs_give_the_same_bytes(tmp_path):  # E3
    folder, texts = _folder(tmp_path / "stack"), []
    for seed in ("1", "2"):
        done = ran.run(
            [sys.executable, "-m", "trainyard.client", "manifests", "-s", "lab", "--to", "files"],
            cwd=folder,
            env=os.environ | {"PYTHONHASHSEED": seed},
        )
        assert done.returncode == 0, done.stderr
        texts.append({path.name: path.read_bytes() for path in (folder / "files").iterdir()})
    assert texts[0] == texts[1]
    listed = yaml.safe_load(texts[0][files.LIST_FILE])["resources"]
    assert {*listed, files.LIST_FILE, files.SECRETS_FILE} == texts[0].keys()
    kinds = [yaml.safe_load(texts[0][name])["kind"] for name in listed]
    assert kinds == sorted(kinds, key=files.ORDER.index)


def test_values_of_the_chart_say_what_it_cannot(tmp_path, capsys):
    assert command.main(["-C", str(_folder(tmp_path)), "-s", "lab", "--helm-values"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["fullnameOverride"] == "lab-ray"
    assert "# - authOptions: " in text
    assert "--version 1.6.2 -n ml -f values.yaml" in text


@pytest.mark.parametrize(
    ("changes", "stack", "said"),
    [
        ({"runtime": "process", "kubernetes": {}, "images": {}}, "lab", "has runtime 'process'"),
        ({}, "other", "Pulumi.other.yaml"),
        ({"drainSeconds": -1}, "lab", "drainSeconds"),
        ({"bukket": "a"}, "lab", "bukket"),
        ({"reservation": {"start": "2026-12-01T13:00Z"}}, "lab", "pipeline makes them again"),
    ],
)
def test_a_stack_without_manifests_is_one_message(changes, stack, said, tmp_path, capsys):
    assert command.main(["-C", str(_folder(tmp_path, **changes)), "-s", stack]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert "Traceback" not in printed.err


def test_files_of_what_is_gone_are_removed(found, tmp_path):
    files.write("lab", found, tmp_path)
    fewer = replace(found, objects=[e for e in found.objects if e["kind"] != "Deployment"])
    (tmp_path / "own.yaml").write_text("kind: Namespace\n")
    (tmp_path / files.SEALED_FILE).write_text("kind: SealedSecret\n")
    files.write("lab", fewer, tmp_path)
    listed = yaml.safe_load((tmp_path / files.LIST_FILE).read_text())["resources"]
    assert files.SEALED_FILE in listed
    left = {path.name for path in tmp_path.iterdir()}
    assert not any(name.startswith("deployment-") for name in left)
    assert "own.yaml" in left


def test_files_of_others_are_not_overwritten(found, tmp_path):
    files.write("other", found, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(pulumi.RunError, match=r"kustomization\.yaml.*--to"):
        files.write("lab", found, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_that_cannot_be_made_is_one_message(found, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(pulumi.RunError, match="--to"):
        files.write("lab", found, tmp_path / "file" / "folder")
