"""Food-11's data, model and callbacks: the parts of the course's four scripts."""

import ast
import math
import runpy
import shutil
import urllib.error
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from lightning.pytorch.strategies import SingleDeviceStrategy
from PIL import Image
from torch import distributed
from torchvision.models import MobileNet_V2_Weights, mobilenet_v2

from tests.hostile import Canary
from trainyard.callbacks import LIGHTNING_FILE, EpochRecords, Finetuning, ResumableCheckpoints
from trainyard.data import food11
from trainyard.errors import JobError
from trainyard.jobs.food11 import train_fault_tolerant, train_lightning, train_ray, train_tune
from trainyard.models.mobilenet import PREFIX, Classifier
from trainyard.report import progress
from trainyard.report.progress import Epoch
from trainyard.resume import checkpoint_files
from trainyard.serving import deploy
from trainyard.serving.predictor import Predictor
from trainyard.store.objects import StorageError
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE

GENERATOR = Path(__file__).resolve().parents[3] / "docker/dataset/generated.py"
LIBRARY = Path(__file__).resolve().parents[3] / "trainyard"
VARIANTS = (train_lightning, train_ray, train_fault_tolerant, train_tune)
EPOCHS = 4
THAW = 2  # the epoch that the base learns from


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    generate = runpy.run_path(str(GENERATOR))["generate"]
    folder = tmp_path_factory.mktemp("data") / "Food-11"
    generate(folder, {"training": 22, "validation": 11, "evaluation": 11}, side=32)
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "base.pt"
    torch.manual_seed(0)
    torch.save(mobilenet_v2().state_dict(), file)
    return file


@pytest.fixture(autouse=True)
def data(drawn, monkeypatch) -> Path:
    monkeypatch.setenv("FOOD11_DATA_DIR", str(drawn))
    return drawn


def load(**changes: Any) -> food11.Food11:
    return food11.load(**{"side": 32, "batch_size": 11, "seed": 1} | changes)


def classifier(weights: object) -> Classifier:
    return Classifier(11, weights=str(weights), dropout=0.5, lr=1e-2, scratch_lr=1e-3, seed=1)


def labels(loaded: food11.Food11) -> list[list[int]]:
    return [batch.tolist() for _, batch in loaded.train]


def test_batches_are_normalised_images_and_classes():
    loaded = load()
    images, classes = next(iter(loaded.valid))
    assert images.shape == (11, 3, 32, 32)
    assert sorted(classes.tolist()) == list(range(11))
    assert images.min() < 0 < images.max()
    assert loaded.generated


def test_two_workers_share_the_training_images(monkeypatch):
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    loaded = []
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "get_rank", lambda rank=rank: rank)
        loaded.append(load())
    seen = [label for each in loaded for batch in labels(each) for label in batch]
    assert sorted(seen) == sorted(list(range(11)) * 2)


@pytest.mark.parametrize("processes", [0, 2])
def test_an_epoch_depends_on_seed_and_epoch_only(processes):
    def epoch(number: int, seed: int = 1) -> tuple[torch.Tensor, list[int]]:
        loaded = load(seed=seed, processes=processes, batch_size=22)
        loaded.sampler.set_epoch(number)
        [(images, classes)] = loaded.train
        return images, classes.tolist()

    images, order = epoch(3)
    torch.rand(5)
    again, same = epoch(3)
    assert order == same
    assert torch.equal(images, again)
    assert epoch(4)[1] != order != epoch(3, seed=2)[1]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"source": "generated: side 32"}', True),
        ('{"source": "food-11.zip"}', False),
        ("[]", False),
        ("{", False),
        (None, False),
    ],
)
def test_generated_data_is_told_by_its_manifest(tmp_path, content, expected):
    if content is not None:
        (tmp_path / ".manifest.json").write_text(content)
    assert food11.is_generated(tmp_path) is expected


