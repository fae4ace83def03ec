"""The server behind the page: its files, and answers in JSON.

A question to a stack may hang: it runs in a thread that does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from uvicorn import Config, Server

from trainyard import plain
from trainyard.client import parallel
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError
from trainyard.client.ui import log
from trainyard.client.ui.answers import Answers, message

STATIC = Path(__file__).with_name("static")
FAILED = 503
END_S = 1  # seconds that answers have at the end

Query = dict[str, str]


def application(answers: Answers, token: Callable[[], str] | None = None) -> Starlette:
    """Return the application, to be put behind what decides who may ask.

    Args:
        answers: to the page's questions.
        token: returns that of the guard; None for a page that only shows, which has no way to
            start a command.
    """

    def session(_: Query) -> dict[str, Any]:
        return answers.session() | ({"token": token()} if token else {})

    async def start(request: Request) -> Response:
        return await _answer(answers.start, await _content(request))

    async def job_log(request: Request) -> Response:
        query = {**request.path_params}
        try:
            events = await _aside(log.prepare, answers.stacks.get(query["stack"]), query["job"])
        except (ClientError, DashboardError) as error:
            return _failed(error, query["stack"])
        return StreamingResponse(_guarded(events, query["stack"]), media_type="text/event-stream")

    one = "/api/{stack}"
    questions: dict[str, Callable[[Query], Any]] = {
        "/api/session": session,
        f"{one}/row": answers.row,
        f"{one}/stack": answers.stack,
        f"{one}/nodes": answers.nodes,
        f"{one}/jobs": answers.jobs,
        f"{one}/jobs/{{job}}": answers.job,
        f"{one}/runs": answers.runs,
        f"{one}/compared": answers.compared,
        f"{one}/sweeps": answers.sweeps,
        f"{one}/sweep": answers.sweep,
        f"{one}/services": answers.services,
    }
    commands = [Route("/api/commands", start, methods=["POST"])]
    commands.append(Route("/api/commands", _asking(answers.all_commands)))
    return Starlette(
        routes=[
            Route("/", lambda _: FileResponse(STATIC / "index.html")),
            *(commands if token else []),
            Route(f"{one}/jobs/{{job}}/log", job_log),
            *(Route(path, _asking(question)) for path, question in questions.items()),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
    )


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    config = Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,  # an address may have a key in it
        timeout_graceful_shutdown=END_S,
        lifespan="off",
    )
    Server(config).run(sockets=[listening])


def _asking(question: Callable[[Query], Any]) -> Callable[[Request], Awaitable[Response]]:
    async def ask(request: Request) -> Response:
        return await _answer(question, {**request.query_params, **request.path_params})

    return ask


async def _answer(question: Callable[[Query], Any], query: Query) -> Response:
    try:
        found = await _aside(question, query)
    except (ClientError, DashboardError, ConnectionError, TimeoutError) as error:
        return _failed(error, query.get("stack", ""))
    return Response(plain.json_text(found), media_type="application/json")


async def _content(request: Request) -> Query:
    """Return the texts of a request's JSON object; nothing of anything else."""
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        found = None
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


async def _aside(function: Callable[..., Any], *arguments: object) -> Any:
    return await asyncio.wrap_future(parallel.start(function, *arguments))


async def _guarded(events: AsyncIterator[str], stack: str) -> AsyncIterator[str]:
    """Yield events; an error becomes the last one."""
    try:
        async for event in events:
            yield event
    except (ClientError, DashboardError) as error:
        yield log.event("fault", message(error, stack))


def _failed(error: Exception, stack: str) -> Response:
    return JSONResponse({"error": message(error, stack)}, FAILED)
