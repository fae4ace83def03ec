"""The stacks that the page shows: their outputs, connections, jobs and runs, kept for a moment.

Nothing is stored: each figure is what the functions behind `train` return, asked again after some
seconds, and only while somebody looks.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Generic, TypeVar

from trainyard.client import connection, costs, jobs, left_results, rows
from trainyard.client import outputs as contract
from trainyard.client.dashboard import Dashboard, DashboardError
from trainyard.client.errors import ClientError, DownError
from trainyard.client.job_server import Job, JobServer
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import open_store
from trainyard.client.ui.run_cache import RunCache

OUTPUTS_S = 30.0  # reading them may take seconds, from a bucket
FAILED_S = 10.0
JOBS_S = 2.0
ACCOUNT_S = 30.0

T = TypeVar("T")


class Kept(Generic[T]):
    """A value that is asked for again after some seconds; so is an error."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._value: T | None = None
        self._error: Exception | None = None
        self._until = 0.0

    def __call__(self) -> T:
        """Return the value; raises what the question raised."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._error = None
                try:
                    self._value = self._ask()
                except (ClientError, DashboardError) as error:
                    self._error = error
                seconds = self._seconds if self._error is None else min(FAILED_S, self._seconds)
                self._until = time.monotonic() + seconds
            if self._error is not None:
                raise self._error
            assert self._value is not None  # noqa: S101 - for the type checker
            return self._value


class Stack:
    """One stack or attached cluster.

    `outputs` are those with addresses that answer here (a stack that is down raises DownError),
    `jobs` the newest first, with those of other programs at their places, `account` what the queue
    says of costs, `users` what `train user list` has. Each raises ClientError where the stack is
    not reached, and `users` DashboardError if the queue does not answer, or only teachers may ask.
    """

    def __init__(self, name: str, file: Path | None, report: Callable[[str], None]) -> None:
        self.name = name
        self._file = file
        self._report = report
        self._open = ExitStack()
        self._read: StackOutputs | None = None
        self._reached: StackOutputs | None = None
        self._runs: RunCache | None = None
        self.outputs = Kept(self._ask_outputs, OUTPUTS_S)
        self.jobs = Kept(self._ask_jobs, JOBS_S)
        self.account = Kept(lambda: costs.shortly(self.outputs()), ACCOUNT_S)
        self.users = Kept(self._ask_users, ACCOUNT_S)

    def server(self) -> JobServer:
        """The job server; it is not asked."""
        return JobServer(self.outputs())

    def runs(self) -> RunCache:
        """The runs in the store, also of a stack that is down.

        Raises:
            ClientError: it is not reached, or no store is known.
        """
        try:
            outputs = self.outputs()
        except DownError:
            if (left := left_results.of_stack(self.name)) is None:
                raise
            outputs = left
        if self._runs is None or self._runs.outputs != outputs:
            self._runs = RunCache(open_store(outputs), outputs)
        return self._runs

    def close(self) -> None:
        """Ends the connection."""
        self._open.close()

    def _ask_outputs(self) -> StackOutputs:
        found = contract.read(self.name, self._file)
        if found != self._read or self._reached is None:
            self._open.close()
            self._reached = None
            opened = self._open.enter_context(connection.to(found, self._report))
            self._reached, self._read = opened.outputs, found
        return self._reached

    def _ask_users(self) -> list[dict[str, str]]:
        outputs = self.outputs()
        return rows.of_users(Dashboard(outputs).get(rows.USERS)) if outputs.queue else []

    def _ask_jobs(self) -> list[Job]:
        server = jobs.connect(self.outputs())
        return sorted(server.jobs(), key=lambda job: -job.start_time)


class Stacks:
    """The stacks of this project, and the attached clusters."""

    def __init__(self, asked: str | None, file: Path | None, report: Callable[[str], None]) -> None:
        """Raises ClientError for a file that cannot be read, or is another stack's."""
        given = os.environ.get(contract.FILE_VARIABLE)
        self.file = file or (Path(given) if given else None)
        asked = asked or os.environ.get(contract.STACK_VARIABLE)
        if self.file is not None:
            asked = contract.read(asked, self.file).stack
        self.first = asked or contract.DEFAULT_STACK
        self._report = report
        self._known: dict[str, Stack] = {}
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Names of the stacks that have settings here or are attached: the first one first."""
        found = {self.first}
        if self.file is None:
            found |= contract.known_stacks()
        return sorted(found, key=lambda name: (name != self.first, name))

    def get(self, name: str) -> Stack:
        """Return a stack; ClientError if no stack has this name."""
        with self._lock:
            if name not in self._known:
                if name not in self.names():
                    raise ClientError(
                        f"no stack is called {name[:80]!r}: choose one of {', '.join(self.names())}"
                    )
                self._known[name] = Stack(name, self.file, self._report)
            return self._known[name]

    def close(self) -> None:
        """Ends all connections."""
        for stack in self._known.values():
            stack.close()