def test_data_that_is_missing_is_one_message(data, tmp_path, monkeypatch):
    monkeypatch.setenv("FOOD11_DATA_DIR", "/nowhere")
    with pytest.raises(JobError, match=r"^/nowhere is not a folder that .* can read \(No such"):
        load()
    monkeypatch.delenv("FOOD11_DATA_DIR")
    with pytest.raises(
        JobError, match=r"^no Food-11: set FOOD11_DATA_DIR, or --images to your own"
    ):
        load()
    monkeypatch.setenv("FOOD11_DATA_DIR", str(tmp_path))
    shutil.copytree(data, tmp_path, dirs_exist_ok=True)
    for split in ("training", "validation", "evaluation"):
        shutil.rmtree(tmp_path / split / "class_04")
    with pytest.raises(JobError, match="has 10 classes and Food-11 has 11: fill the folder"):
        load()


def test_images_of_yours_name_the_classes(data, tmp_path, monkeypatch):
    monkeypatch.delenv("FOOD11_DATA_DIR")
    for number, name in enumerate(("cat", "dog", "owl")):
        shutil.copytree(data / f"training/class_{number:02d}", tmp_path / name)
        shutil.copytree(
            data / f"validation/class_{number:02d}", tmp_path / name, dirs_exist_ok=True
        )
        shutil.copy(
            data / f"evaluation/class_{number:02d}/{number}_0.jpg", tmp_path / name / "0.jpg"
        )
    loaded = load(images=str(tmp_path), batch_size=3)
    assert not loaded.generated
    assert loaded.description["classes"] == ["cat", "dog", "owl"]
    [(images, classes)] = loaded.valid
    assert classes.tolist() in ([0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0])
    again, _ = next(iter(loaded.valid))
    assert torch.equal(images, again)  # what is held out is not augmented


def test_the_model_has_the_eleven_classes_of_the_course(data):  # D26
    seed = "Bread, Dairy product, Dessert, Egg, Fried food, Meat, Noodles/Pasta, Rice, Seafood"
    assert ", ".join(food11.CLASSES) == f"{seed}, Soup, Vegetable/Fruit"
    assert len(list((data / "training").iterdir())) == len(food11.CLASSES)
    answers = classifier("none")(torch.zeros(2, 3, 32, 32))
    assert answers.shape == (2, len(food11.CLASSES))


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_starts_from_the_figures_of_the_course(variant):  # D26, D27
    figures = {
        "initial_epochs": 5,
        "total_epochs": 20,
        "patience": 5,
        "batch_size": 32,
        "lr": 1e-4,
        "fine_tune_lr": 1e-6,
        "dropout_probability": 0.5,
    }
    if variant is train_tune:  # these it searches
        del figures["batch_size"], figures["dropout_probability"]
        figures["num_samples"] = 16
    assert vars(variant.parser.parse_args([])).items() >= figures.items()


def imported(file: Path, seen: set[Path]) -> set[str]:
    """Packages that a module imports at its top, and those that our modules in it import."""
    if file in seen or not file.is_file():
        return set()
    seen.add(file)
    found = set()
    for line in ast.parse(file.read_text()).body:
        if isinstance(line, ast.Import):
            names = [each.name for each in line.names]
        elif isinstance(line, ast.ImportFrom):
            names = [f"{line.module}.{each.name}" for each in line.names] + [str(line.module)]
        else:
            continue
        for name in names:
            package, *rest = name.split(".")
            found.add(package)
            if package == "trainyard":
                found |= imported(LIBRARY.joinpath(*rest).with_suffix(".py"), seen)
                found |= imported(LIBRARY.joinpath(*rest, "__init__.py"), seen)
    return found


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_a_driver_imports_nothing_that_learns(variant):
    """Ten seconds of each start, on the head."""
    packages = imported(Path(variant.__file__ or ""), set())
    assert "ray" in packages
    assert packages.isdisjoint({"lightning", "torchvision"})


