"""The HTTP side of the fake cloud: Lambda's API on an account, which /_fake/ shows.

A request passes the API key, the pace, the faults, the document, the operation and the document
again. An answer that the document does not have is a 500 and a problem in the journal, unless a
test ordered it.
"""

import asyncio
import dataclasses
import json
import re
import socket
import struct
import time
from typing import Any

from aiohttp import web

from tests.fakes.lambda_cloud import contract
from tests.fakes.lambda_cloud.account import INVALID, Account, Refusal
from tests.fakes.lambda_cloud.faults import Fault, Faults, error_body
from tests.fakes.lambda_cloud.journal import Entry, Journal

API = "/api/v1"
REQUEST_SECONDS = 1.0
LAUNCH_SECONDS = 12.0
BODY_LIMIT = 4 * 1024 * 1024  # bytes; user data may have 1 MB
STOP_SECONDS = 0.1  # for connections to end
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST

# Operation, which is the name of the client's method, by method and path.
OPERATIONS = [
    ("GET", "/instance-types", "instance_types"),
    ("GET", "/instances", "instances"),
    ("GET", "/instances/{id}", "instance"),
    ("POST", "/instances/{id}", "rename"),
    ("POST", "/instance-operations/launch", "launch"),
    ("POST", "/instance-operations/terminate", "terminate"),
    ("GET", "/ssh-keys", "ssh_keys"),
    ("POST", "/ssh-keys", "add_ssh_key"),
    ("DELETE", "/ssh-keys/{id}", "delete_ssh_key"),
    ("GET", "/file-systems", "file_systems"),
    ("POST", "/filesystems", "create_file_system"),
    ("DELETE", "/filesystems/{id}", "delete_file_system"),
    ("GET", "/firewall-rulesets", "firewall_rulesets"),
    ("POST", "/firewall-rulesets", "create_firewall_ruleset"),
    ("PATCH", "/firewall-rulesets/{id}", "update_firewall_ruleset"),
    ("DELETE", "/firewall-rulesets/{id}", "delete_firewall_ruleset"),
]
ROUTES = [
    (method, re.compile(API + path.replace("{id}", "(?P<id>[^/]+)")), operation)
    for method, path, operation in OPERATIONS
]


class Limits:
    """How often the API may be called: the account's bounds, scaled.

    Attributes:
        pace: factor of both bounds, None for no bounds.
    """

    def __init__(self, pace: float | None) -> None:
        self.pace = pace
        self._last: dict[str, float] = {}

    def refused(self, operation: str) -> float:
        """Return the seconds to wait before this call, 0 if it may go on."""
        if self.pace is None:
            return 0.0
        bounds = {"": REQUEST_SECONDS}
        if operation == "launch":
            bounds["launch"] = LAUNCH_SECONDS
        now = time.monotonic()
        left = max(
            self._last[key] + bound * self.pace - now if key in self._last else 0.0
            for key, bound in bounds.items()
        )
        if left > 0:
            return left
        self._last |= dict.fromkeys(bounds, now)
        return 0.0


