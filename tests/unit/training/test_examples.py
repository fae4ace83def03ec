"""Runs of all jobs that are done or that others began; the two examples' data. No Ray."""

import io
import json
import struct
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from trainyard import options
from trainyard.client import scripts
from trainyard.data import fashion_mnist, streaming, synthetic_images
from trainyard.data.node_folder import FOLDER_VARIABLE
from trainyard.data.synthetic_images import Recipe
from trainyard.errors import JobError
from trainyard.jobs import (
    alexnet,
    chargpt,
    digits_lightgbm,
    pytorch_distributed_training,
    pytorch_training_e2e,
)
from trainyard.jobs.food11 import train_fault_tolerant
from trainyard.tracking.run_folder import STORAGE_VARIABLE
from trainyard.tracking.runs import Run

JOBS = [pytorch_distributed_training, pytorch_training_e2e]


def test_lightgbm_finds_workers_of_one_machine_by_an_address_that_interfaces_have():  # E1
    nodes = "127.0.0.3:47951,127.0.0.4:34019,192.0.2.127:9,10.127.0.0:9"
    found = digits_lightgbm.LOOPBACK.sub("127.0.0.1", nodes)
    assert found == "127.0.0.1:47951,127.0.0.1:34019,192.0.2.127:9,10.127.0.0:9"


def test_what_workers_ask_for():  # E6 E8 E12
    distributed, e2e = (scripts.find(job.JOB) for job in JOBS)
    gpus = [{"CPU": 2.0, "GPU": 2.0}, {"CPU": 2.0, "GPU": 2.0}]
    assert options.request(scripts.config(distributed, []), []) == [{"CPU": 1.0}] * 2
    with_gpus = options.request(scripts.config(distributed, ["--workers", "3"]), gpus)
    assert with_gpus == [{"CPU": 1.0, "GPU": 1.0}] * 3
    line = ["--data-size-gb=1", "--num-epochs=2", "--num-workers=1", "--smoke-test"]
    # To train, and to decode.
    assert options.request(scripts.config(e2e, line), gpus) == [{"CPU": 1.0}] * 2
    usual = {"epochs": 4, "workers": 2, "batch_size": 64, "learning_rate": 1e-3}
    assert usual.items() <= scripts.config(distributed, []).items()
    usual = {"data_size_gb": 1.0, "num_epochs": 2, "num_workers": 1, "smoke_test": False}
    assert usual.items() <= scripts.config(e2e, []).items()


@pytest.fixture
def run(job, done, monkeypatch) -> Run:
    """A run of the job, which is done."""
    monkeypatch.setattr(sys, "argv", [f"{job.__name__}.py"])
    config = options.parse(job.parser, [])
    epochs = {name: 2 for name in ("epochs", "num_epochs", "total_epochs") if name in config}
    name = job.__name__.removeprefix("trainyard.jobs.").replace(".", "/")
    records = [{"epoch": 0}, {"epoch": 1, "minutes": 0.5, "test_acc": 0.5}]
    return done(config | epochs | {"job": name, "epochs": 2}, records)


@pytest.mark.parametrize("job", [*JOBS, chargpt, train_fault_tolerant])
def test_a_finished_run_says_so_and_ends(run, job, capsys):
    with suppress(SystemExit):
        job.main()
    assert "run first has finished: 2 epochs are done" in capsys.readouterr().out
    assert len(run.metrics()) == 2