def test_a_file_gives_the_base_its_weights(weights):
    model = classifier(weights)
    expected = torch.load(weights, weights_only=True)
    for name, value in model.backbone.state_dict().items():
        assert torch.equal(value, expected[f"features.{name}"])
    learning = {id(p) for g in model.configure_optimizers().param_groups for p in g["params"]}
    assert learning == {id(p) for p in model.model.classifier.parameters()}


def test_without_weights_all_of_it_learns_from_the_start():
    model = classifier("none")
    [group] = model.configure_optimizers().param_groups
    assert group["lr"] == 1e-3
    assert len(group["params"]) == len(list(model.parameters()))


def test_the_parameters_have_torchvisions_names(weights):
    names = {f"{PREFIX}{name}" for name in mobilenet_v2(num_classes=11).state_dict()}
    assert classifier(weights).state_dict().keys() == names


def test_weights_that_are_not_to_be_had_are_one_message(tmp_path, monkeypatch):
    with pytest.raises(JobError, match=r"weights /nowhere cannot be read"):
        classifier("/nowhere")
    other = tmp_path / "other.pt"
    torch.save({"features.0.weight": torch.zeros(1)}, other)
    with pytest.raises(JobError, match="not a state dict of torchvision's MobileNetV2"):
        classifier(other)
    offline = Mock(side_effect=urllib.error.URLError("no route"))
    monkeypatch.setattr(MobileNet_V2_Weights.DEFAULT.__class__, "get_state_dict", offline)
    with pytest.raises(JobError, match=r"could not be downloaded .*no route.*--weights FILE"):
        classifier("imagenet")


def test_weights_that_would_run_code_are_refused(tmp_path):  # F40
    torch.save({"features.0.0.weight": Canary(tmp_path / "ran")}, tmp_path / "bad.pt")
    with pytest.raises(JobError, match="cannot be read"):
        classifier(tmp_path / "bad.pt")
    assert not (tmp_path / "ran").exists()


class Watch(SingleDeviceStrategy):
    """Notes which parameters learn when the strategy wraps the model, as DDP would."""

    learning = 0

    def setup(self, trainer: lightning.Trainer) -> None:
        self.learning = sum(p.requires_grad for p in trainer.lightning_module.parameters())
        super().setup(trainer)


