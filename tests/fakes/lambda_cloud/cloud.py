"""The fake cloud as tests start it: in a thread of the test, or as a process of its own."""

import asyncio
import contextlib
import dataclasses
import json
import secrets
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fakes.lambda_cloud.account import Account
from tests.fakes.lambda_cloud.faults import Fault, Faults
from tests.fakes.lambda_cloud.journal import Journal
from tests.fakes.lambda_cloud.machines_protocol import Machines
from tests.fakes.lambda_cloud.server import Server

ROOT = Path(__file__).resolve().parents[3]
START_SECONDS = 30
CLIENT_PACE = 0.005  # of clients where the fake has no bounds: quick, and no busy loop


class FakeCloud:
    """A fake cloud in a thread; its account outlives every client.

    Attributes:
        url: of the API.
        api_key: the one that it takes.
        account, faults, journal: to look at and to change.
    """

    def __init__(
        self,
        *,
        pace: float | None = None,
        boot_seconds: float = 0.0,
        terminate_seconds: float = 0.0,
        quota: int | None = None,
        machines: Machines | None = None,
        api_key: str | None = None,
        state: Path | None = None,
        port: int = 0,
    ) -> None:
        """Make a cloud that does not listen yet.

        Args:
            pace: factor of the API's bounds (1 request/s, 1 launch/12 s), None for no bounds.
            boot_seconds: from a launch to active.
            terminate_seconds: from a terminate to a 404.
            quota: the most instances, None for any number.
            machines: real machines behind the instances, None for none.
            api_key: None for a new one.
            state: file that keeps the account, so that it outlives this object.
            port: on loopback, 0 for a free one.
        """
        self.api_key = api_key or f"secret_fake_{secrets.token_hex(16)}"
        self.faults = Faults()
        self.journal = Journal()
        self.account = Account(
            boot_seconds=boot_seconds,
            terminate_seconds=terminate_seconds,
            quota=quota,
            machines=machines,
            state=state,
        )
        self.url = ""
        self._pace = pace
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def start(self) -> None:
        """Listen."""
        listening = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listening,), daemon=True)
        self._thread.start()
        listening.wait(START_SECONDS)
        if not self.url:
            raise RuntimeError("the fake cloud does not listen; its traceback is above")

    def stop(self) -> None:
        """Stop listening, and end all machines."""
        if self._loop is not None and self._end is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()
            self._thread = self._loop = self._end = None
        self.account.close()

    def __enter__(self) -> "FakeCloud":
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def environment(self) -> dict[str, str]:
        """Return the variables with which a program uses this cloud, as fast as it may."""
        return {
            "LAMBDA_API_URL": self.url,
            "LAMBDA_API_KEY": self.api_key,
            "TRAINYARD_LAMBDA_PACE": str(self._pace or CLIENT_PACE),
        }

    def _run(self, listening: threading.Event) -> None:
        try:
            asyncio.run(self._serve(listening))
        finally:
            listening.set()

    async def _serve(self, listening: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = Server(self.account, self.faults, self.journal, self.api_key, self._pace)
        port = await server.start(self._port)
        self.url = f"http://127.0.0.1:{port}"
        listening.set()
        await self._end.wait()
        await server.stop()


@dataclass(frozen=True, kw_only=True)
class CloudProcess:
    """A fake cloud in a process of its own, controlled by HTTP.

    Attributes:
        environment: variables with which a program uses it.
    """

    process: subprocess.Popen[str]
    environment: dict[str, str]

    def journal(self) -> list[dict[str, Any]]:
        return self._control("GET", "journal")

    def instances(self) -> list[dict[str, Any]]:
        return self._control("GET", "instances")

    def add_fault(self, fault: Fault) -> None:
        self._control("POST", "faults", dataclasses.asdict(fault))

    def clear_faults(self) -> None:
        self._control("DELETE", "faults")

    def set_capacity(self, capacity: dict[str, dict[str, int]]) -> None:
        self._control("PUT", "capacity", capacity)

    def disappear(self, id_: str) -> None:
        self._control("DELETE", f"instances/{id_}")

    def advance(self, seconds: float) -> None:
        self._control("POST", "time", {"seconds": seconds})

    def _control(self, method: str, what: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.environment['LAMBDA_API_URL']}/_fake/{what}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
        )
        # A proxy of the user's cannot reach this machine's loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=START_SECONDS) as answer:
            return json.load(answer)


@contextlib.contextmanager
def cloud_process(*arguments: str) -> Iterator[CloudProcess]:
    """Run `python -m tests.fakes.lambda_cloud` with arguments, and end it afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.lambda_cloud", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # not ended by the Ctrl-C of a test's terminal
    )
    try:
        assert process.stdout is not None
        variables = [process.stdout.readline().strip().split("=", 1) for _ in range(3)]
        if process.poll() is not None:
            raise RuntimeError(f"the fake cloud ended with {process.returncode}")
        yield CloudProcess(process=process, environment=dict(variables))
    finally:
        process.terminate()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
