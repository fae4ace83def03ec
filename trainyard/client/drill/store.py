"""An outage of the object store of a stack on this machine; the stack starts it again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, NoReturn
from urllib.parse import urlsplit

import docker
import psutil
import urllib3
from docker.errors import DockerException
from docker.models.containers import Container

from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs

STACK_LABEL = "trainyard.stack"
SUPERVISED = "SUPERVISOR_ENABLED"  # supervisord sets it for its programs
BACK_S = 60
STARTING = 500  # HTTP statuses from here on are the server's own faults
POLL_S = 0.1
# By default they end a process at once: its store would stay stopped.
ENDING = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2),
)
SUSPENDING = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)  # and these suspend it


@dataclass(frozen=True)
class Server:
    """The store's server on this machine."""

    what: str  # its name in messages
    pause: Callable[[], object]  # freezes it: its connections stay open and nothing answers
    restart: Callable[[], object]  # kills it; its runtime brings it back


def find_server(outputs: StackOutputs) -> Server:
    """The server behind a stack's object store.

    Raises:
        ClientError: the stack has none, or not on this machine.
    """
    if outputs.away:
        raise ClientError(
            f"the object store of stack {outputs.stack!r} is on {outputs.away}: store-loss "
            "stops a process or a container of this machine; run the drill there"
        )
    if not outputs.object_store_endpoint:
        raise ClientError(
            f"stack {outputs.stack!r} has no object store, its results are files in "
            f"{outputs.storage_url}: set objectStore to versitygw, or drill another loss"
        )
    port = urlsplit(outputs.object_store_endpoint).port or 80
    container = _container(outputs.stack, port)
    if container is not None:
        return container
    for found in psutil.net_connections("tcp"):
        address: Any = found.laddr
        if found.status == psutil.CONN_LISTEN and address.port == port and found.pid:
            process = psutil.Process(found.pid)
            with suppress(psutil.Error):
                if SUPERVISED in process.environ():
                    # A kill ends a stopped one too, and supervisord starts it again.
                    return Server(f"process {process.pid}", process.suspend, process.kill)
    raise ClientError(
        f"nothing that supervisord or a Docker Engine of this machine runs for you listens on "
        f"{outputs.object_store_endpoint}: run the drill as the user, and on the machine, that "
        f"brought stack {outputs.stack!r} up"
    )


@contextmanager
def outage(server: Server, endpoint: str) -> Iterator[Callable[[], None]]:
    """Runs the body while the store does not answer; starts the store again in any case.

    Where a signal would end the process (a closed terminal, Ctrl-C, `kill`), the process ends once
    the store answers. Only SIGKILL leaves the store stopped.

    Yields:
        A function that the body calls repeatedly: it ends the body after a signal.

    Raises:
        ClientError: it has not come back.
    """
    with _Signals() as signals:
        try:
            server.pause()
            yield signals.check
        finally:
            server.restart()
            _wait(endpoint)


class _Signals:
    """Notes signals; they end the work only where it calls `check`.

    A handler that raised would do so anywhere: in an object's finalizer, where Python ignores it,
    or while a lock is taken, which then stays so. A mask would not keep signals away: it is of one
    thread, and another thread takes the signal.
    """

    def __init__(self) -> None:
        self._came = 0  # the first one's number
        self._earlier: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        self._earlier = {each: signal.getsignal(each) for each in (*ENDING, *SUSPENDING)}
        for each in SUSPENDING:
            signal.signal(each, signal.SIG_IGN)
        for each in ENDING:
            if self._earlier[each] is not signal.SIG_IGN:  # as `nohup` does for SIGHUP
                signal.signal(each, self._note)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        for each, handler in self._earlier.items():
            signal.signal(each, handler)
        if self._came and error is None:
            _end(self._came)

    def check(self) -> None:
        """Ends the process if a signal came."""
        if self._came:
            _end(self._came)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self._came:  # once is enough
            return
        self._came = number
        name = signal.Signals(number).name
        with suppress(OSError):  # the terminal is gone
            # Not a stream of Python's: the interrupted code may be writing to it.
            os.write(2, f"drill ended by {name}; the object store is started again\n".encode())


def _end(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _container(stack: str, port: int) -> Server | None:
    try:
        client = docker.from_env()
        found = client.containers.list(
            filters={"label": f"{STACK_LABEL}={stack}", "publish": str(port)}
        )
    except DockerException:
        return None
    for container in found:
        restart = partial(_restart, container)
        return Server(f"container {container.name}", container.pause, restart)
    return None


def _restart(container: Container) -> None:
    """Restart a container: one that was killed by hand would stay down."""
    with suppress(DockerException):  # it was not frozen yet
        container.unpause()
    container.restart(timeout=0)


def _wait(endpoint: str) -> None:
    end = time.monotonic() + BACK_S
    while time.monotonic() < end:
        with suppress(urllib3.exceptions.HTTPError):
            # Without a key a working store refuses a request; one that still starts says to wait.
            if urllib3.request("GET", endpoint, timeout=1, retries=False).status < STARTING:
                return
        time.sleep(POLL_S)
    raise ClientError(
        f"the object store at {endpoint} has not come back within {BACK_S} s: run `make up`"
    )