class Server:
    """Lambda's API on an account."""

    def __init__(
        self, account: Account, faults: Faults, journal: Journal, api_key: str, pace: float | None
    ) -> None:
        self.account = account
        self.faults = faults
        self.journal = journal
        self.limits = Limits(pace)
        self._api_key = api_key
        self._stopping = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen on a free port of loopback; return it."""
        contract.document()  # no request has to wait for it
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_get("/_fake/journal", self._journal)
        app.router.add_get("/_fake/instances", self._instances)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening; requests that are being delayed are answered at once."""
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        entry = Entry(method=request.method, path=request.path)
        id_ = ""
        for method, pattern, operation in ROUTES:
            found = pattern.fullmatch(request.path)
            if found and method == request.method:
                entry.operation, id_ = operation, found.groupdict().get("id", "")
                break
        raw = await request.read()
        body = _decoded(raw)
        self.journal.add(entry)
        try:
            return await self._answer(request, entry, id_, raw, body)
        except Refusal as refusal:
            content = error_body(refusal.code, refusal.message, refusal.suggestion)
            return self._respond(entry, refusal.status, content)

    async def _answer(
        self, request: web.Request, entry: Entry, id_: str, raw: bytes, body: Any
    ) -> web.StreamResponse:
        self._admit(request)
        if seconds := self.limits.refused(entry.operation):
            entry.status, entry.code = 429, "global/rate-limited"
            # In whole seconds on the real one, which is not scaled.
            headers = {"Retry-After": f"{seconds:.4f}"}
            return _json(429, error_body(entry.code, "Rate limit exceeded."), headers)
        if not entry.operation:
            raise Refusal(404, "global/object-does-not-exist", "There is no such endpoint.")
        fault = self.faults.take(entry.operation)
        if fault is not None:
            entry.fault = fault.action
            return await self._fail(request, entry, fault, id_, raw, body)
        return self._perform(entry, id_, raw, body)

    def _admit(self, request: web.Request) -> None:
        if _key(request.headers.get("Authorization", "")) != self._api_key:
            raise Refusal(
                401,
                "global/invalid-api-key",
                "API key was invalid, expired, or deleted.",
                "Check your API key or create a new one, then try again.",
            )

    def _perform(self, entry: Entry, id_: str, raw: bytes, body: Any) -> web.Response:
        """Carry out the request; answer as the document has it."""
        problem = contract.request_problem(entry.method, entry.path, raw)
        if problem:
            # Not every endpoint has a 400 in the document; the API has to say something.
            entry.status, entry.code = 400, INVALID
            return _json(400, error_body(INVALID, f"Invalid request data: {problem}"))
        with self.account.changing():
            data = getattr(self.account, f"op_{entry.operation}")(id_, body)
            # Encoded while nothing changes it.
            content = json.loads(json.dumps({"data": data}))
        return self._respond(entry, 200, content)

    def _respond(self, entry: Entry, status: int, content: dict[str, Any]) -> web.Response:
        if entry.operation:
            entry.problem = contract.response_problem(entry.method, entry.path, status, content)
        if entry.problem:
            status = 500
            content = error_body("fake/contract", f"not as in the document: {entry.problem}")
        entry.status = status
        entry.code = content.get("error", {}).get("code", "")
        return _json(status, content)

    async def _fail(
        self, request: web.Request, entry: Entry, fault: Fault, id_: str, raw: bytes, body: Any
    ) -> web.StreamResponse:
        done = self._perform(entry, id_, raw, body) if fault.commit else None
        if fault.action == "delay":
            await self._pass(fault.seconds)
            return done or self._perform(entry, id_, raw, body)
        if fault.action == "drop":
            entry.status, entry.code = None, ""
            return _dropped(request)
        entry.status = fault.status
        if isinstance(fault.body, str):
            return web.Response(status=fault.status, text=fault.body, content_type="text/html")
        entry.code = fault.body.get("error", {}).get("code", "")
        return _json(fault.status, fault.body)

    async def _pass(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _journal(self, _request: web.Request) -> web.Response:
        return _json(200, [dataclasses.asdict(each) for each in self.journal.entries])

    async def _instances(self, _request: web.Request) -> web.Response:
        with self.account.changing():
            return _json(200, [dataclasses.asdict(e) for e in self.account.instances.values()])


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None  # the document's check says so


def _key(header: str) -> str:
    """Return the API key of an Authorization header."""
    scheme, _, value = header.partition(" ")
    return value if scheme == "Bearer" else ""


def _json(status: int, content: Any, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(content, status=status, headers=headers)


def _dropped(request: web.Request) -> web.StreamResponse:
    """Reset the connection of a request."""
    assert request.transport is not None
    connection: socket.socket = request.transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    request.transport.abort()
    return web.Response()
