"""The plain way to the same services: a script that starts them in parallel and waits."""

import contextlib
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil

from bench.measure import FailedError
from node.process_health import answers
from node.supervisor import inherited_environment

POLL_SECONDS = 0.1
START_SECONDS = 120.0


class PlainServices:
    """The programs that a stack declares, with their commands, files and health checks.

    Args:
        programs: inputs of the stack's Program resources, secrets in the clear.
    """

    def __init__(self, programs: list[dict[str, Any]]) -> None:
        self._programs = programs
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> float:
        """Start all at once and wait until every health check answers; return the seconds."""
        begun = time.perf_counter()
        for program in self._programs:
            home = Path(program["folder"]) / program["name"]
            shutil.rmtree(home / "files", ignore_errors=True)
            (home / "files").mkdir(parents=True)
            for folder in program["folders"]:
                Path(folder).mkdir(parents=True, exist_ok=True)
            for name, content in {**program["files"], **program["secrets"]}.items():
                (home / "files" / name).touch(mode=0o600)
                (home / "files" / name).write_text(content)
            with (home / "log").open("wb") as log:
                self._running.append(
                    subprocess.Popen(
                        program["command"],
                        env=inherited_environment() | program["environment"],
                        cwd=home,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        for program in self._programs:
            for url in program["health"]:
                _await(url, begun + START_SECONDS)
        return time.perf_counter() - begun

    def stop(self) -> float:
        """Ask one after the other to end, the Ray head last; return the seconds of the slowest.

        If all end at once, a Ray worker whose head is gone first waits for it for up to a minute.
        """
        slowest = 0.0
        pairs = list(zip(self._programs, self._running, strict=True))
        for _, process in sorted(pairs, key=lambda pair: "--head" in pair[0]["command"]):
            children = psutil.Process(process.pid).children(recursive=True)
            begun = time.perf_counter()
            process.send_signal(signal.SIGTERM)
            process.wait()
            slowest = max(slowest, time.perf_counter() - begun)
            for child in children:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self._running.clear()
        self._remove()
        return slowest

    def discard(self) -> None:
        """End the remaining processes, and remove their files."""
        for process in self._running:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
            process.wait()
        self._remove()

    def _remove(self) -> None:
        for program in self._programs:
            shutil.rmtree(Path(program["folder"]) / program["name"], ignore_errors=True)


def _await(url: str, deadline: float) -> None:
    while time.perf_counter() < deadline:
        if answers(url):
            return
        time.sleep(POLL_SECONDS)
    raise FailedError(f"{url} did not answer within {START_SECONDS:.0f} s")
