"""Readers that do not read, and many questions at once: bounded memory, and others are served."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
import requests
import uvicorn
from uvicorn.server import ServerState

from tests import ui_stack, waiting
from trainyard.client import job_log
from trainyard.client.job_server import Job, Status
from trainyard.client.ui import log, server
from trainyard.client.ui.answers import Answers

PIECE = (b"x" * 99 + b"\n") * 640  # 64 kB
LONG = 512  # pieces
READERS = 30
GROWTH_MIB = 24  # one copy of the log is more


@contextmanager
def page_running(file: Path) -> Iterator[tuple[str, requests.Session, int]]:
    """Yields the page's address, a session that it answers, and its process."""
    with ui_stack.page_running(file) as (address, served):
        session = requests.Session()
        url = ui_stack.exchange_key(session, address)
        yield url.rstrip("/"), session, served.pid


@contextmanager
def service_running(file: Path) -> Iterator[tuple[str, requests.Session, int]]:
    """The same of the read-only page."""
    with ui_stack.service_running(file) as (url, served):
        session = requests.Session()
        session.auth = ui_stack.VIEWER
        yield url, session, served.pid


class LongLog(ui_stack.Head):
    """A head whose job has a short log, then a long one."""

    long = 0  # pieces

    def log_pieces(self) -> Iterator[bytes]:
        yield b"short\n"
        for _ in range(self.long):
            yield PIECE
        yield b"last\n"


@pytest.mark.parametrize("running", [page_running, service_running])
def test_readers_that_do_not_read_take_no_memory(tmp_path, running):  # F68
    head = LongLog([ui_stack.job(1)])
    with ExitStack() as stack:
        address = stack.enter_context(ui_stack.serving(head))
        file = ui_stack.write_outputs(tmp_path / "outputs.json", address, tmp_path / "store")
        url, session, process = stack.enter_context(running(file))

        def read() -> list[list[str]]:
            answer = session.get(f"{url}/api/dev/jobs/raysubmit_000001/log", timeout=100)
            return [json.loads(each) for each in answer.text.splitlines()]

        assert shown(read()) == "short\nlast\n"
        before = peak_mib(process)
        head.long = LONG
        asked = session.prepare_request(
            requests.Request("GET", f"{url}/api/dev/jobs/raysubmit_000001/log")
        )
        for _ in range(READERS):
            stack.enter_context(closed_reader(url, asked.headers))
        found = read()
        assert found[-1] == ["end", "SUCCEEDED"]
        assert shown(found).endswith("x\nlast\n")
        assert session.get(f"{url}/api/dev/row", timeout=100).json()["health"] == "up"
        assert peak_mib(process) - before < GROWTH_MIB


