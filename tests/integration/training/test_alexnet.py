"""The AlexNet job end to end: epochs, its objects in the bucket, and going on."""

import io
import json
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed

import trainyard
from tests.waiting import wait_for
from trainyard import job, options
from trainyard.jobs import alexnet
from trainyard.resume import checkpoints

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

SMALL = ["--max-images", "24", "--batch-size", "12"]
JOB_DEADLINE_S = 300


def metrics(lines: bytes) -> list[dict[str, Any]]:
    """Records of the epochs, without values that differ each time."""
    records = map(json.loads, lines.splitlines())
    return [{k: v for k, v in record.items() if k != "minutes"} for record in records]


@pytest.fixture(scope="module")
def first(cluster, mlflow, tmp_path_factory) -> str:
    """Output of the run's first epoch, on a stack with MLflow."""
    node = tmp_path_factory.mktemp("node") / "env.yaml"
    node.write_text(json.dumps({"env_vars": mlflow.env}))
    options = ["--name", "cut", "--runtime-env", str(node), "--", *SMALL, "--epochs", "1"]
    return str(cluster.done("submit", "alexnet", *options, timeout=JOB_DEADLINE_S))


@pytest.fixture(scope="module")
def home(first, cluster, tmp_path_factory) -> Path:
    """The run's folder in another store, to which it was pulled."""
    assert first
    store = tmp_path_factory.mktemp("store")
    cluster.done("pull", "cut", "--to", str(store))
    assert not trainyard.load("cut", store).training
    return store / "cut"


@pytest.fixture(scope="module")
def elsewhere(home, cluster) -> str:
    """The outputs file of a stack with that store."""
    storage = home.parent.as_uri()
    return str(cluster.write_outputs("folder.json", storageUrl=storage, bucket=""))


@pytest.fixture(scope="module")
def resumed(home, elsewhere, cluster) -> str:
    """Output of the run's second epoch, in the other store."""
    env = cluster.folder / "folder.yaml"  # what the nodes of such a stack have
    env.write_text(f"env_vars: {{TRAINYARD_STORAGE_URL: '{home.parent.as_uri()}'}}")
    options = ["--name", "cut", "--outputs", elsewhere, "--runtime-env", str(env)]
    asked = ("submit", "alexnet", *options, "--", *SMALL, "--epochs", "2")
    return str(cluster.done(*asked, timeout=JOB_DEADLINE_S))


@pytest.fixture
def whole(tmp_path, monkeypatch) -> list[dict[str, Any]]:
    """Records of two epochs in one go, by the job's worker with no Ray around it."""
    told: list[dict[str, Any]] = []
    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    monkeypatch.setattr("ray.train.get_context", lambda: context)
    monkeypatch.setattr(job, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(alexnet, "prepare_model", lambda network: network)
    monkeypatch.setattr(checkpoints, "restore_newest", lambda _check: nullcontext(None))
    monkeypatch.setattr(checkpoints, "report", lambda record, *_, **__: told.append(record))
    monkeypatch.setattr(checkpoints, "new_folder", lambda: tmp_path)
    config = options.parse(alexnet.parser, [*SMALL, "--epochs", "2"])
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        alexnet.train_worker(job.Session(config | {"storage": tmp_path.as_uri(), "run": "whole"}))
    finally:
        distributed.destroy_process_group()
    return metrics("\n".join(json.dumps(record) for record in told).encode())


def test_an_epoch_prints_the_lines_of_the_seed(first):
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
def test_a_run_leaves_all_that_tells_how_it_was_made(cluster):
    assert json.loads(cluster.read("cut/config.json"))["epochs"] == 1
    start = json.loads(cluster.read("cut/starts.jsonl").splitlines()[0])
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", start["commit"])
    assert start["packages"]["torch"] == torch.__version__.partition("+")[0]
    assert cluster.read("cut/curves.png").startswith(b"\x89PNG")
    assert "Epoch: 001/001" in cluster.done("logs", "cut", "--worker", "0")
    assert "it names 0: `" in cluster.train("logs", "cut", "--worker", "1").stderr


@pytest.mark.usefixtures("first")
def test_the_checkpoint_holds_tensors_and_plain_values_only(cluster):
    [key] = [k for k in cluster.keys("cut/checkpoint_") if k.endswith("checkpoint.pt")][-1:]
    state = torch.load(io.BytesIO(cluster.read(key)), weights_only=True)  # F40
    assert set(state) == {"model", "optimizer", "history", "asked"}


def test_a_run_that_was_pulled_goes_on_in_another_store_and_ends_like_a_whole_one(  # A3 C6
    cluster, home, elsewhere, resumed, whole
):
    storage = home.parent.as_uri()
    assert re.search(  # A39
        rf"Restored from checkpoint {storage}/cut/checkpoint_\S+: 1 epochs are done", resumed
    )
    assert "Epoch: 001/" not in resumed
    assert "Epoch: 002/002" in resumed
    found = metrics((home / "metrics.jsonl").read_bytes())
    assert [record["epoch"] for record in found] == [0, 1]  # no gap
    # The cut run measured test accuracy after its first last epoch too.
    found[0].pop("final_train_acc"), found[0].pop("test_acc")
    assert found == whole  # F21
    # test_faults.py tests the kept checkpoints of more epochs, and the effects of killed workers.
    files = sorted(str(path.relative_to(home)) for path in home.glob("checkpoint_0*/*"))
    assert [re.sub("-[0-9a-f]{4}", "", file) for file in files] == [
        f"checkpoint_{number:06d}/{file}"
        for number in (1, 2)
        for file in ("checkpoint.pt", "manifest.json")
    ]
    shown = cluster.train("show", "cut", "--outputs", elsewhere).stdout
    assert re.search(rf"checkpoint\s+{storage}/cut/checkpoint_", shown)
    assert (home / "curves.png").is_file()


def test_a_job_is_logged(cluster, first, mlflow):  # A45
    assert "warning: MLflow" not in first
    assert [step for step, _ in mlflow.steps("cut", "loss")] == [1]
    sources = [version["source"] for version in mlflow.versions("alexnet")]
    newest = [key for key in cluster.keys("cut/") if key.endswith("manifest.json")][-1]
    assert f"s3://ray/{newest.removesuffix('/manifest.json')}" in sources
    tags = {each["key"]: each["value"] for each in mlflow.run("cut")["data"]["tags"]}
    assert tags["trainyard.job"].startswith("raysubmit_")
    assert len(tags["mlflow.source.git.commit"].removesuffix("-dirty")) == 40


def test_a_job_that_was_stopped_is_killed_in_mlflow(cluster, mlflow, tmp_path):  # A45
    node, curves = tmp_path / "env.yaml", tmp_path / "c.png"
    node.write_text(json.dumps({"env_vars": mlflow.env}))
    options = ["--name", "stopped", "--no-wait", "--runtime-env", str(node)]
    cluster.done("submit", "alexnet", *options, "--", *SMALL, "--epochs", "500")
    # It is in MLflow before its first epoch, and is drawn from that on.
    wait_for("an epoch", lambda: "stopped/metrics.jsonl" in cluster.keys("stopped/"))
    assert mlflow.run("stopped")["info"]["status"] == "RUNNING"
    cluster.done("stop", "stopped")
    wait_for("its end", lambda: mlflow.run("stopped")["info"]["status"] == "KILLED")
    cluster.done("show", "stopped", "--curves", str(curves))
    assert curves.read_bytes().startswith(b"\x89PNG")
