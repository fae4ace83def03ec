"""Groups of runs side by side, from the records of the head and the store."""

import pytest

from tests import client
from trainyard.client.commands import compare
from trainyard.client.errors import ClientError

NODES = {"01": ["10.0.0.4"], "02": ["10.0.0.5"], "03": ["10.0.0.4"]}


def job(run, number, start_s, end_s, status="SUCCEEDED"):
    times = {"start_time": int(start_s * 1000), "end_time": int(end_s * 1000)}
    return client.job(run, status, run, job_id=f"{number:02d}", **times)


# Newest first, as the job server lists them.
HALF = [job("half-2", 3, 2, 122), job("half-1", 2, 1, 100), job("half-0", 1, 0, 110)]
WHOLE = [job("whole-2", 6, 202, 380), job("whole-1", 5, 201, 290), job("whole-0", 4, 200, 280)]


def test_halves_are_compared_with_wholes():  # D44
    half, whole = compare.rows_of(["half-", "whole-"], [*WHOLE, *HALF], NODES, lambda _: 20)
    assert half == {
        "runs": "half-*",
        "jobs": 3,
        "placement": "10.0.0.4: half-0, half-2; 10.0.0.5: half-1",
        "seconds": 122.0,
        "epochs": 60,
        "epochs/min": 29.51,
    }
    assert (whole["seconds"], whole["epochs/min"]) == (180.0, 20.0)
    assert whole["placement"] == "unknown: whole-0, whole-1, whole-2"  # the head was restarted
    assert half.keys() == {*compare.COLUMNS}


def test_of_a_run_that_went_on_the_last_job_counts():
    again = job("half-0", 7, 300, 310)
    [row] = compare.rows_of(["half-0"], [again, *HALF], NODES | {"07": ["10.0.0.5"]}, lambda _: 1)
    assert (row["jobs"], row["seconds"], row["placement"]) == (1, 10.0, "10.0.0.5: half-0")


def test_a_job_that_ends_before_its_start_took_no_time():  # F78
    [row] = compare.rows_of(["half-0"], [job("half-0", 1, 300, 200)], NODES, lambda _: 1)
    assert (row["seconds"], row["epochs/min"]) == (0, None)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        (WHOLE, "no job's run has a name that begins with 'half-'"),
        ([job("half-0", 1, 0, 0, "RUNNING")], "is RUNNING: wait until"),
        ([job("half-0", 1, 0, 9, "FAILED"), *HALF], "is FAILED"),
    ],
)
def test_what_cannot_be_compared_is_one_message(jobs, message):
    with pytest.raises(ClientError, match=message):
        compare.rows_of(["half-"], jobs, NODES, lambda _: 1)