@pytest.mark.parametrize(
    ("job", "arguments", "message"),
    [
        (JOBS[0], "--seed 2", "seed 1 → 2"),
        (JOBS[0], "--data digits", "data 'auto' → 'digits'"),
        (JOBS[0], "--images /mine", "images None → '/mine'"),
        (JOBS[1], "--data-size-gb 2", r"data_size_gb 1\.0 → 2\.0"),
        (JOBS[1], "--smoke-test", "smoke_test False → True"),
        (alexnet, "--seed 2", "seed 1 → 2"),
        (alexnet, "--data cifar10 --epochs 9", "data 'digits' → 'cifar10'"),
        (alexnet, "--images /mine --epochs 9", "images None → '/mine'"),
        (alexnet, "--max-images 5", "max_images None → 5"),
        (chargpt, "--text python --epochs 3", "text 'shakespeare' → 'python'"),
        (chargpt, "--size full --epochs 3", "size 'small' → 'full'"),
        (chargpt, "--seed 2 --epochs 3", "seed 1 → 2"),
        (chargpt, "--steps-per-epoch 5 --epochs 3", "steps_per_epoch 250 → 5"),
    ],
)
def test_a_name_of_another_run_is_refused(run, job, arguments, message):
    with pytest.raises(SystemExit, match=rf"error: run 'first' was started .*{message}.*--name"):
        job.main(arguments.split())
    assert len(run.metrics()) == 2


def test_a_smoke_test_is_one_image_on_cpus(tmp_path, monkeypatch):  # E12
    monkeypatch.setenv(STORAGE_VARIABLE, tmp_path.as_uri())
    with pytest.raises(SystemExit, match="--smoke-test is one image on CPUs"):
        pytorch_training_e2e.main(["--smoke-test", "--num-workers", "2"])


def test_results_are_those_of_the_new_epochs(tmp_path, monkeypatch):  # E7 E11 E12
    job, clock = pytorch_training_e2e, iter([100.0, 104.0] * 2)
    asked: list[Recipe] = []
    given: dict[str, Any] = {}
    made = synthetic_images.Images("there", ["a"], 3, 6 * 1024**2)
    peak = SimpleNamespace(processes_mb=30.0, object_store_mb=12.0)
    monkeypatch.setattr("trainyard.ray_train.connect", lambda: None)
    monkeypatch.setattr(job, "ensure", lambda _, recipe: asked.append(recipe) or made)
    monkeypatch.setattr(streaming, "stream", lambda *_: "stream")
    monkeypatch.setattr(job, "PeakMemory", lambda _: nullcontext(peak))
    monkeypatch.setattr(job, "DataConfig", dict)
    monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr("trainyard.job.fit", lambda *_, **trainer: given.update(trainer))
    monkeypatch.setenv("TEST_OUTPUT_JSON", str(tmp_path / "out.json"))
    run = Run(tmp_path.as_uri(), "first")
    run.start({})
    run.write_metrics([{"epoch": 0}])
    for options_ in (["--data-size-gb=0.01"], ["--smoke-test"]):
        job.train_on_stream(run, options.parse(job.parser, options_) | {"epochs": 3})
    assert asked == [Recipe.of_size(0.01), Recipe(images=1)]
    results = json.loads((tmp_path / "out.json").read_text())
    assert results == json.loads(run.read("results.json") or b"")
    # Two epochs of 6 MB in 4 s.
    figures = {"total_time_s": 4.0, "throughput_MB_s": 3.0, "peak_memory_mb": 42.0, "images": 3}
    assert figures.items() <= results.items()
    assert given["dataset_config"]["execution_options"] == streaming.limits(1)


def _write_fashion_mnist(folder: Path, count: int) -> None:
    """The four files of FashionMNIST, in its format, with few images."""
    folder.mkdir(parents=True)
    for part in ("train", "t10k"):
        pixels = np.arange(count * 784, dtype=np.uint8).tobytes()
        images = struct.pack(">IIII", 0x803, count, 28, 28) + pixels
        (folder / f"{part}-images-idx3-ubyte").write_bytes(images)
        labels = struct.pack(">II", 0x801, count) + bytes(range(count))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)


def test_fashion_mnist_of_a_folder(tmp_path, monkeypatch):  # E6
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    _write_fashion_mnist(tmp_path / "FashionMNIST" / "raw", count=3)
    splits = fashion_mnist.load()
    assert splits.classes[0] == "T-shirt/top"
    image, label = splits.train[2]
    assert image.shape == (3, 28, 28)
    assert int(label) == 2
    assert image[0, 0, 0].item() == pytest.approx((2 * 784 % 256) / 255 * 2 - 1)


