"""The AlexNet job end to end: epochs, its objects in the bucket, and going on."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed

import trainyard
from tests.integration.training.mlflow_server import Server
from tests.unit.trainyard import cifar10_files
from trainyard import checkpoints, job, options
from trainyard.data.node_folder import FOLDER_VARIABLE
from trainyard.jobs import alexnet

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

IMAGES = 24
SMALL = ["--max-images", str(IMAGES), "--batch-size", "12"]
JOB_DEADLINE_S = 300


def metrics(lines: bytes) -> list[dict[str, Any]]:
    """Records of the epochs, without values that differ each time."""
    records = map(json.loads, lines.splitlines())
    return [{k: v for k, v in record.items() if k != "minutes"} for record in records]


@pytest.fixture(scope="module")
def train(
    cluster: Any, mlflow: Server, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., str]:
    """Submits the run, as on a stack with MLflow; returns the job's output."""
    node = tmp_path_factory.mktemp("node") / "env.yaml"
    node.write_text(json.dumps({"env_vars": mlflow.env}))

    def submit(*arguments: str) -> str:
        options = ["--name", "cut", "--runtime-env", str(node), "--", *SMALL]
        result = cluster.train("submit", "alexnet", *options, *arguments, timeout=JOB_DEADLINE_S)
        assert result.returncode == 0, result.stdout + result.stderr
        out: str = result.stdout
        return out

    return submit


@pytest.fixture(scope="module")
def first(train: Callable[..., str]) -> str:
    """Output of the run's first epoch."""
    return train("--epochs", "1")


