"""The job chargpt and its search, as far as they need no Ray."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import trainyard
from trainyard import options
from trainyard.client import scripts
from trainyard.data import characters
from trainyard.data.node_folder import FOLDER_VARIABLE
from trainyard.epochs import Totals
from trainyard.errors import JobError
from trainyard.jobs import chargpt, chargpt_tune
from trainyard.models import char_gpt
from trainyard.models.char_gpt import CharGpt, Size
from trainyard.resume.checkpoint_files import CheckpointError
from trainyard.search import best_trial
from trainyard.search import recorded as search
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE
from trainyard.tracking.runs import Run

TINY = Size(1, 2, 8, block=8, batch_size=4, dropout=0.0, steps=20)


def config(*arguments: str) -> dict[str, Any]:
    return options.parse(chargpt.parser, arguments)


@pytest.fixture(autouse=True)
def node(tmp_path, monkeypatch) -> None:
    """A node of its own, and a model that takes no time."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "node"))
    monkeypatch.setitem(char_gpt.SIZES, "small", TINY)


def test_the_defaults_are_those_of_nanogpt():  # C14
    found = config()
    assert (found["text"], found["size"]) == ("shakespeare", "small")
    assert found["epochs"] * found["steps_per_epoch"] == 2000
    assert (found["learning_rate"], found["weight_decay"]) == (1e-3, 0.1)


def test_what_workers_ask_for():  # C21
    def asked(job: str, *arguments: str) -> list[dict[str, float]]:
        return options.request(scripts.config(scripts.find(job), arguments), gpus)

    gpus = [{"CPU": 1.0, "GPU": 1.0}] * 2
    assert asked("chargpt", "--workers", "2") == gpus
    assert asked("chargpt", "--cpu") == asked("chargpt_tune", "--cpu") == [{"CPU": 1.0}]
    assert asked("chargpt_tune") == [{"CPU": 1.0, "GPU": 0.5}]


@pytest.mark.parametrize(
    "arguments",
    [["--text", "hamlet"], ["--text", "here.txt"], ["--text-sha256", "abc"], ["--size", "large"]],
)
def test_bad_arguments_end_before_anything_is_sent(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        scripts.config(scripts.find("chargpt"), arguments)
    assert caught.value.code == 2
    assert arguments[1] in capsys.readouterr().err


def test_the_search_has_the_arguments_of_the_job_but_what_it_samples():
    mine, theirs = (vars(each.parser.parse_args([])) for each in (chargpt, chargpt_tune))
    shared = mine.keys() & theirs.keys()
    assert {"text", "text_sha256", "max_characters", "size", "dropout", "decay_steps"} <= shared
    assert all(mine[name] == theirs[name] for name in shared)
    assert not {"learning_rate", "batch_size", "weight_decay"} & theirs.keys()


def test_a_prompt_that_the_text_cannot_have_is_found_before_training():
    with pytest.raises(JobError, match=r"lacks '☂' of '☂\?'"):
        chargpt.corpus_of(config("--text", "python", "--prompt", "☂?"))


def test_arguments_take_the_place_of_the_values_of_a_size():  # C14
    given = ("--dropout", "0.5", "--weight-decay", "0.02", "--learning-rate", "1e-3")
    found = config("--text", "python", "--max-characters", "500", *given)
    corpus = chargpt.corpus_of(found)
    network, optimizer = chargpt.build(corpus, found, torch.device("cpu"))
    assert {each.p for each in network.modules() if isinstance(each, torch.nn.Dropout)} == {0.5}
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.02, 0.0]
    batches = characters.RandomBatches(corpus.train, TINY.block, 2, 3)
    found |= {"steps_per_epoch": 3, "decay_steps": 7}
    totals = Totals(torch.device("cpu"))
    chargpt.train_epoch(network, optimizer, enumerate(batches, 150), found, totals)
    # Its last step is the 153rd: the rate is at its least by then.
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-4, 1e-4])


def test_a_sample_begins_with_the_prompt():
    corpus = chargpt.corpus_of(config("--text", "python"))
    network = CharGpt(TINY, len(corpus.vocabulary))
    text = char_gpt.sample(network, corpus, "def f", 20, seed=1)
    assert text.startswith("def f")
    assert len(text) == 25
    assert len(char_gpt.sample(network, corpus, "", 20, seed=1)) == 21


def sampled() -> dict[str, Any]:
    """The configuration of a short trial."""
    arguments = ["--text", "python", "--max-characters", "500", "--epochs", "3"]
    found = options.parse(chargpt_tune.parser, arguments)
    return found | {
        "steps_per_epoch": 2,
        "learning_rate": 0.01,
        "batch_size": 3,
        "weight_decay": 0.1,
    }


