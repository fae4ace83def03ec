"""An editor's way to a run that waits for a debugger.

A local port stays the same from run to run. It is open to this user's programs only, and speaks to
debugpy on the cluster with the session's key, so that nobody else can control the run.
"""

import json
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from urllib.parse import urlsplit

from trainyard.access import parallel
from trainyard.access.terminal import as_json
from trainyard.client import connection
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError
from trainyard.client.outputs import Service, StackOutputs
from trainyard.client.stack_connection import LOOPBACK
from trainyard.dev_session import debugger

PORT = 5678  # debugpy's own
CONNECT_S = 5.0
CHUNK_BYTES = 2**16


class Debugger:
    """Passes an editor's connection on to the run that waits."""

    def __init__(self, session: str, outputs: StackOutputs, resources: ExitStack) -> None:
        self._outputs = outputs
        self._resources = resources
        self._key = debugger.key(outputs.ray_token, session)
        self._listener: socket.socket | None = None
        self._there = (LOOPBACK, 0)
        self._tunnels = ExitStack()
        resources.push(self._tunnels)

    def point(self, host: str, port: int, folders: dict[str, str]) -> None:
        """Forwards to a run that waits at an address of the cluster, and says how to attach.

        Folders are the run's, by their paths here.
        """
        self._there = self._address(host, port)
        if self._listener is None:
            self._listener = self._resources.enter_context(_listen())
            parallel.start(self._accept, self._listener)
            here = self._listener.getsockname()[1]
            say("for .vscode/launch.json; other editors attach to the same address:")
            say(as_json(_configuration(here, folders), indent=2))
        say(f"the run waits for a debugger at {LOOPBACK}:{self._listener.getsockname()[1]}")

    def _address(self, host: str, port: int) -> tuple[str, int]:
        if self._outputs.cluster is not None:
            raise ClientError(
                "a pod's own address cannot be reached: kubectl forwards to services only. "
                "Run the job on a stack of this machine to debug it"
            )
        url = f"http://{host}:{port}"
        name = "debugger"
        service = Service(title=name, output=name, url=url, login="", password="", user="")
        self._tunnels.close()
        to_run = connection.to(replace(self._outputs, services=(service,)))
        address = urlsplit(self._tunnels.enter_context(to_run).outputs.services[0].url)
        return address.hostname or host, address.port or port

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                editor, address = listener.accept()
            except OSError:  # closed
                return
            if _is_ours(address):
                parallel.start(self._pass_on, editor)
            else:
                warn(f"debugger: a connection of another user ({address[1]}) was refused")
                editor.close()

    def _pass_on(self, editor: socket.socket) -> None:
        with editor:
            try:
                run = socket.create_connection(self._there, CONNECT_S)
            except OSError as error:
                warn(f"debugger: no run waits at {self._there[0]}:{self._there[1]} ({error})")
                return
            with run:
                try:
                    _authorize(run, self._key)
                    run.settimeout(None)
                    back = threading.Thread(target=_copy, args=(run, editor), daemon=True)
                    back.start()
                    _copy(editor, run)
                    back.join()
                except (OSError, ClientError) as error:
                    warn(f"debugger: {error}")


def _listen() -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, PORT))
    except OSError:  # taken
        return socket.create_server((LOOPBACK, 0))


def _is_ours(address: tuple[str, int]) -> bool:
    """Whether a program of this user has made a connection from this address."""
    import psutil  # noqa: PLC0415 - slow

    me = psutil.Process().uids().real
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real == me and any(
                each.laddr == address for each in process.net_connections("tcp")
            ):
                return True
    return False


def _authorize(run: socket.socket, key: str) -> None:
    """Shows debugpy the key, as its own adapter does; ClientError if the run has another key."""
    arguments = {"debugServerAccessToken": key}
    request = {"seq": 0, "type": "request", "command": "pydevdAuthorize", "arguments": arguments}
    body = json.dumps(request).encode()
    run.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    header = b""
    while not header.endswith(b"\r\n\r\n"):
        header += _read(run, 1)
    length = int(header.lower().partition(b"content-length:")[2].split()[0])
    if not json.loads(_read(run, length)).get("success"):
        raise ClientError("the run does not know this session's key: start the session again")


def _read(run: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = run.recv(length - len(found))
        if not piece:
            raise ClientError("the run has ended")
        found += piece
    return found


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(CHUNK_BYTES):
            target.sendall(piece)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _configuration(port: int, folders: dict[str, str]) -> dict[str, object]:
    return {
        "name": "train dev",
        "type": "debugpy",
        "request": "attach",
        "connect": {"host": LOOPBACK, "port": port},
        "pathMappings": [
            {"localRoot": here, "remoteRoot": there} for here, there in folders.items()
        ],
        "justMyCode": True,
    }