class Learning(Callback):
    """Notes how many parameters of the base learn in each epoch."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.counts.append(sum(p.requires_grad for p in pl_module.backbone.parameters()))


class Kept(ResumableCheckpoints):
    """Keeps the checkpoints in a folder by epoch."""

    def __init__(self, data: food11.Food11, folder: Path) -> None:
        super().__init__(data)
        self.folder = folder

    def report(self, metrics: dict[str, Any], folder: Path | None, model: dict[str, Any]) -> None:
        assert folder is not None
        assert model["classes"] == list(food11.CLASSES)
        shutil.move(folder / LIGHTNING_FILE, self.folder / f"{metrics['epoch']}.ckpt")
        folder.rmdir()


class Fit:
    """One training in `folder`, whose checkpoints it keeps there by epoch."""

    def __init__(self, folder: Path, weights: Path, *, patience: int = EPOCHS) -> None:
        self.folder = folder
        self.data = load()
        self.model = classifier(weights)
        self.stopping = EarlyStopping(monitor="val_loss", patience=patience, mode="min")
        self.records = EpochRecords(EPOCHS, generated=self.data.generated)
        self.learning = Learning()
        self.strategy = Watch(torch.device("cpu"))
        self.base_rate = 1e-3

    def run(self, path: Path | None = None) -> list[dict[str, Any]]:
        finetuning = Finetuning(THAW, backbone_initial_lr=self.base_rate)
        resumable = Kept(self.data, self.folder)
        trainer = lightning.Trainer(
            max_epochs=EPOCHS,
            strategy=self.strategy,
            accelerator="cpu",
            callbacks=[self.stopping, self.records, self.learning, finetuning, resumable],
            num_sanity_val_steps=0,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(self.model, self.data.train, self.data.valid, ckpt_path=path, weights_only=True)
        return [{k: v for k, v in r.items() if k != "minutes"} for r in self.records.history]


@pytest.fixture
def scratch(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_records_that_cannot_be_written_end_no_training(capsys):
    names = ("train_loss", "train_accuracy", "val_loss", "val_accuracy", "test_accuracy")
    trainer: Any = SimpleNamespace(
        callback_metrics=dict.fromkeys(names, 0.5), current_epoch=0, is_global_zero=True
    )
    model: Any = None
    away = Mock(side_effect=StorageError("the store is away"))
    records = EpochRecords(1, generated=False, write=away)
    records.on_train_epoch_end(trainer, model)
    records.on_test_epoch_end(trainer, model)
    assert records.history[0]["test_acc"] == 0.5
    lines = capsys.readouterr().out.splitlines()
    assert [found.record for line in lines if (found := progress.parse(line))] == [Epoch(0)]
    said = [line for line in lines if line.startswith("warning")]
    assert (
        said
        == ["warning: the epochs' records are written with the next epoch: the store is away"] * 2
    )


def test_batches_of_an_epoch_are_counted_by_the_first_worker(capsys, monkeypatch):
    for module in ("report.progress", "callbacks"):
        monkeypatch.setattr(f"trainyard.{module}.LINE_INTERVAL_S", 0.0)
    records = EpochRecords(3, generated=False)
    for first in (True, False):
        trainer: Any = SimpleNamespace(
            num_training_batches=2, num_val_batches=[1], current_epoch=1, is_global_zero=first
        )
        model: Any = None
        records.on_train_epoch_start(trainer, model)
        for index in range(2):
            records.on_train_batch_end(trainer, model, None, None, index)
        records.on_validation_epoch_start(trainer, model)
        records.on_validation_batch_end(trainer, model, None, None, 0)
    said = [line.partition(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "epoch 2/3: batch 1 of 2",
        "epoch 2/3: batch 2 of 2",
        "measuring: batch 1 of 1",
    ]


def test_batches_of_a_stream_are_not_counted():
    records = EpochRecords(3, generated=False)
    model: Any = None
    trainer: Any = SimpleNamespace(
        num_training_batches=math.inf, num_val_batches=[1, math.inf], current_epoch=1
    )
    records.on_train_epoch_start(trainer, model)
    records.on_validation_epoch_start(trainer, model)
    assert records._progress._all is records._measuring._all is None


def test_a_resumed_training_ends_like_one_that_was_not_cut_off(
    scratch, weights, capsys
):  # D46, F21
    fit = Fit(scratch, weights)
    whole = fit.run()
    assert [record["epoch"] for record in whole] == list(range(EPOCHS))
    assert {record["data"] for record in whole} == {"generated"}
    figures = [line for line in capsys.readouterr().out.splitlines() if "Acc" in line]
    assert len(figures) == 2 * EPOCHS
    assert all(line.endswith("| generated data") for line in figures)
    parameters = len(list(fit.model.backbone.parameters()))
    # All learn when the strategy wraps the model, or DDP would never sum the base's gradients.
    assert fit.strategy.learning == len(list(fit.model.parameters()))
    assert [count == parameters for count in fit.learning.counts] == [False] * THAW + [True] * (
        EPOCHS - THAW
    )
    for cut in (THAW - 1, THAW):  # before and after the thaw
        again = Fit(scratch, weights)
        assert again.run(scratch / f"{cut}.ckpt") == whole, f"cut after epoch {cut}"
        state = again.model.state_dict()
        assert all(torch.equal(v, state[k]) for k, v in fit.model.state_dict().items())


def test_what_is_asked_for_counts_on_resume(scratch, weights):  # F61
    Fit(scratch, weights, patience=EPOCHS + 1).run()
    again = Fit(scratch, weights)
    again.model.rate, again.base_rate = 4e-3, 2e-4
    again.run(scratch / f"{THAW}.ckpt")
    state = torch.load(scratch / f"{EPOCHS - 1}.ckpt", weights_only=True)
    rates = [group["lr"] for group in state["optimizer_states"][0]["param_groups"]]
    doubled = 2 ** (EPOCHS - 1 - THAW)
    assert rates == pytest.approx([4e-3, 2e-4 * doubled])
    assert again.stopping.patience == EPOCHS


@pytest.mark.parametrize(
    ("stored", "rate"),
    [
        ({"asked": 5e-4, "previous_backbone_lr": 1e-3}, 2e-3),
        ({"asked": 0.0, "previous_backbone_lr": 0.0}, 1e-3),
        ({"previous_backbone_lr": 4e-4}, 4e-4),
    ],
)
def test_a_rate_goes_on_from_any_other(stored, rate):  # F61
    finetuning = Finetuning(THAW, backbone_initial_lr=1e-3)
    finetuning.load_state_dict({"internal_optimizer_metadata": {}, **stored})
    assert finetuning.previous_backbone_lr == rate


def test_a_training_that_had_stopped_early_stays_so(scratch, weights):
    fit = Fit(scratch, weights, patience=1)
    fit.stopping.min_delta = -10.0  # no loss is better than the first one's
    epochs = len(fit.run())
    assert epochs == 2
    again = Fit(scratch, weights, patience=1)
    again.stopping.min_delta = -10.0
    assert len(again.run(scratch / f"{epochs - 1}.ckpt")) == epochs


def test_a_run_of_plain_lightning_is_served_as_it_is(scratch, monkeypatch):  # A46
    arguments = ["--weights=none", "--image-side=32", "--total-epochs=1", "--loader-processes=0"]
    config = vars(train_lightning.parser.parse_args(arguments))
    train_lightning.train_func(config)  # of no run
    assert [path.name for path in scratch.iterdir()] == ["checkpoints"]
    monkeypatch.setenv(STORAGE_VARIABLE, (scratch / "store").as_uri())
    monkeypatch.setenv(RUN_VARIABLE, "food")
    train_lightning.train_func(config)
    name = deploy._choose((scratch / "store").as_uri(), "food", None)
    folder = scratch / "store" / "food" / name
    predictor = Predictor(folder, checkpoint_files.model(folder))
    assert (predictor.classes, predictor.epochs) == ([*food11.CLASSES], 1)
    image = Image.new("RGB", (90, 70), "red")
    found = predictor.probabilities(torch.stack([predictor.prepare(image)]))
    assert found.sum() == pytest.approx(1)


def test_the_search_is_the_courses_and_only_the_nodes_bound_its_trials(monkeypatch):  # D27 D54
    config = vars(train_tune.parser.parse_args([]))
    begun = SimpleNamespace(config=config, resumes=False, name="s", storage_path=None, files=None)
    begun.callbacks, begun.show, made = [], lambda _: None, {}
    monkeypatch.setattr(train_tune, "recorded_search", lambda *_, **__: nullcontext(begun))
    tuner = SimpleNamespace(fit=lambda: None)
    monkeypatch.setattr(train_tune, "Tuner", lambda _, **options: made.update(options) or tuner)
    train_tune.main()
    tuned, space = made["tune_config"], made["param_space"]
    assert space["batch_size"].categories == [32, 64]
    dropout = space["dropout_probability"]
    assert (dropout.lower, dropout.upper) == (0.1, 0.8)
    (bracket,) = tuned.scheduler._brackets
    assert [epochs for epochs, _ in bracket._rungs] == [16, 8, 4, 2, 1]  # D52 D55
    # Tune reads "no bound" from these two values.
    assert (tuned.max_concurrent_trials, tuned.search_alg.max_concurrent) == (None, 0)
