"""Values of a job's arguments, their bounds, and the request that follows from them."""

import argparse
import re

import pytest

from trainyard import options
from trainyard.jobs import alexnet, pytorch_distributed_training, pytorch_training_e2e

parser = argparse.ArgumentParser()
parser.add_argument("--total-epochs", type=options.at_least(1), default=20)
parser.add_argument("--lr", type=options.at_least(0.0), default=1e-4)
parser.add_argument("--dropout", type=options.between(0.0, 1.0), default=0.5)
parser.add_argument("--shift", type=float, default=0.0)
parser.add_argument("--seed", type=options.at_least(0), default=1)
parser.add_argument("--limit", type=options.at_least(1))
parser.add_argument(
    "--data", type=options.matching("digits|folder:/.*", "digits or folder:PATH"), default="digits"
)
parser.add_argument("--cpu", action=argparse.BooleanOptionalAction, default=False)
CONFIG = vars(parser.parse_args([]))


def parse(*arguments: str, earlier: dict[str, object] | None = None) -> dict[str, object]:
    return options.parse(parser, arguments, earlier)


def test_bounds_keep_the_type_of_a_number():
    changed = parse("--total-epochs", "3", "--lr", "1", "--data", "folder:/a", "--seed", "0")
    assert changed == CONFIG | {"total_epochs": 3, "lr": 1.0, "data": "folder:/a", "seed": 0}
    assert isinstance(changed["lr"], float)


def test_one_line_makes_a_jobs_parser(capsys):
    made = options.arguments(epochs=5, learning_rate=1e-3, text="shakespeare")
    own = {"epochs": 5, "learning_rate": 1e-3, "text": "shakespeare"}
    common = {"seed": 1, "workers": 1, "max_failures": 3, "hang_minutes": 30.0, "cpu": False}
    assert options.parse(made, []) == own | common
    assert options.parse(made, ["--seed", "0", "--max-failures", "0"])["seed"] == 0
    for wrong in (["--epochs", "0"], ["--learning-rate", "-1"]):
        with pytest.raises(SystemExit):
            options.parse(made, wrong)
        assert "is less than" in capsys.readouterr().err
    assert options.parse(made, ["--workers", "1:3"])["workers"] == "1:3"
    for wrong in ("0", "3:2", "0:2", "1:"):
        with pytest.raises(SystemExit):
            options.parse(made, ["--workers", wrong])
        said = f"'{wrong}' is not a number from 1 on, or a range such as 1:4"
        assert said in capsys.readouterr().err


def test_what_is_left_out_is_as_the_last_time():
    earlier = {"total_epochs": 9, "lr": 0.1, "job": "other"}
    assert parse("--lr", "0.2", earlier=earlier) == CONFIG | {"total_epochs": 9, "lr": 0.2}
    assert parse("--lr", "0.0001", earlier=earlier)["lr"] == 1e-4  # given, though it is the default
    assert parse() == CONFIG


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--total-epochs", "0"], "0 is less than 1"),
        (["--lr", "-0.1"], "-0.1 is less than 0"),
        (["--lr", "nan"], "nan is not within 0.0 and inf"),
        (["--dropout", "1.5"], "1.5 is not within 0.0 and 1"),
        (["--seed", "one"], "invalid int value: 'one'"),
        (["--limit", "0"], "0 is less than 1"),
        (["--data", "folder:here"], "'folder:here' is not digits or folder:PATH"),
    ],
)
def test_a_bad_value_is_one_message(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_differences_from_the_last_start():
    fixed = ("seed", "data")
    assert options.differences({}, CONFIG, fixed) == ""
    assert options.differences(CONFIG, CONFIG, fixed) == ""
    assert options.differences(CONFIG | {"lr": 1}, CONFIG, fixed) == ""
    assert options.differences(CONFIG | {"seed": 5}, CONFIG, fixed) == "seed 5 → 1"


@pytest.mark.parametrize("number", ["-1", "-.5", "-1e-3", "-1.5E+3", "-2_000.0"])
@pytest.mark.parametrize("option", ["--shift {}", "--shift={}"])
def test_a_number_below_nothing_is_no_option(option, number):
    given = [*option.format(number).split(), "--cpu"]
    assert parse(*given) == CONFIG | {"shift": float(number), "cpu": True}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, []),
        ({"workers": 2}, [{"CPU": 1.0}] * 2),
        ({"workers": "2:4"}, [{"CPU": 1.0}] * 2),
        ({"workers": "2:x"}, []),
        ({"num_workers": 1, "gpus_per_worker": 1.0}, [{"CPU": 1.0, "GPU": 1.0}]),
        (
            {"workers": 2, "gpus_per_worker": 0.5, "cpus_per_worker": 4},
            [{"CPU": 4.0, "GPU": 0.5}] * 2,
        ),
        ({"cpus_per_trial": 0.5, "num_samples": 9}, [{"CPU": 0.5}]),
        ({"gpus_per_trial": 1.0, "num_workers": 3}, [{"CPU": 1.0, "GPU": 1.0}]),
        ({"workers": 1, "cpus_per_worker": 0.0}, [{}]),
        # A script of the user may mean something else by these names.
        ({"workers": None}, []),
        ({"workers": -1}, []),
        ({"workers": float("inf")}, []),
        ({"workers": "2"}, [{"CPU": 1.0}] * 2),
        ({"workers": 2, "cpus_per_worker": "all"}, []),
        ({"workers": 2, "gpus_per_worker": float("nan")}, []),
        ({"workers": 1, "cpu": 4}, [{"CPU": 1.0}]),
        ({"cpu": True, "cpus_per_worker": 3}, []),
    ],
)
def test_what_a_worker_asks_for(config, expected):
    assert options.workers(config, []) == options.workers(config, GPU_NODES) == expected
    two = [{"CPU": 1.0}, {"CPU": 1.0}]
    assert options.request(config | {"data_cpus": 2}, []) == [*expected, *two]
    assert options.request(config | {"data_cpus": "0-3"}, []) == expected


