"""Finding a job, and following its log through cuts, without a cluster."""

import asyncio
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import Mock

import pytest
import ray

from tests.client import job
from trainyard.client import job_log, jobs
from trainyard.client.dashboard import RefusedError, UnreachableError
from trainyard.client.errors import ClientError

LOG = "first\nsecond\nthird\n"


class Server:
    """A job server whose job runs through given states, and whose stream is cut at each piece."""

    def __init__(self, states, pieces):
        self.states = iter(states)
        self.pieces = pieces
        self.written = ""

    def jobs(self):
        known = ("a1 SUCCEEDED alpha", "a2 RUNNING alpha", "b1 FAILED beta", "b2 STOPPED beta")
        known += ("c SUCCEEDED gamma",)
        return [job(*each.split(), start_time=at) for at, each in enumerate(known, 1)]

    def job(self, job_id):
        return job(job_id, next(self.states))

    def log_pieces(self, _):
        yield self.written

    async def tail(self, _):
        sent = 0
        for piece in self.pieces:
            await asyncio.sleep(0)
            if isinstance(piece, Exception):
                self.pieces.remove(piece)
                raise piece
            sent += len(piece)
            self.written = max(self.written, LOG[:sent], key=len)
            yield piece
        await asyncio.sleep(60)

    raw_tail = tail


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("a1", "a1"), ("alpha", "a2"), ("gamma", "c"), ("b2", "b2"), ("beta", "b2")],
)
def test_a_job_is_found_by_id_or_run(wanted, found):
    assert jobs.resolve(Server([], []), wanted).submission_id == found


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("nope", r"called 'nope': `train list` shows"),
        ("gama", r"called 'gama': did you mean 'gamma'\? `train list` shows"),
    ],
)
def test_what_is_not_a_job_says_what_is_near(wanted, said):
    with pytest.raises(ClientError, match=said):
        jobs.resolve(Server([], []), wanted)


def test_a_run_with_two_active_jobs_needs_the_id_of_one():  # F79
    server = Server([], [])
    twins = [*server.jobs(), job("a3", "PENDING", "alpha", start_time=9)]
    server.jobs = lambda: twins
    with pytest.raises(
        ClientError, match=r"'alpha' has 2 active jobs: .* id of one instead: a3, a2"
    ):
        jobs.resolve(server, "alpha")
    assert jobs.resolve(server, "a2").submission_id == "a2"


def test_a_stack_that_is_down_says_whether_it_ended_itself(stack):
    with pytest.raises(ClientError, match=r"\(stack 'dev'\) \(\w+\): run `make up`, or name"):
        jobs.connect(stack)
    past = replace(stack, expires_at=datetime(2026, 1, 31, 18, tzinfo=UTC))
    with pytest.raises(
        ClientError, match=r"it ended itself at 2026-01-31 18:00 UTC; run `make up`"
    ):
        jobs.connect(past)


def test_the_log_of_an_ended_job_is_written_once():
    server = Server(["SUCCEEDED"], [])
    server.written = LOG
    written = []
    assert job_log.follow(server, "a", written.append).status == "SUCCEEDED"
    assert "".join(written) == LOG


def test_a_stream_that_is_cut_loses_and_repeats_nothing(monkeypatch):
    monkeypatch.setattr(job_log, "POLL_S", 0)  # F28
    monkeypatch.setattr(job_log, "RECONNECT_S", 0)
    cut = UnreachableError("WSServerHandshakeError")
    pieces = ["first\nsec", cut, "ond\n", OSError("reset"), "third\n"]
    server = Server(["RUNNING"] * 200 + ["FAILED"], pieces)
    written = []
    assert job_log.follow(server, "a", written.append).status == "FAILED"
    assert "".join(written) == LOG


