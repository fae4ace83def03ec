"""The fake cloud as tests start it, in a thread of the test."""

import asyncio
import secrets
import threading
from types import TracebackType

from tests.fakes.lambda_cloud.account import Account
from tests.fakes.lambda_cloud.faults import Faults
from tests.fakes.lambda_cloud.journal import Journal
from tests.fakes.lambda_cloud.machines_protocol import Machines
from tests.fakes.lambda_cloud.server import Server

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
        machines: Machines | None = None,
    ) -> None:
        """Make a cloud that does not listen yet.

        Args:
            pace: factor of the API's bounds (1 request/s, 1 launch/12 s), None for no bounds.
            boot_seconds: from a launch to active.
            machines: real machines behind the instances, None for none.
        """
        self.api_key = f"secret_fake_{secrets.token_hex(16)}"
        self.faults = Faults()
        self.journal = Journal()
        self.account = Account(boot_seconds=boot_seconds, machines=machines)
        self.url = ""
        self._pace = pace
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def start(self) -> None:
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
        port = await server.start()
        self.url = f"http://127.0.0.1:{port}"
        listening.set()
        await self._end.wait()
        await server.stop()