def peak_mib(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def closed_reader(url: str, headers) -> socket.socket:
    """Asks for the log, and reads nothing."""
    address = urlsplit(url)
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect((address.hostname, address.port))
    lines = [f"{name}: {value}" for name, value in headers.items()]
    first = "GET /api/dev/jobs/raysubmit_000001/log HTTP/1.1"
    reader.sendall("\r\n".join([first, f"Host: {address.netloc}", *lines, "", ""]).encode())
    return reader


@pytest.fixture
def written(monkeypatch) -> list[str]:
    """What a job writes to its log."""
    pieces: list[str] = []

    async def following(_, job_id, write) -> Job:
        for piece in pieces:
            write(piece)
            await asyncio.sleep(0)
        return Job(status=Status.SUCCEEDED, submission_id=job_id)

    monkeypatch.setattr(job_log, "following", following)
    return pieces


def shown(lines: list[list[str]]) -> str:
    return "".join(piece for kind, piece in lines if kind == "log")


def logs() -> log.Logs:
    job = Job(status=Status.RUNNING, submission_id="a")
    stack = SimpleNamespace(jobs=lambda: [job], server=lambda: None)
    return log.Logs(SimpleNamespace(get=lambda _: stack))


async def test_a_slow_reader_misses_a_part_and_is_told(written):  # F68
    written += [f"{number:07}\n" * 2**12 for number in range(100)]
    read_now = logs()
    slow, quick = (read_now.read("dev", "a") for _ in range(2))
    first = json.loads(await anext(slow))
    whole = [json.loads(each) async for each in quick]
    assert shown(whole) == "".join(written)
    cut, *others, end = [json.loads(each) async for each in slow]
    assert read_now._open == {}
    assert first == ["log", written[0][: log.PIECE]]
    assert (cut[0], "is left out" in cut[1], end) == ("cut", True, ["end", "SUCCEEDED"])
    rest = shown(others)
    assert "".join(written).endswith(rest)
    assert log.MOST_CHARACTERS - log.PIECE <= len(rest) <= log.MOST_CHARACTERS


async def test_a_line_without_an_end_is_broken(written):  # F68
    written += ["x" * 2**15] * 64
    found = [json.loads(each)[1] async for each in logs().read("dev", "a")]
    longest = max(len(line) for line in "".join(found).split("\n"))
    assert longest <= log.LONGEST_LINE + 2**15


async def test_logs_and_readers_are_counted(written, monkeypatch):  # F68
    monkeypatch.setattr(log, "MOST_READERS", 2)
    monkeypatch.setattr(log, "MOST_LOGS", 1)
    written += ["first\n", "second\n"]
    read = logs().read
    first = read("dev", "a")
    found = [await anext(first), await anext(read("dev", "b"))]
    second = read("dev", "a")
    found += [await anext(second), await anext(read("dev", "a"))]
    await first.aclose()
    found.append(await anext(read("dev", "a")))
    kinds = [json.loads(each)[0] for each in found]
    assert kinds == ["log", "fault", "log", "fault", "log"]


@pytest.fixture
def asked(monkeypatch) -> list[int]:
    """Counts the questions for a stack's row."""
    found: list[int] = []
    monkeypatch.setattr(Answers, "row", lambda *_: found.append(1) or {})
    return found


async def test_1000_questions_are_asked_in_turns_each_until_its_answer_is_read(  # F68
    asked, guard
):
    async def ask(path: str, read: asyncio.Event) -> None:
        async def send(message) -> None:
            if message["type"] == "http.response.body":
                await read.wait()

        scope = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
        await guard._app(scope | {"path": path}, asyncio.Event().wait, send)

    read, at_once = asyncio.Event(), asyncio.Event()
    at_once.set()
    async with asyncio.timeout(waiting.DEADLINE_S), asyncio.TaskGroup() as group:
        for _ in range(1000):
            group.create_task(ask("/api/dev/row", read))
        while len(asked) < server.AT_ONCE:
            await asyncio.sleep(0.01)
        await ask("/api/session", at_once)  # the others do not wait for these
        assert len(asked) == server.AT_ONCE
        read.set()
    assert len(asked) == 1000


def test_only_a_reader_that_reads_nothing_is_cut_off():  # F68
    clock = Mock(**{"get_extra_info.return_value": None})  # the loop, and the transport
    config = uvicorn.Config(lambda: None, ws="none", lifespan="off")
    connection = server.Connection(config, ServerState(), {}, clock)

    def look() -> None:
        seconds, looks, before = clock.call_later.call_args.args
        assert seconds == server.UNREAD_S
        looks(before)

    connection.connection_made(clock)
    clock.set_write_buffer_limits.assert_called_once_with(0)  # without a look
    for number, unread in enumerate((300, 200, 100)):  # slow
        clock.get_write_buffer_size.return_value = unread
        (look if number else connection.pause_writing)()
        assert clock.call_later.call_count == number + 1
    connection.resume_writing()
    clock.call_later.return_value.cancel.assert_called_once()
    connection.pause_writing()
    clock.abort.assert_not_called()
    look()
    clock.abort.assert_called_once()


def test_the_server_cuts_readers_off_and_counts_connections(monkeypatch):  # F68
    monkeypatch.setattr(server, "UNREAD_S", 0.1)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    servers: list[uvicorn.Server] = []
    monkeypatch.setattr(
        server, "Server", lambda config: servers.append(uvicorn.Server(config)) or servers[-1]
    )
    ended = threading.Event()

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * server.PIECE
                await asyncio.sleep(0)
        finally:
            ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        answer = server.StreamingResponse(endless())
        thread = threading.Thread(target=server.run, args=(answer, listening))
        thread.start()
        try:
            address = listening.getsockname()
            url = f"http://127.0.0.1:{address[1]}"
            with closed_reader(url, {}):
                assert ended.wait(waiting.DEADLINE_S)
            with socket.create_connection(address):
                assert requests.get(url, timeout=100).status_code == 503
        finally:
            servers[0].should_exit = True
            thread.join()
