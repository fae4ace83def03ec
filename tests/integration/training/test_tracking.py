"""Runs log to a real MLflow with passwords, and its faults stay its own.

test_alexnet.py shows that a job's workers log too.
"""

import io
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
import torch
from PIL import Image

from tests.integration.training.mlflow_server import PASSWORD
from trainyard import models
from trainyard.jobs import alexnet
from trainyard.resume import checkpoint_files
from trainyard.serving import uploaded
from trainyard.store import objects
from trainyard.tracking import tracking
from trainyard.tracking.runs import Run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

CONFIG = {"job": "tiny", "epochs": 2, "data": "digits", "max_images": None, "lr": 1e-4}
EPOCHS = [
    {"epoch": i, "loss": 2.0 - i, "train_acc": 0.1 * i, "minutes": 0.5 * (i + 1)} for i in range(3)
]
LOSSES = [(1, 2.0), (2, 1.0), (3, 0.0)]


@pytest.fixture
def open_run(cluster, mlflow, monkeypatch) -> Callable[[str], Run]:
    """Opens runs in the bucket, with the environment of a node."""
    own = (*tracking.SETTINGS, tracking.USER_VARIABLE, tracking.PASSWORD_VARIABLE)
    for name in own:  # variables set meanwhile are gone afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    aws = {k: v for k, v in cluster.ray_env.items() if k.startswith("AWS_")}
    for name, value in (aws | mlflow.env).items():
        monkeypatch.setenv(name, value)
    return lambda name: Run("s3://ray", name)


@pytest.fixture
def load_model(mlflow, cluster, monkeypatch) -> Callable[[str], Any]:
    """MLflow's own way to a model, with the login of a person."""
    from mlflow import pyfunc, set_tracking_uri  # a second

    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", cluster.outputs["objectStoreEndpoint"])
    set_tracking_uri(mlflow.url)
    return pyfunc.load_model


def store_checkpoint(run: Run, name: str, folder: Path) -> None:
    (folder / "checkpoint.pt").write_bytes(name.encode())
    model = {"architecture": "alexnet", "classes": ["a", "b"], "file": "checkpoint.pt"}
    checkpoint_files.store(objects.open_url(run.url), name, folder, model)


def test_a_run_logs_what_made_it_and_what_it_made(open_run, mlflow, cluster, tmp_path):  # A45
    run = open_run("logged")
    config = CONFIG | {f"option_{i}": i for i in range(120)}  # MLflow takes 100 at once
    run.start(config)
    run.write_metrics(EPOCHS[:1])
    run.write_metrics(EPOCHS[:2])
    store_checkpoint(run, "checkpoint_000002-aaaa", tmp_path)
    run.end()
    found = mlflow.run("logged")
    params = {each["key"]: each["value"] for each in found["data"]["params"]}
    assert params == {k: v if isinstance(v, str) else json.dumps(v) for k, v in config.items()}
    tags = {each["key"]: each["value"] for each in found["data"]["tags"]}
    assert tags["trainyard.run"] == "s3://ray/logged"
    assert found["info"]["status"] == "FINISHED"
    assert mlflow.steps("logged", "loss") == LOSSES[:2]
    assert mlflow.steps("logged", "epoch") == []
    artifacts = mlflow.get("artifacts/list", run_id=found["info"]["run_id"])
    assert [each["path"] for each in artifacts["files"]] == ["curves.png"]
    [version] = mlflow.versions("tiny")
    assert version["source"] == "s3://ray/logged/checkpoint_000002-aaaa"
    assert cluster.keys("logged/checkpoint_000002-aaaa/manifest.json")
    tags = {each["key"]: each["value"] for each in version["tags"]}
    assert json.loads(tags["classes"]) == ["a", "b"]
    manifest = json.loads(cluster.read("logged/checkpoint_000002-aaaa/manifest.json"))
    assert tags["sha256"] == manifest["files"]["checkpoint.pt"]["sha256"]


def test_a_run_that_goes_on_logs_to_the_same_and_each_step_once(open_run, mlflow, tmp_path):  # A45
    for epochs, name in ((2, "checkpoint_000002-aaaa"), (3, "checkpoint_000003-bbbb")):
        run = open_run("goes-on")
        run.start(CONFIG | {"job": "goes", "epochs": epochs})
        for done in range(epochs):  # from its beginning, at other times: the last had no checkpoint
            again = [record | {"minutes": 9.0 + epochs} for record in EPOCHS[: done + 1]]
            run.write_metrics(again)
        run.write_metrics([*EPOCHS[: epochs - 1], EPOCHS[epochs - 1] | {"test_acc": 0.5}])
        folder = tmp_path / name
        folder.mkdir()
        store_checkpoint(run, name, folder)
        run.end()
    open_run("goes-on").end()
    assert mlflow.steps("goes-on", "loss") == LOSSES
    assert mlflow.steps("goes-on", "test_acc") == [(2, 0.5), (3, 0.5)]
    tags = {each["key"]: each["value"] for each in mlflow.run("goes-on")["data"]["tags"]}
    assert tags["resumed.epochs"] == "3"
    found = sorted(version["source"] for version in mlflow.versions("goes"))
    assert found == [
        f"s3://ray/goes-on/{n}" for n in ("checkpoint_000002-aaaa", "checkpoint_000003-bbbb")
    ]


