"""Groups of runs side by side, from the records of the head and the store."""

import pytest

from tests import client
from trainyard.client.commands import compare
from trainyard.client.errors import ClientError
from trainyard.client.history import RunRecord

NODES = {"01": ["10.0.0.4"], "02": ["10.0.0.5"], "03": ["10.0.0.4"]}


def job(run, number, start_s, end_s, status="SUCCEEDED"):
    times = {"start_time": int(start_s * 1000), "end_time": int(end_s * 1000)}
    return client.job(run, status, run, job_id=f"{number:02d}", **times)


def read(epochs, mode="max"):
    """Return a reader of runs with some epochs, `half-1` with the most accurate one."""

    def found(name):
        best = 0.9 if name == "half-1" else 0.5
        goals = {"acc": mode, "loss": "min"}
        rows = [{"acc": best}] * epochs
        return RunRecord(name, {}, [], rows, None, goals=goals, best=best, epochs=epochs)

    return found


# Newest first, as the job server lists them.
HALF = [job("half-2", 3, 2, 122), job("half-1", 2, 1, 100), job("half-0", 1, 0, 110)]
WHOLE = [job("whole-2", 6, 202, 380), job("whole-1", 5, 201, 290), job("whole-0", 4, 200, 280)]


def test_halves_are_compared_with_wholes():  # D44
    half, whole = compare.rows_of(["half-", "whole-"], [*WHOLE, *HALF], NODES, read(20))
    facts = {
        "runs": "half-*",
        "jobs": 3,
        "status": "SUCCEEDED",
        "placement": "10.0.0.4: half-0, half-2; 10.0.0.5: half-1",
        "seconds": 122.0,
        "epochs": 60,
        "epochs/min": 29.51,
        "best": "max acc 0.9: half-1",
    }
    assert half | facts == half
    assert (whole["seconds"], whole["epochs/min"]) == (180.0, 20.0)
    assert whole["placement"] == "unknown: whole-0, whole-1, whole-2"  # the head was restarted
    mixed = {"half-0": read(1), "half-1": read(1, "min"), "half-2": read(1)}
    [half] = compare.rows_of(["half-"], HALF, NODES, lambda name: mixed[name](name))
    assert half["best"] == ""  # not all mean the same by it
    assert half.keys() > {*compare.FACTS}


def test_of_a_run_that_went_on_the_last_job_counts():
    again = job("half-0", 7, 300, 310)
    [row] = compare.rows_of(["half-0"], [again, *HALF], NODES | {"07": ["10.0.0.5"]}, read(1))
    assert (row["jobs"], row["seconds"], row["placement"]) == (1, 10.0, "10.0.0.5: half-0")


def test_a_job_that_ends_before_its_start_took_no_time():  # F78
    [row] = compare.rows_of(["half-0"], [job("half-0", 1, 300, 200)], NODES, read(1))
    assert (row["seconds"], row["epochs/min"]) == (0, None)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (WHOLE, "no job's run has a name that begins with 'half-'"),
        ([job("half-0", 1, 0, 0, "RUNNING")], "is RUNNING: wait until"),
        ([job("half-0", 1, 0, 9, "PENDING"), *HALF], "is PENDING"),
    ],
)
def test_what_cannot_be_compared_is_one_message(jobs, message):
    with pytest.raises(ClientError, match=message):
        compare.rows_of(["half-"], jobs, NODES, read(1))


def test_runs_are_compared_by_settings_figures_and_code():
    jobs = [job("lr", 3, 3, 9), job("lr-b", 2, 2, 8, "STOPPED"), job("lr-a", 1, 0, 9, "FAILED")]
    package = "gcs://_ray_pkg_adcef5d9172c98aeb6d22b7ff29546c034872816.zip"
    code = {"commit": f"{'12' * 20}-dirty", "upload": package}
    records = {
        "lr": (
            {"lr": 0.1, "seed": 1},
            [{"loss": 0.75, "epoch": 0}, {"loss": 1.0, "epoch": 1}],
            [code],
        ),
        "lr-a": ({"lr": 0.01, "seed": 1}, [{"loss": 0.5}], []),
        "lr-b": ({"lr": 0.01, "seed": 1, "[b]": "x" * 200}, [{"loss": 0.25, "acc": 0.5}], [code]),
    }

    def found(name):
        config, rows, its = records[name]
        return RunRecord(name, config, [], rows, None, goals={"loss": "min"}, jobs=its)

    both = compare.rows_of(["lr", "lr-", "lr"], jobs, NODES, found)
    assert [row["runs"] for row in both] == ["lr", "lr-*"]
    assert both[0]["figures"] == {"loss": [1.0], "best loss": [0.75]}
    assert both[1]["settings"]["lr"] == [0.01, 0.01]
    shown = {row.pop(compare.NAME): [*row.values()] for row in compare.side_by_side(both)}
    assert shown["status"] == ["SUCCEEDED", "FAILED, STOPPED"]
    rest = {name: shown[name] for name in shown if name not in compare.FACTS}
    assert rest == {
        "lr": ["0.1", "0.01"],
        "[b]": ["", f", {'x' * 78}"],
        "loss": ["1.0", "0.5, 0.25"],
        "best loss": ["0.75", "0.5, 0.25"],
        "acc": ["", ", 0.5"],
        "commit": ["121212121212-dirty", ", 121212121212-dirty"],
        "upload": ["adcef5d9172c", ", adcef5d9172c"],
    }
