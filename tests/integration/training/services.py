"""Programs that run while the tests do."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil


@contextmanager
def service(
    command: list[str], env: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program, and ends it with every process that it started."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=log.parent
        )
    try:
        yield process
    finally:
        family = [psutil.Process(process.pid)] if process.poll() is None else []
        family += [child for parent in family for child in parent.children(recursive=True)]
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
        for member in family:
            if member.is_running():
                member.kill()
        process.wait()