@pytest.fixture(scope="module")
def resumed(first: str, train: Callable[..., str]) -> str:
    """Output of the run's second epoch."""
    return train("--epochs", "2")


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[dict[str, Any]]]:
    """Trains by the job's worker with no Ray around it; returns the records of the epochs."""
    told: list[dict[str, Any]] = []
    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    monkeypatch.setattr("ray.train.get_context", lambda: context)
    monkeypatch.setattr(job, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(alexnet, "prepare_model", lambda network: network)
    monkeypatch.setattr(checkpoints, "restored", lambda _check: nullcontext(None))
    monkeypatch.setattr(checkpoints, "report", lambda record, *_, **__: told.append(record))
    monkeypatch.setattr(checkpoints, "new_folder", lambda: tmp_path)

    def train(*arguments: str) -> list[dict[str, Any]]:
        config = options.parse(alexnet.parser, [*SMALL, *arguments])
        distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
        try:
            given = {"storage": tmp_path.as_uri(), "run": "whole"}
            alexnet.train_worker(job.Session(config | given))
        finally:
            distributed.destroy_process_group()
        return metrics("\n".join(json.dumps(record) for record in told).encode())

    return train


@pytest.fixture
def whole(alone: Callable[..., list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Records of two epochs in one go."""
    return alone("--epochs", "2")


def test_cifar10_is_trained_on(  # A3
    alone: Callable[..., list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    cifar10_files.write(tmp_path, monkeypatch)
    [record] = alone("--data", "cifar10", "--epochs", "1")
    for name, images in (("valid_acc", 5), ("test_acc", 10), ("final_train_acc", IMAGES)):
        assert record[name] * images == pytest.approx(round(record[name] * images))


def test_an_epoch_prints_the_lines_of_the_seed(first: str) -> None:
    for item in (
        r"\(RayTrainWorker pid=\d+\) \{'loss': \d\.\d+, 'epoch': 0\}",  # A33
        r"Epoch: 001/001 \| Train\. Acc\.: \d+\.\d{3}% \| Loss: \d\.\d{4}",  # A34
        r"Epoch: 001/001 \| Valid\. Acc\.: \d+\.\d{3}% \| Loss: \d\.\d{4}",  # A34
        r"Time elapsed: \d+\.\d\d min",  # A35
        r"^Total Training Time: \d+\.\d\d min$",  # A35
        r"^Train ACC: \d+\.\d\d%$",
        r"^Validation ACC: \d+\.\d\d%$",
        r"^Test ACC: \d+\.\d\d%$",
        r"^Training completed after 1 epochs: s3://ray/cut$",
        r"^Job 'raysubmit_\w+' succeeded$",  # A38
    ):
        assert len(re.findall(item, first, re.MULTILINE)) == 1, f"{item}\n{first}"
    assert "progress:" not in first  # nobody watches


@pytest.mark.usefixtures("first")
def test_a_run_leaves_all_that_tells_how_it_was_made(cluster: Any) -> None:
    assert json.loads(cluster.read("cut/config.json"))["epochs"] in (1, 2)  # as in the last start
    start = json.loads(cluster.read("cut/starts.jsonl").splitlines()[0])
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", start["commit"])
    assert start["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert cluster.read("cut/curves.png").startswith(b"\x89PNG")


@pytest.mark.usefixtures("first")
def test_the_checkpoint_holds_tensors_and_plain_values_only(cluster: Any) -> None:
    [key] = [k for k in cluster.keys("cut/checkpoint_") if k.endswith("checkpoint.pt")][-1:]
    state = torch.load(io.BytesIO(cluster.read(key)), weights_only=True)  # F40
    assert set(state) == {"model", "optimizer", "history", "asked"}


def test_a_run_goes_on_and_ends_like_one_that_was_not_cut_off(
    cluster: Any, resumed: str, whole: list[dict[str, Any]]
) -> None:
    assert re.search(  # A39
        r"Restored from checkpoint s3://ray/cut/checkpoint_\S+: 1 epochs are done", resumed
    )
    assert "Epoch: 001/" not in resumed
    assert "Epoch: 002/002" in resumed
    found = metrics(cluster.read("cut/metrics.jsonl"))
    assert [record["epoch"] for record in found] == [0, 1]  # no gap
    # The cut run measured test accuracy after its first last epoch too.
    found[0].pop("final_train_acc"), found[0].pop("test_acc")
    assert found == whole  # F21
    # test_faults.py tests the kept checkpoints of more epochs, and the effects of killed workers.
    files = sorted(key.split("/", 1)[1] for key in cluster.keys("cut/checkpoint_0"))
    assert [re.sub("-[0-9a-f]{4}", "", file) for file in files] == [
        f"checkpoint_{number:06d}/{file}"
        for number in (1, 2)
        for file in ("checkpoint.pt", "manifest.json")
    ]


def test_a_job_is_logged(cluster: Any, first: str, resumed: str, mlflow: Server) -> None:  # A45
    assert "warning: MLflow" not in first + resumed
    assert [step for step, _ in mlflow.steps("cut", "loss")] == [0, 1]
    sources = [version["source"] for version in mlflow.versions("alexnet")]
    newest = [key for key in cluster.keys("cut/") if key.endswith("manifest.json")][-1]
    assert f"s3://ray/{newest.removesuffix('/manifest.json')}" in sources
    tags = {each["key"]: each["value"] for each in mlflow.run("cut")["data"]["tags"]}
    assert tags["trainyard.job"].startswith("raysubmit_")
    assert len(tags["mlflow.source.git.commit"].removesuffix("-dirty")) == 40


@pytest.mark.usefixtures("first")
def test_runs_are_listed_and_shown(cluster: Any, tmp_path: Path) -> None:
    rows = json.loads(cluster.train("runs", "--json").stdout)
    [row] = [row for row in rows if row["run"] == "cut"]
    assert row["job"] == "SUCCEEDED"
    done, _, asked = row["epochs"].partition("/")
    assert done == asked
    shown = cluster.train("show", "cut", "--curves", str(tmp_path / "c.png")).stdout
    assert re.search(r"checkpoint\s+s3://ray/cut/checkpoint_", shown)
    assert re.search(r"commit [0-9a-f]{40}", shown)
    assert "valid_acc" in shown
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_data_that_is_missing_is_one_message(cluster: Any) -> None:
    result = cluster.train("submit", "alexnet", "--", "--data", "folder:/nowhere")
    assert result.returncode == 1
    errors = [line for line in result.stdout.splitlines() if "no images in" in line]
    assert len(errors) == 1
    assert errors[0].startswith("error: no images in /nowhere/train")
    assert "Traceback" not in result.stdout


@pytest.mark.usefixtures("first")
def test_a_run_that_was_pulled_goes_on_in_another_store_and_two_workers_count_every_image_once(
    cluster: Any, tmp_path: Path
) -> None:  # A3 C6
    pulled = cluster.train("pull", "cut", "--to", str(tmp_path / "store"))
    assert pulled.returncode == 0, pulled.stdout + pulled.stderr
    home = tmp_path / "store" / "cut"
    done = len((home / "metrics.jsonl").read_text().splitlines())
    assert not trainyard.load("cut", tmp_path / "store").training
    storage = (tmp_path / "store").as_uri()
    env = tmp_path / "env.yaml"  # what the nodes of such a stack have
    env.write_text(f"env_vars: {{TRAINYARD_STORAGE_URL: '{storage}'}}")
    outputs = str(cluster.write_outputs("folder.json", storageUrl=storage, bucket=""))
    options = ["--name", "cut", "--outputs", outputs, "--runtime-env", str(env)]
    two = ["--epochs", str(done + 1), "--workers", "2"]
    result = cluster.train(
        "submit", "alexnet", *options, "--", *SMALL, *two, timeout=JOB_DEADLINE_S
    )
    assert result.returncode == 0, result.stdout + result.stderr
    restored = rf"Restored from checkpoint {storage}/cut/checkpoint_\S+: {done} epochs are done"
    assert re.search(restored, result.stdout)
    shown = cluster.train("show", "cut", "--outputs", outputs).stdout
    assert re.search(rf"checkpoint\s+{storage}/cut/checkpoint_", shown)
    assert (home / "curves.png").is_file()
    records = [json.loads(line) for line in (home / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == list(range(done + 1))  # no gap
    for name in ("valid_acc", "test_acc", "final_train_acc"):
        assert records[-1][name] * IMAGES == pytest.approx(round(records[-1][name] * IMAGES))
