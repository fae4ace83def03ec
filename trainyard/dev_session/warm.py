"""The warm process: it has imported torch and Ray, and forks for each run.

Reads one order per line: a run, which replaces the previous one. At the end of its input it ends,
together with its run. It never connects to Ray: a fork would lose Ray's threads.
"""

import atexit
import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from . import debugger, records, trees, worker

IMPORTS = ("torch", "ray", "ray.train", "ray.train.torch", "ray._raylet")
PR_SET_PDEATHSIG = 1
OWN = (__file__, runpy.__file__, "<frozen runpy>")  # frames that are not the user's


class Warm:
    """Runs at most one job at a time."""

    def __init__(self) -> None:
        self._pid = 0
        self._run = 0
        self._began = 0.0

    def serve(self) -> dict[str, Any] | None:
        """Takes orders until its input ends; returns, in the fork, the order to run."""
        pending = b""
        while True:
            with select.epoll() as waiting:
                waiting.register(0, select.EPOLLIN)
                ended = os.pidfd_open(self._pid) if self._pid else -1
                if self._pid:
                    waiting.register(ended, select.EPOLLIN)
                ready = {descriptor for descriptor, _ in waiting.poll()}
            if self._pid:
                os.close(ended)
            if ended in ready:
                self._reap(replaced=False)
            if 0 not in ready:
                continue
            read = os.read(0, 2**16)
            if not read:
                self.end()
                return None
            *lines, pending = (pending + read).split(b"\n")
            for line in lines:
                self.end()
                order: dict[str, Any] = json.loads(line)
                if order.get("command") and self._fork(order["run"]):
                    return order

    def end(self) -> None:
        """Kills the run and its processes; Ray then ends its workers."""
        if self._pid:
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            os.kill(self._pid, signal.SIGKILL)  # it may not have a group yet
            self._reap(replaced=True)

    def _reap(self, *, replaced: bool) -> None:
        _, status = os.waitpid(self._pid, 0)
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)  # the run's remaining processes
        self._pid = 0
        code = None if replaced else os.waitstatus_to_exitcode(status)
        seconds = round(time.monotonic() - self._began, 2)
        records.print_record(records.ENDED, run=self._run, code=code, seconds=seconds)

    def _fork(self, run: int) -> bool:
        self._run, self._began = run, time.monotonic()
        records.print_record(records.STARTED, run=run)
        self._pid = os.fork()
        return self._pid == 0


def main() -> None:
    """Imports, then serves."""
    session = sys.argv[1]
    for name in IMPORTS:
        with suppress(ImportError):  # a node without torch
            importlib.import_module(name)
    with suppress(ImportError):
        importlib.import_module(f"{__package__}.controller").in_driver()
    records.print_record(records.READY)
    order = Warm().serve()
    if order is not None:
        _leave(_run(session, order))


def _run(session: str, order: dict[str, Any]) -> int | str | None:
    """Acts as `python COMMAND`, in the fork; returns its exit code."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    tree = trees.of_node(session)
    os.environ |= order["environment"]
    configuration = os.environ.get(worker.JOB_VARIABLE, "{}")
    os.environ[worker.JOB_VARIABLE] = worker.job_configuration(configuration, session)
    tree.enter()
    for name in [each for each in sys.modules if each.partition(".")[0] == trees.PACKAGE]:
        del sys.modules[name]
    importlib.invalidate_caches()
    if order["debug"]:
        debugger.wait(session, tree.folder)
    _, first, *rest = order["command"]
    # It stays after the run's end, for its threads, and for processes that it has spawned.
    main = sys.modules["__main__"] = sys.modules["__mp_main__"] = ModuleType("__main__")
    try:
        if first == "-m":
            sys.argv = rest
            runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        else:
            sys.argv = [first, *rest]
            path = Path(first).resolve()
            sys.path.insert(0, str(path.parent))
            main.__file__ = str(path)
            exec(compile(path.read_bytes(), first, "exec", dont_inherit=True), vars(main))  # noqa: S102
    except SystemExit as end:
        return end.code
    except BaseException as error:
        traceback.print_exception(type(error), error, _theirs(error.__traceback__))
        return 1
    return 0


def _leave(code: int | str | None) -> NoReturn:
    """Ends the fork like the interpreter, but frees nothing: with torch that takes seconds."""
    if isinstance(code, str):
        print(code, file=sys.stderr)  # noqa: T201 - as the interpreter does
        code = 1
    # The interpreter's order: threads, including executors', then `atexit`.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed
            stream.flush()
    os._exit(code or 0)


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the user's first frame on."""
    while trace is not None and trace.tb_frame.f_code.co_filename in OWN:
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    main()