def test_a_run_that_is_done_shows_its_sample(done, capsys):
    record = {"epoch": 0, "loss": 1.5, "valid_loss": 1.25, "minutes": 1.0}
    run = done(config("--epochs", "1") | {"job": chargpt.JOB}, [record])
    chargpt.main([])
    assert "A sample" not in capsys.readouterr().out
    run.write(chargpt.SAMPLE, "ROMEO:\nThé end.".encode())
    chargpt.main([])
    assert f"A sample, as in {run.url}/sample.txt:\nROMEO:\nThé end.\n" in capsys.readouterr().out


def test_a_search_without_its_text_is_one_message_and_begins_no_trial(tmp_path, monkeypatch):
    class Task:
        """Runs here what Ray would run on a node."""

        def __init__(self, function: Callable[[], str]) -> None:
            self.remote = function

        def options(self, **_: float) -> "Task":
            return self

    monkeypatch.setattr(search.ray, "remote", Task)
    monkeypatch.setattr(search.ray, "get", lambda result: result)
    monkeypatch.setattr(search.ray, "shutdown", lambda: None)  # it imports more that asks for tasks
    monkeypatch.setattr(search.ray_train, "connect", lambda: None)
    monkeypatch.setattr(search.ray_train, "nodes", list)
    monkeypatch.setattr(search.signed, "cluster_key", lambda: b"key")
    monkeypatch.setattr(chargpt_tune, "Tuner", lambda *_, **__: pytest.fail("began"))
    monkeypatch.setattr(sys, "argv", ["chargpt_tune.py", "--text", "/nowhere"])
    monkeypatch.setenv(STORAGE_VARIABLE, (tmp_path / "store").as_uri())
    monkeypatch.setenv(RUN_VARIABLE, "search")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"^error: the text /nowhere could not be prepared"):
        chargpt_tune.main()
    assert not (tmp_path / "store/search/config.json").exists()


def test_a_trial_goes_on_from_its_checkpoint_and_ends_like_a_whole_one(tmp_path, monkeypatch):
    reports: list[dict[str, float]] = []

    def report(metrics: dict[str, float], checkpoint: Any) -> None:
        with checkpoint.as_directory() as folder:
            shutil.copytree(folder, tmp_path / f"{len(reports)}")
        reports.append(metrics)

    monkeypatch.setattr(chargpt_tune.tune, "report", report)
    monkeypatch.setattr(chargpt_tune.tune, "get_checkpoint", lambda: None)
    chargpt_tune.train_func(sampled())
    whole = [*reports]
    assert [each["epoch"] for each in whole] == [0, 1, 2]
    assert whole[2]["train_loss"] < whole[0]["train_loss"]
    first = chargpt_tune.tune.Checkpoint.from_directory(tmp_path / "0")
    monkeypatch.setattr(chargpt_tune.tune, "get_checkpoint", lambda: first)
    chargpt_tune.train_func(sampled())
    assert reports[3:] == whole[1:]


def test_the_best_trial_of_a_search_is_loaded_in_one_line(tmp_path, monkeypatch):  # C6
    search_folder, trial = tmp_path / "results" / "search", "train_func_0f8a_00000_0_x"
    states = []

    def report(_: dict[str, float], checkpoint: Any) -> None:
        with checkpoint.as_directory() as folder:
            name = f"checkpoint_{len(states):06d}"
            shutil.copytree(folder, search_folder / trial / name)
            states.append(torch.load(Path(folder) / "checkpoint.pt")["model"])

    monkeypatch.setattr(chargpt_tune.tune, "report", report)
    monkeypatch.setattr(chargpt_tune.tune, "get_checkpoint", lambda: None)
    chargpt_tune.train_func(sampled() | {"epochs": 2})
    run = Run((tmp_path / "results").as_uri(), "search")
    best_trial.keep(run, trial)
    best_trial.keep(run, trial)  # of a search that was cut off at its end
    assert len(list(search_folder.glob("checkpoint_*"))) == 1
    model = trainyard.load("search", tmp_path / "results")
    assert all(torch.equal(each, states[1][name]) for name, each in model.state_dict().items())
    # A damaged one gives way to the one before.
    for folder in search_folder.glob("checkpoint_*"):
        shutil.rmtree(folder)
    file = search_folder / trial / "checkpoint_000001" / "checkpoint.pt"
    file.write_bytes(b"x" * file.stat().st_size)
    best_trial.keep(run, trial)
    model = trainyard.load("search", tmp_path / "results")
    assert all(torch.equal(each, states[0][name]) for name, each in model.state_dict().items())
    with pytest.raises(CheckpointError, match="train_func_1 has no checkpoint that says"):
        best_trial.keep(run, "train_func_1")