def test_the_log_of_a_next_attempt_is_written_from_its_beginning(monkeypatch):
    monkeypatch.setattr(job_log, "POLL_S", 0)
    monkeypatch.setattr(job_log, "FIRST_LINE_POLL_S", 0)
    server, looks, written = Server([], []), iter(range(1000)), []
    logs = {"1": "epoch 1\nepoch 2\n", "2": "epoch 2\n"}

    def attempt(look):
        return "1" if look < 5 else "2"

    def found(_):
        look = next(looks)
        server.log_pieces = lambda _: iter([logs[attempt(look)]])
        status = "SUCCEEDED" if look > 9 else "RUNNING"
        return job("a", status, metadata={"attempt": attempt(look)})

    server.job = found
    job_log.follow(server, "a", written.append)
    assert "".join(written) == "epoch 1\nepoch 2\nepoch 2\n"


def test_a_server_that_is_gone_is_one_message():  # F28
    server = Server([], [])
    server.job = Mock(side_effect=UnreachableError("ReadTimeoutError"))
    said = r"lost the job server .*\(ReadTimeoutError\).*goes on.*train logs -f a"
    with pytest.raises(ClientError, match=said):
        job_log.follow(server, "a", print, lost_after_s=0)


def test_a_log_that_is_gone_with_its_node():
    server = Server(["RUNNING", "FAILED"], [])
    refused = RefusedError(500, "Traceback\n  x\nClientConnectorError: no route\n")
    server.log_pieces = Mock(side_effect=refused)
    assert job_log.follow(server, "a", print).status == "FAILED"
    said = r"\(status 500: ClientConnectorError: no route\): .* the node that .*train status a"
    with pytest.raises(ClientError, match=said):
        [*jobs.read_log(server, "a")]


def test_the_follower_lives_on_where_rays_stream_ends(monkeypatch):  # F56
    """As at a byte that is not UTF-8: the stream of text ends there each time."""
    monkeypatch.setattr(job_log, "POLL_S", 0)
    monkeypatch.setattr(job_log, "RECONNECT_S", 0)
    shown = threading.Event()

    class Undecodable(Server):
        def job(self, job_id):
            return job(job_id, "FAILED" if shown.is_set() else "RUNNING")

        async def tail(self, _):
            yield "first\n"

        async def raw_tail(self, job_id):
            assert job_id == "a"
            yield "first\nsec\ufffdnd\n"
            await asyncio.sleep(60)

    server = Undecodable([], [])
    server.written = "first\n"
    written = []

    def write(text):
        written.append(text)
        if "\ufffd" in text:
            server.written = "first\nsec\ufffdnd\nthird\n"
            shown.set()

    assert job_log.follow(server, "a", write).status == "FAILED"
    assert "".join(written) == "first\nsec\ufffdnd\nthird\n"


def test_a_job_that_waits_is_noticed_once(monkeypatch):
    monkeypatch.setattr(job_log, "WAITING_NOTICE_S", -1)
    monkeypatch.setattr(job_log, "FIRST_LINE_POLL_S", 0)
    server = Server(["PENDING", "PENDING", "PENDING", "STOPPED"], [])
    seen = []
    assert job_log.follow(server, "a", print, seen.append).status == "STOPPED"
    assert [job.status for job in seen] == ["PENDING"]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("2.53.0", "Ray 2.53.0, which asks for no token (Ray does from 2.54 on)"),
        ("1.99.1", "which asks for no token"),
        ("0.8.", "which asks for no token"),
        ("", "does not tell its version of Ray"),
        (None, "does not tell its version of Ray"),
        ("two", "does not tell its version of Ray"),
        ("2.54.0", ""),
        ("2.60.0.dev0", ""),
        ("10.0.0", ""),
    ],
)
def test_a_ray_that_asks_for_no_token_is_refused(version, said):  # F34
    reply = {"version": "4", "ray_version": version}
    if said:
        with pytest.raises(ClientError, match=re.escape(said)):
            jobs._check_version(reply, "http://head")
    else:
        jobs._check_version(reply, "http://head")


def test_the_ray_of_the_lock_asks_for_a_token():  # F34
    major, minor = ray.__version__.split(".")[:2]
    assert (int(major), int(minor)) >= jobs.FIRST_WITH_TOKENS
