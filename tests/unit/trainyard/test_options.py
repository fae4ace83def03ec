"""Options of a job from its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard import options
from trainyard.jobs import alexnet, pytorch_distributed_training, pytorch_training_e2e

ARGUMENTS: options.Arguments = {
    "total_epochs": 20,
    "lr": 1e-4,
    "dropout_probability": {"default": 0.5, "max": 1.0},
    "weights": "imagenet",
    "loader_processes": {"default": 2, "min": 0, "help": "100 % of what decodes"},
    "seed": {"default": 1, "min": 0},
    "limit": {"default": None, "min": 1},
    "data": {"default": "digits", "pattern": "digits|folder:/.*", "help": "digits or folder:PATH"},
    "kind": {"default": "a", "choices": ["a", "b"]},
    "use_gpu": False,
}
CONFIG = options.defaults(ARGUMENTS)


def parse(*arguments: str, earlier: dict[str, object] | None = None) -> dict[str, object]:
    return options.parse("job", ARGUMENTS, arguments, earlier)


def test_each_key_is_an_option_of_its_type() -> None:
    assert parse() == CONFIG
    changed = parse("--total-epochs", "3", "--lr", "1", "--weights", "none", "--seed", "0")
    assert changed == CONFIG | {"total_epochs": 3, "lr": 1.0, "weights": "none", "seed": 0}
    assert isinstance(changed["lr"], float)


def test_what_is_left_out_is_as_the_last_time() -> None:
    earlier = {"total_epochs": 9, "lr": 0.1, "job": "other"}
    assert parse("--lr", "0.2", earlier=earlier) == CONFIG | {"total_epochs": 9, "lr": 0.2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--total-epochs", "0"], "0 is less than 1"),
        (["--loader-processes", "-1"], "-1 is less than 0"),
        (["--lr", "-0.1"], "-0.1 is less than 0"),
        (["--dropout-probability", "1.5"], "1.5 is not within 0 and 1"),
        (["--seed", "one"], "invalid int value: 'one'"),
        (["--limit", "0"], "0 is less than 1"),
        (["--data", "folder:here"], "'folder:here' is not digits or folder:PATH"),
        (["--kind", "c"], "invalid choice: 'c'"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
def test_a_bad_value_is_one_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_differences_from_the_last_start() -> None:
    fixed = ("seed", "weights")
    assert options.differences({}, CONFIG, fixed) == ""
    assert options.differences(CONFIG, CONFIG, fixed) == ""
    assert options.differences(CONFIG | {"lr": 1}, CONFIG, fixed) == ""
    assert options.differences(CONFIG | {"seed": 5}, CONFIG, fixed) == "seed was 5, now 1"


def test_help_shows_what_each_is_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    said = " ".join(capsys.readouterr().out.split())
    assert "--loader-processes LOADER_PROCESSES 100 % of what decodes (default: 2)" in said
    assert "--use-gpu, --no-use-gpu" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": {"min": 1}}, "a dict needs a default, and may have choices, help, max, min, patt"),
        ({"a": {"default": 1, "least": 1}}, "'least'"),
        ({"a": [1]}, "default"),
        ({"a": None}, "the default is not a string, number or bool"),
        ({"run": "a", "lr": 0.1}, "ARGUMENTS has run, which a job's configuration has already"),
    ],
)
def test_arguments_that_do_not_follow_the_rules(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options.parse("job", arguments, [])


@pytest.mark.parametrize("number", ["-1", "-.5", "-1e-3", "-1.5E+3", "-2_000.0"])
@pytest.mark.parametrize("option", ["--shift {}", "--shift={}"])
def test_a_number_below_nothing_is_no_option(option: str, number: str) -> None:
    arguments = {"shift": {"default": 0.0, "min": -1e9}, "flag": False}
    given = [*option.format(number).split(), "--flag"]
    assert options.parse("job", arguments, given) == {"shift": float(number), "flag": True}


def test_what_a_worker_asks_for() -> None:
    resources = [("workers", {"GPU": "gpus", "CPU": "cpus"}), (1, {"CPU": 1})]
    asked = {"workers": 2, "gpus": 0.5, "cpus": 4.0}
    found = options.bundles(resources, asked)
    assert found == [{"GPU": 0.5, "CPU": 4.0}] * 2 + [{"CPU": 1.0}]
    assert options.bundles(resources[:1], asked | {"gpus": False}) == [{"CPU": 4.0}] * 2


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (
            [("workers", {"CPU": 1})],
            "RESOURCES has 'workers', not a number or an argument with one",
        ),
        ([(1, {"CPU": "data"})], "RESOURCES has 'data'"),
        ([(1, {"CPU": -1})], "RESOURCES has -1"),
        ([(1, {"CPU": None})], "RESOURCES has None"),
        ({"CPU": 1}, "must be a list of pairs: a number, a dict"),
        ([{"CPU": 1}], "must be a list of pairs: a number, a dict"),
        (1, "must be a list of pairs: a number, a dict"),
    ],
)
def test_resources_that_do_not_follow_the_rules(resources: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options.bundles(resources, {"data": "digits"})


JOBS = (alexnet, pytorch_distributed_training, pytorch_training_e2e)


@pytest.mark.parametrize("job", JOBS)
def test_every_job_takes_the_same_numbers_of_failures(job: Any) -> None:
    assert options.parse("job", job.ARGUMENTS, ["--max-failures", "0"])["max_failures"] == 0
    with pytest.raises(SystemExit):
        options.parse("job", job.ARGUMENTS, ["--max-failures", "-1"])  # for Ray: without end


@pytest.mark.parametrize("job", JOBS)
def test_gpus_can_be_taken_back_when_a_run_goes_on(job: Any) -> None:
    earlier = options.parse("job", job.ARGUMENTS, ["--use-gpu"])
    assert options.parse("job", job.ARGUMENTS, [], earlier)["use_gpu"] is True
    assert options.parse("job", job.ARGUMENTS, ["--no-use-gpu"], earlier)["use_gpu"] is False
