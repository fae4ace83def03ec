"""A program that Go builds once, into a cache that all stacks share."""

import fcntl
import os
import subprocess
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Provider
from infra.provided import say

HEARTBEAT_SECONDS = 10.0
LAST_LINES = 20


class BuildError(Exception):
    """Go could not build the program; the message ends with its last lines."""


class GoToolProvider(Provider):
    """Builds a Go program. Its delete keeps the cache, which other stacks use too."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another module, version or place is another program."""
        keys = [key for key in ("module", "version", "path") if _olds[key] != _news[key]]
        return dynamic.DiffResult(changes=bool(keys), replaces=keys)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Build the program, unless it is there."""
        path = Path(props["path"])
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Two stacks that come up together build it once: the second one waits for the first.
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                _build(f"{props['module']}@{props['version']}", path)
        return dynamic.CreateResult(str(path), props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether the program is still in the cache."""
        return dynamic.ReadResult(id_, props) if Path(id_).exists() else dynamic.ReadResult("", {})


class GoTool(dynamic.Resource, module="host", name="GoTool"):
    """A program in the cache.

    Attributes:
        path: absolute path of the executable.
    """

    path: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        props: dict[str, pulumi.Input[str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Declare a program from module, version and path."""
        super().__init__(GoToolProvider(), name, props, opts)


def _build(package: str, path: Path) -> None:
    """Run `go install`, telling what it does.

    Raises:
        BuildError: it failed.
    """
    started = time.monotonic()
    say(f"building {package} (once; takes some minutes)")
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        # Without cgo it needs no C compiler and runs on any Linux of this kind.
        environment = {**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"}
        build = subprocess.Popen(
            ["go", "install", "-trimpath", package],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        done = threading.Event()
        beat = threading.Thread(target=_heartbeat, args=(package, started, done), daemon=True)
        beat.start()
        try:
            assert build.stdout is not None  # noqa: S101 (Popen was given PIPE)
            last = deque((line.rstrip() for line in build.stdout), maxlen=LAST_LINES)
            code = build.wait()
        finally:
            build.kill()
            done.set()
            beat.join()
        if code:
            log = "\n".join(f"  {line}" for line in last)
            raise BuildError(
                f"go install {package} failed with exit code {code}. Install MinIO on PATH, or set "
                f"objectStore to directory. Go's last lines:\n{log}"
            )
        built = Path(folder) / package.split("@", maxsplit=1)[0].rsplit("/", maxsplit=1)[-1]
        built.rename(path)
    say(f"built {package} in {time.monotonic() - started:.0f} s: {path}")


def _heartbeat(package: str, started: float, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_SECONDS):
        say(f"building {package}: {time.monotonic() - started:.0f} s")
