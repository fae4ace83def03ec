"""Logs runs to MLflow if the stack has it (docs/tracking.md), and isolates runs from its faults.

A thread does it, with time-outs: a failure of MLflow never affects the training.
"""

from __future__ import annotations

import atexit
import configparser
import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from trainyard.tracking.mlflow_log import MlflowLog
    from trainyard.tracking.run_folder import RunFolder

URI_VARIABLE = "MLFLOW_TRACKING_URI"
CREDENTIALS_VARIABLE = "TRAINYARD_TRACKING_CREDENTIALS_FILE"
USER_VARIABLE = "MLFLOW_TRACKING_USERNAME"
PASSWORD_VARIABLE = "MLFLOW_TRACKING_PASSWORD"  # noqa: S105 - a name
# The longest that a driver waits. The rest of a start is then done during the training.
START_S = 15.0
END_S = 60.0
STOP_S = 6.0
# MLflow's own defaults are minutes of retries, lines on stdout, and reports to its makers.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def open_log(run: RunFolder) -> RunLog | None:
    """Return the log of a run; None without MLflow."""
    uri = os.environ.get(URI_VARIABLE)
    return RunLog(run, uri) if uri else None


class RunLog:
    """One run's log in one process. Methods return soon and raise nothing.

    The run's folder names the run of MLflow, so that a driver, its workers and a run resumed
    elsewhere log to the same one.
    """

    def __init__(self, run: RunFolder, uri: str) -> None:
        self._run = run
        self._uri = uri
        self._work: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._opened: MlflowLog | None = None
        self._history: Sequence[dict[str, Any]] = ()
        self._warned = False
        self._unfinished = False

    def start(self, config: dict[str, Any]) -> None:
        """Begins or resumes the log.

        A process that ends before `end` has failed, or was killed if it got SIGTERM, as from
        `train stop`.
        """
        self._do(partial(self._start, config), START_S)
        self._unfinished = True
        atexit.register(self._stop, "FAILED")
        if threading.current_thread() is threading.main_thread():  # others cannot set handlers
            self._watch_for_stop()

    def log(self, history: Sequence[dict[str, Any]]) -> None:
        """Logs a run's new epochs; the caller does not wait."""
        self._history = list(history)
        self._do(self._log)

    def end(self) -> None:
        """Logs the remaining epochs, the curves and the model."""
        self._unfinished = False
        if not self._do(self._end, END_S):
            self._warn(f"it was not done within {END_S:g} s")

    def _start(self, config: dict[str, Any]) -> None:
        log = self._find() or self._create(_job(self._run, config))
        log.describe(config)

    def _log(self) -> None:
        # Without one, its driver could not begin it and has warned; it tries again at the end.
        if (log := self._find()) is not None:
            log.log(self._history)

    def _end(self) -> None:
        config = self._run.config() or {}
        log = self._find()
        if log is None:
            log = self._create(_job(self._run, config))
            log.describe(config)
        try:
            log.log(self._run.metrics())
        finally:
            log.finish(_job(self._run, config))

    def _watch_for_stop(self) -> None:
        process, earlier = os.getpid(), signal.getsignal(signal.SIGTERM) or signal.SIG_DFL

        def stopped(number: int, _: FrameType | None) -> None:
            # At once: Ray kills a job 3 s later. Forks, such as a loader's, inherit this.
            if os.getpid() == process:
                self._stop("KILLED")
            signal.signal(number, earlier)
            signal.raise_signal(number)

        signal.signal(signal.SIGTERM, stopped)

    def _stop(self, status: str) -> None:
        if self._opened is not None and self._unfinished:
            self._unfinished = False
            self._do(partial(self._opened.stop, status), STOP_S)

    def _find(self) -> MlflowLog | None:
        if self._opened is None:
            client = self._client()
            from trainyard.tracking.mlflow_log import MlflowLog  # noqa: PLC0415 - imports MLflow: a second

            self._opened = MlflowLog.find(self._run, client)
        return self._opened

    def _create(self, job: str) -> MlflowLog:
        from trainyard.tracking.mlflow_log import MlflowLog  # noqa: PLC0415 - as above

        self._opened = MlflowLog.create(self._run, self._client(), job)
        return self._opened

    def _client(self) -> Any:
        for name, value in (SETTINGS | _credentials()).items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient  # noqa: PLC0415 - as above

        return MlflowClient(self._uri)

    def _do(self, work: Callable[[], object], wait_s: float = 0) -> bool:
        if self._thread is None:
            # A daemon: a request that hangs must not keep the process from its end.
            self._thread = threading.Thread(target=self._serve, name="tracking", daemon=True)
            self._thread.start()
        done = threading.Event()
        self._work.put(work)
        self._work.put(done.set)
        return done.wait(wait_s)

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:
                self._warn(f"{type(error).__name__}: {error}")

    def _warn(self, reason: str) -> None:
        if self._warned:
            return
        self._warned = True
        address = urlsplit(self._uri)
        shown = reason.strip().splitlines()[0][:300]
        for secret in (os.environ.get(PASSWORD_VARIABLE), address.password):
            shown = shown.replace(secret, "***") if secret else shown
        print(  # noqa: T201 - a job's
            f"warning: MLflow at {address.netloc.rpartition('@')[2]} does not accept the log of "
            f"run {self._run.name} ({shown}); the run goes on, and the missing part is tried again "
            "with each epoch and at the end",
            flush=True,
        )


def _job(run: RunFolder, config: dict[str, Any]) -> str:
    return str(config.get("job", run.name))


def _credentials() -> dict[str, str]:
    path = os.environ.get(CREDENTIALS_VARIABLE)
    if not path:
        return {}
    found = configparser.ConfigParser(interpolation=None)
    found.read_string(Path(path).read_text(encoding="utf-8"))
    return {name: found["mlflow"][name.lower()] for name in (USER_VARIABLE, PASSWORD_VARIABLE)}
