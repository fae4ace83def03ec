"""Options of a job from its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from training import options
from training.jobs import alexnet, pytorch_distributed_training, pytorch_training_e2e

CONFIG: dict[str, options.Value] = {
    "total_epochs": 20,
    "lr": 1e-4,
    "dropout_probability": 0.5,
    "weights": "imagenet",
    "loader_processes": 2,
    "seed": 1,
}


def parse(*arguments: str, earlier: dict[str, object] | None = None) -> dict[str, object]:
    return options.parse(options.parser("job", CONFIG), arguments, earlier)


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


def test_what_a_worker_asks_for() -> None:
    asked = {"gpus_per_worker": 0.5, "cpus_per_worker": 4.0}
    assert options.bundle(asked) == {"GPU": 0.5, "CPU": 4.0}
    assert options.bundle(asked | {"gpus_per_worker": 0.0}) == {"CPU": 4.0}


JOBS = (alexnet, pytorch_distributed_training, pytorch_training_e2e)


@pytest.mark.parametrize("job", JOBS)
def test_every_job_takes_the_same_numbers_of_failures(job: Any) -> None:
    assert options.parse(job.parser(), ["--max-failures", "0"])["max_failures"] == 0
    with pytest.raises(SystemExit):
        options.parse(job.parser(), ["--max-failures", "-1"])  # for Ray: without end


@pytest.mark.parametrize("job", JOBS)
def test_gpus_can_be_taken_back_when_a_run_goes_on(job: Any) -> None:
    earlier = options.parse(job.parser(), ["--use-gpu"])
    assert options.parse(job.parser(), [], earlier)["use_gpu"] is True
    assert options.parse(job.parser(), ["--no-use-gpu"], earlier)["use_gpu"] is False
