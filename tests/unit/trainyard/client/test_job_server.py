"""Ray's job server over HTTP: jobs as Ray itself writes them, and answers of other kinds."""

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from ray.dashboard.modules.job.pydantic_models import JobDetails, JobType
from ray.job_submission import JobStatus

from trainyard.access import bounded
from trainyard.client import dashboard
from trainyard.client.dashboard import (
    DashboardError,
    RefusedError,
    TooLongError,
    UnreachableError,
    UnreadableError,
)
from trainyard.client.job_server import ACTIVE, Job, JobServer, Status
from trainyard.client.unreachable import explained

KNOWN = {
    "entrypoint": "python x.py",
    "submission_id": "s/1",
    "job_id": "01",
    "message": "runs",
    "start_time": 1,
    "end_time": 2,
    "metadata": {"run": "first"},
    "runtime_env": {"env_vars": {"A": "b"}},
}
FULL = JobDetails(type=JobType.SUBMISSION, status=JobStatus.RUNNING, **KNOWN)
FULL_JSON = FULL.model_dump(mode="json")
BARE = JobDetails(type=JobType.DRIVER, status=JobStatus.PENDING, entrypoint="")


def ask(stack, answer, question):
    """The answer to a question, by a server that has one answer to all."""

    async def run():
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        async with TestServer(application) as server:
            there = replace(stack, dashboard_url=str(server.make_url("")).rstrip("/"))
            return await asyncio.to_thread(question, JobServer(there))

    return asyncio.run(run())


def saying(value, asked=None):
    async def answer(request):
        if asked is not None:
            said = request.headers.get("Authorization", "")
            asked.append(f"{request.method} {request.raw_path} {said}")
        return web.json_response(value)

    return answer


def test_jobs_are_read_as_ray_writes_them(stack):
    asked = []
    answer = saying([FULL_JSON, BARE.model_dump(mode="json")], asked)
    full = Job(status=Status.RUNNING, **KNOWN)
    assert ask(stack, answer, JobServer.jobs) == [full, Job(status=Status.PENDING, submitted=False)]
    assert ask(stack, saying(FULL_JSON, asked), lambda server: server.job("s/1")) == full
    assert ask(stack, saying({"stopped": True}, asked), lambda server: server.stop("s1")) is None
    bearer = f"Bearer {stack.ray_token}"
    assert asked == [
        f"GET /api/jobs/ {bearer}",
        f"GET /api/jobs/s%2F1 {bearer}",
        f"POST /api/jobs/s1/stop {bearer}",
    ]


def test_every_state_that_ray_knows_is_known():
    assert {*map(str, JobStatus), Status.UNREADABLE} == {str(status) for status in Status}
    for status in JobStatus:
        assert Status(str(status)).ended == status.is_terminal()
        assert (Status(str(status)) in ACTIVE) != status.is_terminal()


@pytest.mark.parametrize(
    "value",
    [
        ["x"],
        [{}],
        [FULL_JSON | {"status": "LOST"}],
        [FULL_JSON | {"metadata": ["run"]}],
        [FULL_JSON | {"start_time": "now"}],
    ],
)
def test_what_is_no_job_is_said(value, stack):  # F39 F69
    [job] = ask(stack, saying(value), JobServer.jobs)
    assert (job.status, job.status.ended) == (Status.UNREADABLE, False)
    with pytest.raises(UnreadableError):
        ask(stack, saying(value[0]), lambda server: server.job("s1"))
    with pytest.raises(UnreadableError, match="no list of jobs"):
        ask(stack, saying({}), JobServer.jobs)


def test_a_refusal_keeps_what_the_server_says(stack):
    async def refuse(_):
        return web.Response(status=404, text="Job s1 does not exist")

    with pytest.raises(RefusedError, match="status 404") as caught:
        ask(stack, refuse, lambda server: server.job("s1"))
    assert caught.value.text == "Job s1 does not exist"


def test_a_redirect_takes_the_token_nowhere(stack):  # F35
    async def elsewhere(request):
        assert not request.path.startswith("/other")
        return web.Response(status=302, headers={"Location": "/other"})

    with pytest.raises(RefusedError, match="status 302"):
        ask(stack, elsewhere, JobServer.jobs)


