"""Starts and stops the Ray worker of this machine for the head, which cannot log in here.

    python node_switch.py SETTINGS

SETTINGS is a JSON file with address and port to listen on, the one program that may be asked for,
and a token. `GET /state`, `POST /start` and `POST /stop` need the token and answer {"state": ...}
in supervisord's words. `GET /health` needs none and says nothing. Nothing else is understood, a
request is short and soon over, and a repeated request changes nothing.

This module is a file of a service, and needs only supervisor.
"""

import asyncio
import contextlib
import hmac
import json
import os
import sys
import xmlrpc.client
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

ACTIONS = {"GET /state": "", "POST /start": "startProcess", "POST /stop": "stopProcess"}
HEALTH = "GET /health"
HEAD_BYTES = 4096  # of a request; more is not read
REQUEST_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Switch:
    """Turns a program on and off.

    Attributes:
        supervisor: URL of supervisord's socket.
    """

    program: str
    token: str
    supervisor: str

    async def answer(self, head: bytes) -> tuple[int, dict[str, str]]:
        """Return status and content of the answer to a request.

        Args:
            head: its first line and headers; it has no more.
        """
        first, *headers = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            return 400, {}
        request = " ".join(words[:2])
        if request == HEALTH:
            return 200, {}
        fields = (line.partition(":") for line in headers)
        given = next((v.strip() for k, _, v in fields if k.lower() == "authorization"), "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            return 401, {}
        if request not in ACTIONS:
            return 404, {}
        try:
            return 200, {"state": await asyncio.to_thread(self._do, ACTIONS[request])}
        except (OSError, xmlrpc.client.Error):  # supervisord is gone, or has no such program
            return 503, {}

    def _do(self, method: str) -> str:
        transport = SupervisorTransport(None, None, self.supervisor)
        try:
            rpc: Any = xmlrpc.client.ServerProxy("http://localhost", transport=transport).supervisor
            if method:
                # It is in the requested state already.
                with contextlib.suppress(xmlrpc.client.Fault):
                    getattr(rpc, method)(self.program, False)
            return str(rpc.getProcessInfo(self.program)["statename"])
        finally:
            transport.close()


async def serve(switch: Switch, address: str, port: int) -> None:
    """Answer requests until the process ends.

    Raises:
        OSError: it cannot listen there.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                status, content = await switch.answer(await reader.readuntil(b"\r\n\r\n"))
                writer.write(_response(status, content))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # such a request gets no answer; a TimeoutError is an OSError
        finally:
            writer.close()

    server = await asyncio.start_server(connected, address, port, limit=HEAD_BYTES)
    async with server:
        await server.serve_forever()


def _response(status: int, content: dict[str, str]) -> bytes:
    body = json.dumps(content)
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    ).encode()


def main(path: str) -> None:
    """Run the service."""
    settings = json.loads(Path(path).read_text())
    switch = Switch(
        program=settings["program"],
        token=settings["token"],
        supervisor=os.environ["SUPERVISOR_SERVER_URL"],
    )
    asyncio.run(serve(switch, settings["address"], settings["port"]))


if __name__ == "__main__":
    main(sys.argv[1])
