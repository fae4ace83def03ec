"""A session seen from here: begin it, send changes, show its output, end it.

In a notebook:

    from trainyard.client.dev.session import open_session

    session = open_session("my_job.py")
    session.run("--epochs", "1")  # sends changes; shows the run's output until its end
    session.close()

Messages go up as packages do, and the log comes down, through the dashboard: it is the one address
of a cluster that a client reaches everywhere, and it asks for the token.
"""

import secrets
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainyard import dev_session
from trainyard.access import parallel
from trainyard.client import connection, jobs, scripts, submission
from trainyard.client import outputs as contract
from trainyard.client.console import say, warn
from trainyard.client.dashboard import Dashboard, DashboardError
from trainyard.client.dev.debugger import Debugger
from trainyard.client.dev.log import Log, unread
from trainyard.client.dev.sources import Sources
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, JobServer, Status
from trainyard.client.outputs import StackOutputs
from trainyard.dev_session import messages, patches, records

PACKAGE = Path(dev_session.__file__).resolve().parent
LOG = "/api/v0/logs/stream"  # of the dashboard
LOG_INTERVAL_S = 0.05
ALIVE_S = 15.0  # the session waits for four times as long
LOOK_S = 0.5
END_S = 15.0
TRIES = 3  # of a message


class DevSession:
    """A job on the cluster that runs the same script again and again.

    Attributes:
        job_id: its submission id.
        sources: the files that it was sent.
        sent_bytes: size of the last message.
        ended: the job, once it has ended.
    """

    def __init__(
        self,
        name: str,
        job_id: str,
        server: JobServer,
        outputs: StackOutputs,
        sources: Sources,
        resources: ExitStack,
        *,
        idle: bool,
    ) -> None:
        """Follows a session's job.

        Args:
            name: the session's id.
            job_id: submission id.
            server: that has the job.
            outputs: of the stack, with addresses that answer here.
            sources: the files that it was sent.
            resources: closed at its end.
            idle: nothing runs before `run`.
        """
        self.job_id = job_id
        self.sent_bytes = 0
        self.ended: Job | None = None
        self._name = name
        self._next = "run it" if idle else "save a file, and it runs again; Ctrl-C ends it"
        self._server = server
        self._dashboard = Dashboard(outputs)
        self.sources = sources
        self._resources = resources
        self._debugger = Debugger(name, outputs, resources)
        self._log = Log(name, sources.roots, self._hear)
        self._log_bytes = 0
        self._log_lock = threading.Lock()
        self._messages = 0
        self._messages_lock = threading.Lock()
        self._run = 0 if idle else 1
        self._codes: dict[int, int | None] = {}
        self._news = threading.Condition()
        parallel.start(self._follow)
        parallel.start(self._keep)

    def save(self, touched: set[Path] | None = None) -> bool:
        """Sends changes of written paths (None: of all) and begins a run; False if nothing changed.

        Raises:
            ClientError: a file may not be sent, or the cluster is out of reach.
        """
        changes = self.sources.changes(touched)
        if changes:
            self._begin_run({"kind": "run"}, changes)
        return bool(changes)

    def run(self, *arguments: str) -> int | None:
        """Sends the changes, and runs the script with these arguments until its end.

        Returns:
            The exit code; None where another run took its place.

        Raises:
            ClientError: as `save`, or the session has ended.
        """
        self._begin_run({"kind": "run", "arguments": arguments}, self.sources.changes())
        number = self._run
        with self._news:
            self._news.wait_for(lambda: number in self._codes or self.ended is not None)
        if number not in self._codes:
            raise ClientError(f"session {self.job_id} has ended: open it again")
        return self._codes[number]

    def close(self) -> None:
        """Ends the session and waits until its job has ended."""
        with self._resources:
            if self.ended is None:
                with suppress(ClientError):
                    self._send({"kind": "end"}, {})
                with self._news:
                    self._news.wait_for(lambda: self.ended is not None, END_S)
            if self.ended is None:
                self._server.stop(self.job_id)
                jobs.wait_for_end(self._server, self.job_id)

    def _begin_run(self, header: dict[str, Any], changes: patches.Changes) -> None:
        try:
            self._send(header, changes)
        except ClientError:
            self.sources.forget(changes)
            raise
        self._run += 1

    def _send(self, header: dict[str, Any], changes: patches.Changes) -> None:
        message = patches.pack(header, changes)
        with self._messages_lock:
            place = messages.PACKAGES + messages.name(self._name, self._messages)
            for left in reversed(range(TRIES)):
                try:
                    self._dashboard.put(place, message)
                    break
                except DashboardError as error:
                    if not left:
                        raise ClientError(
                            f"nothing was sent ({error}): save again once the stack answers; "
                            "it ends a session whose client has been silent for a minute"
                        ) from None
                    time.sleep(LOOK_S)
            self._messages += 1
        self.sent_bytes = len(message)

    def _hear(self, record: dict[str, Any]) -> None:
        match record["event"]:
            case records.READY:
                say(f"session ready: {self._next}")
            case records.DEBUGGER:
                self._wait_for_debugger(record)
            case records.ENDED:
                code = record["code"]
                result = "succeeded" if code == 0 else f"failed with exit code {code}"
                if code is not None:
                    say(f"run {record['run']} {result}, {record['seconds']} s")
                with self._news:
                    self._codes[int(record["run"])] = code
                    self._news.notify_all()

    def _wait_for_debugger(self, record: dict[str, Any]) -> None:
        there = str(record["folder"])
        folders = {str(here): f"{there}/{root}" for root, here in self.sources.roots.items()}
        try:
            self._debugger.point(str(record["host"]), int(record["port"]), folders)
        except ClientError as error:
            warn(f"error: {error}")

    def _follow(self) -> None:
        while self.ended is None:
            with suppress(DashboardError):  # not begun yet, or cut
                pieces = self._dashboard.stream(
                    LOG,
                    node_id=self._server.job(self.job_id).node_id,
                    submission_id=self.job_id,
                    interval=LOG_INTERVAL_S,
                    lines=-1,
                )
                for piece in unread(pieces, self._log_bytes):
                    self._take(piece)
            time.sleep(LOG_INTERVAL_S)

    def _take(self, piece: bytes) -> None:
        with self._log_lock:
            if self.ended is None:
                self._log_bytes += len(piece)
                self._log.feed(piece)

    def _keep(self) -> None:
        """Tells the session that this client is there, and notices its end."""
        alive = answered = time.monotonic()
        while self.ended is None:
            time.sleep(LOOK_S)
            now = time.monotonic()
            if now - alive > ALIVE_S:
                alive = now
                with suppress(ClientError):  # reported below if it lasts
                    self._send({"kind": "alive"}, {})
            try:
                job = self._server.job(self.job_id)
                answered = now
            except DashboardError:
                if now - answered > jobs.LOST_THROUGH_SSH_S:
                    warn(f"lost the cluster for {jobs.LOST_THROUGH_SSH_S} s; the session has ended")
                    self._finish(Job(status=Status.STOPPED), b"")
                continue
            if job.status.ended:
                rest = b""
                with suppress(DashboardError):
                    rest = self._server.raw_log(self.job_id)
                self._finish(job, rest)

    def _finish(self, job: Job, log: bytes) -> None:
        with self._log_lock:
            self._log.feed(log[self._log_bytes :])
            self._log.close()
            self.ended = job
        with self._news:
            self._news.notify_all()