GPU_NODES = [{"CPU": 0.0}, {"CPU": 64.0}, {"CPU": 8.0, "GPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}]


@pytest.mark.parametrize(
    ("config", "gpus", "line"),
    [
        ({"workers": 1, "cpu": False}, 1.0, ""),  # A30
        ({"workers": 2, "cpu": False, "cpus_per_worker": 2}, 1.0, ""),
        ({"workers": 1, "cpu": True}, 0, "GPU 2 .* idle: --cpu says so; --no-cpu"),
        ({"num_workers": 1, "cpu": False, "smoke_test": True}, 0, "idle: --smoke-test"),
        ({"num_workers": 1, "cpu": False, "smoke_test": False}, 1.0, ""),
        # Ray would wait for a GPU that no node can give.
        (
            {"num_workers": 3, "cpu": False},
            0,
            "room for 2 of 3 workers with GPU 1, CPU 1; ask for fewer --num-workers",
        ),
        (
            {"workers": 2, "cpu": False, "cpus_per_worker": 3},
            0,
            "room for 1 of 2 workers with GPU 1, CPU 3; ask for fewer --workers or --cpus-per-w",
        ),
        ({"workers": 5, "cpu": False, "gpus_per_worker": 0.3}, 0.3, ""),
        ({"cpus_per_trial": 1.0, "gpus_per_trial": 0.5, "cpu": False}, 0.5, ""),
        ({"gpus_per_trial": 0.0, "cpu": False}, 0, "asks for none; see --gpus-per-trial and --cpu"),
        ({"workers": 1}, 0, "asks for none; see --gpus-per-worker and --cpu"),
        ({"workers": 0}, 0, ""),
    ],
)
def test_workers_get_gpus_where_the_nodes_have_them(config, gpus, line):
    assert {each.get("GPU", 0) for each in options.workers(config, GPU_NODES)} <= {gpus}
    found = options.idle_gpus(config, GPU_NODES)
    assert re.search(line, found) if line else found == ""
    for nodes in ([], GPU_NODES[:2]):  # nothing is idle there
        assert not any("GPU" in each for each in options.workers(config, nodes))
        assert options.idle_gpus(config, nodes) == ""


JOBS = (alexnet, pytorch_distributed_training, pytorch_training_e2e)


@pytest.mark.parametrize("job", JOBS)
def test_every_job_takes_the_same_numbers_of_failures(job):
    assert options.parse(job.parser, ["--max-failures", "0"])["max_failures"] == 0
    with pytest.raises(SystemExit):
        options.parse(job.parser, ["--max-failures", "-1"])  # for Ray: without end


@pytest.mark.parametrize("job", JOBS)
def test_gpus_can_be_used_again_when_a_run_goes_on(job):
    earlier = options.parse(job.parser, ["--cpu"])
    assert options.parse(job.parser, [], earlier)["cpu"] is True
    assert options.parse(job.parser, ["--no-cpu"], earlier)["cpu"] is False