def test_fashion_mnist_that_cannot_be_fetched_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    refused = RuntimeError("Error downloading:\nTried there, got:\nname not known\n")
    monkeypatch.setattr("torchvision.datasets.FashionMNIST", Mock(side_effect=refused))
    with pytest.raises(JobError) as caught:
        fashion_mnist.load()
    message = str(caught.value)
    assert "got: name not known" in message
    assert "take --data digits" in message
    assert "\n" not in message


def test_the_stand_in_has_fashion_mnists_shape():
    splits = fashion_mnist.stand_in()
    image, _ = splits.train[0]
    assert image.shape == (3, 28, 28)
    assert (len(splits.train), len(splits.valid)) == (1500, 297)
    values = splits.train.tensors[0]
    assert values.min().item() == pytest.approx(-1.0)
    assert values.max().item() == pytest.approx(1.0)


def test_figures_of_the_stand_in_say_so(capsys):  # E6
    record = {"loss": 0.5, "epoch": 0, "train_acc": 0.9, "valid_acc": 0.8, "data": "fashion-mnist"}
    pytorch_distributed_training.print_epoch(record, 4)
    assert capsys.readouterr().out.splitlines() == [
        "{'loss': 0.5, 'epoch': 0}",
        "Epoch: 001/004 | Train. Acc.: 90.000% | Valid. Acc.: 80.000%",
    ]
    pytorch_distributed_training.print_epoch(record | {"data": "digits"}, 4)
    for line in capsys.readouterr().out.splitlines():
        assert "digits stand in for FashionMNIST" in line


def test_synthetic_images_have_the_size_that_was_asked_for():  # E12
    recipe = Recipe.of_size(0.01)
    jpegs = [synthetic_images.encode(index, recipe.side) for index in range(recipe.images)]
    size = 0.01 * 1024**3
    assert size <= sum(map(len, jpegs)) < size + max(map(len, jpegs))  # whole images
    assert jpegs[3] == synthetic_images.encode(3, recipe.side)
    assert len(set(jpegs)) == len(jpegs)
    assert Recipe.of_size(0).images == 1


def test_shards_are_read_as_they_were_written(tmp_path):
    recipe = Recipe(images=5, side=300, per_shard=3)
    sizes = [
        synthetic_images.write_shard(tmp_path.as_uri(), name, start, recipe)
        for name, start in (("a", 0), ("b", 3))
    ]
    assert [size for _, size in sizes] == [(tmp_path / name).stat().st_size for name in "ab"]
    rows = {"url": [tmp_path.as_uri()] * 2, "shard": ["a", "b"]}
    batches = list(streaming.decode_shards(rows))
    assert [len(batch["image"]) for batch in batches] == [3, 2]
    assert [label for batch in batches for label in batch["label"]] == [0, 1, 2, 3, 4]
    expected = streaming.decode(synthetic_images.encode(4, 300))
    assert (batches[1]["image"][1] == expected).all()


@pytest.mark.parametrize("size", [(224, 224), (300, 200), (1024, 1024), (64, 500)])
@pytest.mark.parametrize(("mode", "kind"), [("RGB", "JPEG"), ("L", "JPEG"), ("RGBA", "PNG")])
def test_images_of_any_size_and_mode_are_decoded(size, mode, kind):
    file = io.BytesIO()
    colour = {"L": 100, "RGB": (100, 50, 200), "RGBA": (100, 50, 200, 255)}[mode]
    Image.new(mode, size, colour).save(file, kind)
    image = streaming.decode(file.getvalue())
    assert image.shape == (224, 224, 3)
    assert image.dtype == np.uint8
    expected = (100, 100, 100) if mode == "L" else (100, 50, 200)
    assert image[112, 112].tolist() == pytest.approx(expected, abs=3)