SCRIPT = """
import model_parts
def load(folder):
    return (folder / "checkpoint.pt").read_text()
def predict(inputs, model):
    for each in inputs:
        yield model_parts.joined(model, each)
"""


def end_with(run: Run, name: str, folder: Path, description: dict[str, Any]) -> None:
    """Ends a run whose newest checkpoint has the files of a folder."""
    run.start(CONFIG | {"job": run.name})
    checkpoint_files.store(objects.open_url(run.url), name, folder, description)
    run.end()


def test_a_model_is_loaded_by_mlflow_promoted_and_served_by_its_alias(
    open_run, mlflow, load_model, cluster, tmp_path
):
    file = cluster.write_outputs("mlflow.json", trackingUrl=mlflow.url, trackingPassword=PASSWORD)
    own_outputs = ("--outputs", str(file))
    torch.manual_seed(1)
    network = models.build("resnet18", 2).eval()
    torch.save({"model": network.state_dict(), "epoch": 0}, tmp_path / "checkpoint.pt")
    own = {"architecture": "resnet18", "classes": ["a", "b"], "image_side": 32}
    run = open_run("champion")
    for number in (1, 2, 3, 4):
        name = f"checkpoint_{number:06}-aaaa"
        end_with(run, name, tmp_path, alexnet.DESCRIPTION | own)
        if number == 1:
            promoted = cluster.train("promote", run.name, "--as", "best", *own_outputs)
            assert "version 1 of model champion is best" in promoted.stdout
        checkpoint_files.prune(run.store, frozenset())
    picture = io.BytesIO()
    Image.fromarray(numpy.full((32, 32, 3), 99, dtype=numpy.uint8)).save(picture, "PNG")
    (tmp_path / "a.png").write_bytes(picture.getvalue())
    # Two checkpoints stay of a run, and those that are versions: this is the fourth last.
    loaded = load_model("models:/champion@best")
    [found] = loaded.predict([picture.getvalue()])
    table = loaded.predict(pandas.DataFrame({"image": [str(tmp_path / "a.png")]}))
    assert table == [found]
    assert found["class"] in {"a", "b"}
    said = cluster.done("serve", "models:/champion@best", *own_outputs)
    try:
        assert "answers with checkpoint_000001-aaaa" in said
    finally:
        cluster.done("serve", "champion", "--stop", *own_outputs)
    for address, why in (
        ("models:/champion@nobody", "MLflow refuses this: Registered model alias nobody not found"),
        ("models:/champion/9", "MLflow refuses this: Model Version (name=champion, version=9)"),
        ("models:/champion", "is not models:/NAME@ALIAS or models:/NAME/VERSION"),
    ):
        refused = cluster.train("serve", address, *own_outputs)
        assert refused.returncode == 1
        assert why in refused.stderr
    refused = cluster.train("promote", "goes-on", "--as", "latest", *own_outputs)
    assert "MLflow refuses this: " in refused.stderr


def test_a_script_s_own_predict_answers_in_mlflow(open_run, load_model, tmp_path):
    code, files, run = tmp_path / "code", tmp_path / "files", open_run("scripted")
    code.mkdir()
    files.mkdir()
    (code / "job.py").write_text(SCRIPT)
    (code / "model_parts.py").write_text("def joined(*parts):\n    return '-'.join(parts)\n")
    (files / "checkpoint.pt").write_text("weights")
    names = [path.name for path in code.iterdir()]
    kept = uploaded.keep(
        objects.open_url(run.storage), run.name, ["python", "job.py"], code, names, {}
    )
    assert kept == uploaded.PREDICT
    end_with(run, "checkpoint_000001-aaaa", files, {"job": "scripted", "file": "checkpoint.pt"})
    loaded = load_model("models:/scripted/1")
    assert loaded.predict(["x", "y"]) == "weights-xweights-y"


def test_who_logs_the_same_at_the_same_time_logs_it_once(open_run, mlflow):
    driver = open_run("twice")
    driver.start(CONFIG)
    runs = [driver, open_run("twice"), open_run("twice")]
    for run in runs:
        run.write_metrics(EPOCHS)
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda run: run.end(), runs))
    assert mlflow.steps("twice", "loss") == LOSSES
    assert mlflow.steps("twice", "train_acc") == [(i + 1, pytest.approx(0.1 * i)) for i in range(3)]


def test_a_server_that_never_answers_delays_nothing_for_long(open_run, monkeypatch, capfd):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(tracking.URI_VARIABLE, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(tracking, "START_S", 2.0)
        run = open_run("silent")
        begun = time.monotonic()
        run.start(CONFIG)
        for _ in range(50):
            run.write_metrics(EPOCHS)
        assert time.monotonic() - begun < 20
        run.end()
    assert "".join(capfd.readouterr()).count("warning: ") == 1
