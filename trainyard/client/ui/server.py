"""The server behind the page: its files, and answers in JSON.

A question to a stack may hang: it runs in a thread that does not keep the program from ending.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainyard import json_values
from trainyard.access import parallel
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError
from trainyard.client.ui.answers import Answers, message
from trainyard.client.ui.log import Logs
from trainyard.client.ui.stacks import Stacks

STATIC = Path(__file__).with_name("static")
FAILED = 503
END_S = 1  # seconds that answers have at the end
AT_ONCE = 16  # questions to a stack that are answered at once; others wait
MOST_CONNECTIONS = 800
UNREAD_S = 10.0  # for a reader that reads nothing, until it is cut off
PIECE = 2**16  # bytes of an answer

Query = dict[str, str]


def application(answers: Answers) -> Starlette:
    """Return the application, to be put behind what decides who may ask."""
    logs = Logs(answers.stacks)
    turns: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))

    def asking(question: Callable[[Query], Any]) -> ASGIApp:
        return _Question(question, answers.stacks, turns)

    async def job_log(request: Request) -> Response:
        stack, job = request.path_params["stack"], request.path_params["job"]
        return StreamingResponse(logs.read(stack, job), media_type="application/x-ndjson")

    one = "/api/{stack}"
    questions: dict[str, Callable[[Query], Any]] = {
        "/api/session": lambda _: answers.session(),
        f"{one}/row": answers.row,
        f"{one}/stack": answers.stack,
        f"{one}/nodes": answers.nodes,
        f"{one}/jobs": answers.jobs,
        f"{one}/jobs/{{job}}": answers.job,
        f"{one}/runs": answers.runs,
        f"{one}/compared": answers.compared,
        f"{one}/cost": answers.cost,
        f"{one}/files": answers.files,
        f"{one}/file": answers.file,
        f"{one}/sweeps": answers.sweeps,
        f"{one}/sweep": answers.sweep,
        f"{one}/services": answers.services,
    }
    commands = [Route("/api/commands", asking(answers.start), methods=["POST"])]
    commands.append(Route("/api/commands", asking(answers.all_commands), methods=["GET"]))
    return Starlette(
        routes=[
            Route("/", lambda _: FileResponse(STATIC / "index.html")),
            *([] if answers.read_only else commands),
            Route(f"{one}/jobs/{{job}}/log", job_log),
            *(Route(path, asking(each), methods=["GET"]) for path, each in questions.items()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    config = Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,
        access_log=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=END_S,
        lifespan="off",
    )
    Server(config).run(sockets=[listening])


class Connection(H11Protocol):
    """A connection that is cut if the other end does not read what it asked for."""

    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Counts every byte that could not be sent at once as unread."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)

    def pause_writing(self) -> None:
        """Looks later how much is still unread."""
        super().pause_writing()
        unread = self.transport.get_write_buffer_size()
        self._look = self.loop.call_later(UNREAD_S, self._cut, unread)

    def resume_writing(self) -> None:
        """Everything was read."""
        super().resume_writing()
        if self._look is not None:
            self._look.cancel()

    def _cut(self, before: int) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread < before:
            self._look = self.loop.call_later(UNREAD_S, self._cut, unread)
        else:
            self.transport.abort()


@dataclass
class _Question:
    """Answers a question to a stack: some at once, each until its answer is read."""

    ask: Callable[[Query], Any]
    stacks: Stacks
    turns: Mapping[str, asyncio.Semaphore]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        asked = {**request.query_params, **request.path_params}
        query = await _content(request) if request.method == "POST" else asked
        stack = query.get("stack", "")
        async with self.turns[stack if stack in self.stacks.names() else ""]:
            found = parallel.start(lambda: _content_of(self.ask(query)))
            try:
                content, kind = await asyncio.wrap_future(found)
            except (ClientError, DashboardError, ConnectionError, TimeoutError) as error:
                answer: Response = JSONResponse({"error": message(error, stack)}, FAILED)
            else:
                answer = StreamingResponse(_pieces(content), media_type=kind)
            await answer(scope, receive, send)


def _content_of(answer: Any) -> tuple[bytes, str]:
    """Return an answer as bytes, and their kind; a browser takes none of a file for a page."""
    if isinstance(answer, bytes):
        return answer, "application/octet-stream"
    return json_values.text(answer).encode(), "application/json"


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    """Yield bytes in pieces, the next one when the last one has been read."""
    for begin in range(0, len(content), PIECE):
        yield content[begin : begin + PIECE]


async def _content(request: Request) -> Query:
    """Return the texts of a request's JSON object; nothing of anything else."""
    found = json_values.parse_object(await request.body()) or {}
    return {k: v for k, v in found.items() if isinstance(v, str)}
