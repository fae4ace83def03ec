"""Finding a job, and following its log through cuts, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import requests
from ray.dashboard.modules.job.pydantic_models import JobDetails
from ray.job_submission import JobStatus, JobType

from training.client import jobs
from training.client.errors import ClientError

LOG = "first\nsecond\nthird\n"


def details(job_id: str, status: str, run: str = "", started: int = 0) -> JobDetails:
    return JobDetails(
        type=JobType.SUBMISSION,
        submission_id=job_id,
        status=JobStatus(status),
        entrypoint="python x.py",
        start_time=started,
        metadata={"run": run},
    )


class Server:
    """A job server whose job runs through given states, and whose stream is cut at each piece."""

    def __init__(self, states: list[str], pieces: list[str | Exception]) -> None:
        self.states = iter(states)
        self.pieces = pieces
        self.log = ""

    def list_jobs(self) -> list[JobDetails]:
        return [
            details("a1", "SUCCEEDED", "alpha", 1),
            details("a2", "RUNNING", "alpha", 2),
            details("b1", "FAILED", "beta", 3),
            details("b2", "STOPPED", "beta", 4),
            details("c", "SUCCEEDED", "gamma", 5),
        ]

    def get_job_info(self, job_id: str) -> JobDetails:
        return details(job_id, next(self.states))

    def get_job_logs(self, _: str) -> str:
        return self.log

    async def tail_job_logs(self, _: str) -> AsyncIterator[str]:
        sent = 0
        for piece in self.pieces:
            await asyncio.sleep(0)
            if isinstance(piece, Exception):
                self.pieces.remove(piece)
                raise piece
            sent += len(piece)
            self.log = max(self.log, LOG[:sent], key=len)
            yield piece
        await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("wanted", "found"), [("a1", "a1"), ("alpha", "a2"), ("gamma", "c"), ("b2", "b2")]
)
def test_a_job_is_found_by_id_or_run(wanted: str, found: str) -> None:
    server: Any = Server([], [])
    assert jobs.resolve(server, wanted).submission_id == found


def test_an_ambiguous_run_names_its_jobs() -> None:
    server: Any = Server([], [])
    with pytest.raises(ClientError, match=r"several jobs: give one of b2 \(.*, b1 \("):
        jobs.resolve(server, "beta")


def test_an_unknown_job_says_how_to_list() -> None:
    server: Any = Server([], [])
    with pytest.raises(ClientError, match=r"called 'nope': `train list` shows"):
        jobs.resolve(server, "nope")


def test_the_log_of_an_ended_job_is_written_once() -> None:
    server: Any = Server(["SUCCEEDED"], [])
    server.log = LOG
    written: list[str] = []
    assert jobs.follow(server, "a", written.append).status == "SUCCEEDED"
    assert "".join(written) == LOG


def test_a_stream_that_is_cut_loses_and_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0)  # F28
    monkeypatch.setattr(jobs, "RECONNECT_S", 0)
    cut = RuntimeError("WebSocket connection closed unexpectedly with close code 1006")
    pieces: list[str | Exception] = ["first\nsec", cut, "ond\n", OSError("reset"), "third\n"]
    server: Any = Server(["RUNNING"] * 200 + ["FAILED"], pieces)
    written: list[str] = []
    assert jobs.follow(server, "a", written.append).status == "FAILED"
    assert "".join(written) == LOG


def test_a_server_that_is_gone_is_one_message() -> None:  # F28
    server: Any = Server([], [])

    def refuse(_: str) -> JobDetails:
        raise requests.ConnectionError

    server.get_job_info = refuse
    with pytest.raises(ClientError, match=r"lost the job server .*goes on.*train logs -f a"):
        jobs.follow(server, "a", print, lost_after_s=0)


def test_a_log_that_is_gone_with_its_node() -> None:
    server: Any = Server(["RUNNING", "FAILED"], [])

    def refuse(_: str) -> str:
        raise RuntimeError("Request failed with status code 500: ClientConnectorError")

    server.get_job_logs = refuse
    assert jobs.follow(server, "a", print).status == "FAILED"
    with pytest.raises(ClientError, match=r"node that it ran on is gone.*train status a"):
        jobs.read_log(server, "a")


def test_a_job_that_waits_is_noticed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "WAITING_NOTICE_S", -1)
    monkeypatch.setattr(jobs, "FIRST_LINE_POLL_S", 0)
    server: Any = Server(["PENDING", "PENDING", "PENDING", "STOPPED"], [])
    seen: list[JobDetails] = []
    assert jobs.follow(server, "a", print, seen.append).status == "STOPPED"
    assert [job.status for job in seen] == ["PENDING"]