def test_no_proxy_of_the_environment_sees_a_token(stack, monkeypatch):  # F35 F58
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ask(stack, saying([]), JobServer.jobs) == []


def test_a_server_that_says_nothing_is_waited_for_a_while(stack):
    async def wait(_):
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(UnreachableError, match="ReadTimeoutError"):
        ask(stack, wait, lambda server: server.version(0.05))


async def _pieces(server):
    return [text async for text in server.tail("s1")]


def test_a_log_comes_in_pieces(stack):
    async def tail(request):
        assert request.path == "/api/jobs/s1/logs/tail"
        assert request.headers["Authorization"] == f"Bearer {stack.ray_token}"
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        for text in ("first\n", "second\n"):
            await stream.send_str(text)
        await stream.close()
        return stream

    found = ask(stack, tail, lambda server: asyncio.run(_pieces(server)))
    assert found == ["first\n", "second\n"]


LOG = b"50%\r100%\r\ncaf\xe9\0\xff\n"
SHOWN = "50%\n100%\ncaf\ufffd\0\ufffd\n"  # line ends as in Ray's own texts, whose offsets count


async def undecodable(request):
    """Ray's answer for a log with bytes that are not UTF-8."""
    assert request.query["node_id"]
    assert request.query["submission_id"] == "s1"
    assert request.query["lines"] == "-1"
    assert request.path == f"/api/v0/logs/{'stream' if 'interval' in request.query else 'file'}"
    stream = web.StreamResponse()
    await stream.prepare(request)
    for i in range(len(LOG)):
        await stream.write(LOG[i : i + 1])
    return stream


def test_a_log_of_any_bytes_is_read(stack):  # F56
    assert ask(stack, undecodable, lambda server: "".join(server.log_pieces("s1"))) == SHOWN
    assert ask(stack, undecodable, lambda server: server.raw_log("s1")) == LOG


def test_a_log_of_any_bytes_comes_in_pieces(stack):  # F56
    async def pieces(server):
        return "".join([text async for text in server.raw_tail("s1")])

    assert ask(stack, undecodable, lambda server: asyncio.run(pieces(server))) == SHOWN
    with pytest.raises(RefusedError, match="status 404"):
        ask(stack, missing, lambda server: asyncio.run(pieces(server)))


async def missing(_):
    return web.Response(status=404, text="no such job")


def test_a_job_that_waits_has_no_log_yet(stack):
    async def waits(_):
        return web.Response(status=500, text="ValueError: Job s1 has no driver node id info. This")

    assert ask(stack, waits, lambda server: [*server.log_pieces("s1")]) == []
    with pytest.raises(RefusedError, match="status 404"):
        ask(stack, missing, lambda server: [*server.log_pieces("s1")])


def test_a_log_that_is_refused_is_one_fault(stack):
    with pytest.raises(DashboardError, match="WSServerHandshakeError"):
        ask(stack, saying({}), lambda server: asyncio.run(_pieces(server)))


def test_an_answer_without_end_is_read_up_to_a_bound(stack):  # F39
    sent = 0

    async def endless(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(4 * bounded.MOST_MIB):
            try:
                await response.write(b" " * bounded.MIB)
            except ConnectionError:
                break
            sent += 1
        return response

    with pytest.raises(TooLongError, match="/api/jobs/ with more than 64 MiB") as caught:
        ask(stack, endless, JobServer.jobs)
    assert sent < 2 * bounded.MOST_MIB
    assert "train list" in str(explained(caught.value))


def test_an_upload_may_take_longer_than_an_answer(stack, monkeypatch):  # F59
    """As 100 MiB through a tunnel do: each piece is taken in time."""
    monkeypatch.setattr(dashboard, "TIMEOUT_S", 1.0)
    content, arrived, sent = bytes(range(256)) * 2**16, bytearray(), []  # 16 MiB

    async def slow(request):
        assert request.content_length == len(content)
        while piece := await request.content.read(2**18):
            arrived.extend(piece)
            await asyncio.sleep(0.02)  # more than a second of them
        return web.Response()

    def put(server):
        server._dashboard.put("/api/packages/gcs/a.zip", content, sent.append)

    ask(stack, slow, put)
    assert bytes(arrived) == content
    assert sum(sent) == len(content)
