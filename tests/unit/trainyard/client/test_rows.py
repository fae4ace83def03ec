"""The rows of jobs and runs."""

import pytest

from tests.client import job
from trainyard.client import rows, state
from trainyard.client.dashboard import RefusedError, UnreachableError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Status
from trainyard.tracking import runs

GPU_JOB = '[{"GPU": 8}]'


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """What the cluster was asked for; it does not answer."""
    found: list[str] = []

    def ask(_: object, what: str) -> None:
        found.append(what)
        raise UnreachableError("no answer")

    monkeypatch.setattr(state.ClusterState, "_list", ask)
    return found


def test_jobs_are_newest_first_and_say_why_they_wait(stack, asked):
    never = job(
        "never", Status.PENDING, start_time=3000, metadata={"demand": GPU_JOB, "run": "big"}
    )
    starts = job(
        "starts", Status.PENDING, start_time=4000, message="Job has not started yet.\nMore."
    )
    unused = "its GPUs have been below 5 % for 31 min"
    found = rows.of_jobs(
        [
            job("unused", "RUNNING", start_time=900, message=unused),
            job("busy", "RUNNING", start_time=800, message="Job is currently running."),
            job("old", "SUCCEEDED", start_time=1000, end_time=3500, message="done"),
            never,
            starts,
            job("other", "RUNNING", start_time=5000, submitted=False),
        ],
        stack,
    )
    assert [row["job"] for row in found] == ["starts", "never", "old", "unused", "busy"]
    waits = {row["job"]: row["waits"] for row in found}
    assert waits["starts"] == "Job has not started yet."
    assert waits["never"].startswith("it asks for GPU 8 on one node")
    assert (waits["old"], found[2]["seconds"]) == ("", 2)
    assert (waits["unused"], waits["busy"]) == (unused, "")
    assert set(found[0]) == set(rows.JOBS)
    # A cluster that is slow is asked once, not once for each job.
    assert len(asked) == len({*asked})


def test_runs_are_newest_first_by_their_last_start(stack):
    for name, hour in (("resumed", 1), ("b", 3), ("resumed", 4), ("a", 2)):
        run = runs.Run(stack.storage_url, name, {"loss": "min"} if name == "b" else {})
        run.start({"epochs": 3})
        text = (run.read("starts.jsonl") or b"").decode().splitlines()
        begun = text[-1].partition('"commit"')[2]
        text[-1] = f'{{"time": "2026-01-31T0{hour}:00:00+00:00", "commit"{begun}'
        run.write("starts.jsonl", "".join(f"{line}\n" for line in text).encode())
        run.write_metrics([{"epoch": 0, "loss": 0.123456}])
    found = rows.of_runs(stack)
    assert [row["best"] for row in found] == ["", "min loss 0.1235", ""]
    assert rows.table_of_runs(found)[1][-1] == "best"
    assert [row["run"] for row in found] == ["resumed", "b", "a"]
    assert (found[0]["epochs"], found[0]["figures"]) == ("1/3", {"loss": 0.1235})
    assert set(found[0]) == {*rows.RUNS, "user", "figures", *rows.LAST}


QUEUED = {"run": "", "user": "eva", "state": "WAITING", "place": 2, "needs": "GPU 1", "priority": 5}
QUEUED |= {"since": 1.8e9, "begins": None, "attempt": 0, "reason": "waits for GPU 1", "job": "a"}


def test_a_queue_has_who_runs_and_who_is_next_and_hides_no_row_for_an_odd_one(stack):
    class Queue:
        def queue(self):
            runs = QUEUED | {"state": "RUNNING", "place": None, "run": "first", "attempt": 2}
            odd = [QUEUED | {"place": "x"}, QUEUED | {"user": 1}, None, {"job": "b"}]
            return [runs, *odd, QUEUED]

    first, second = rows.of_queue(Queue(), stack)
    assert (first["place"], first["run"], first["attempt"]) == ("runs", "first", 2)
    assert (second["place"], second["needs"], second["begins"]) == (2, "GPU 1", "")
    assert second["since"].startswith("2027-01-1")


def test_a_stack_without_a_queue_says_how_to_have_one(stack):
    class Head:
        def queue(self):
            raise RefusedError(self.status, "")

    head = Head()
    head.status = 404
    with pytest.raises(ClientError, match="has no queue: set queue to true"):
        rows.of_queue(head, stack)
    head.status = 503
    with pytest.raises(RefusedError):
        rows.of_queue(head, stack)