def open_session(
    job: str,
    arguments: Sequence[str] = (),
    *,
    idle: bool = True,
    debug: bool = False,
    working_dir: str | None = None,
    runtime_env: Path | None = None,
    stack: str | None = None,
    outputs: Path | None = None,
) -> DevSession:
    """Begins a session.

    Args:
        job: a name of training/, or the path of a .py file.
        arguments: the job's own.
        idle: nothing runs before the session's `run`; else the first run begins at once.
        debug: each run waits for a debugger.
        working_dir: folder to upload; by default the folder of the .py file.
        runtime_env: YAML or JSON file of Ray's runtime environment.
        stack: name of the stack.
        outputs: file with the stack's outputs.

    Raises:
        ClientError: a check failed, or the server refused the job.
    """
    imported = submission.prepare()
    script = scripts.find(job, working_dir)
    if script.working_dir is not None and "://" in script.working_dir:
        raise ClientError(f"working directory {script.working_dir} is an address: give a folder")
    config = scripts.config(script, arguments)
    name = secrets.token_hex(4)
    run_name = f"{submission.default_run_name(script)}-dev"
    env = submission.runtime_env(runtime_env, script, run_name, progress=sys.stdout.isatty())
    env["py_modules"] = [*env.get("py_modules", []), str(PACKAGE)]
    stack_outputs = contract.read(stack, outputs)
    imported.result()
    with ExitStack() as resources:
        stack_outputs = resources.enter_context(connection.to(stack_outputs)).outputs
        sources = Sources(script, env["excludes"], stack_outputs.secrets)
        options = {"--debug": debug, "--idle": idle}
        given = [option for option, on in options.items() if on]
        command = ["python", "-m", PACKAGE.name, name, *given, "--"]
        request = submission.Request(
            script=replace(script, command=(*command, *script.command)),
            arguments=arguments,
            config=config,
            run_name=run_name,
            runtime_env=env,
        )
        server, job_id = submission.submit(request, stack_outputs, force=False)
        say(f"session {job_id}: torch and Ray are being imported")
        return DevSession(
            name, job_id, server, stack_outputs, sources, resources.pop_all(), idle=idle
        )
