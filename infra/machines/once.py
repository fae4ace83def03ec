"""A program of this machine that runs once, to its end; the folders that it filled stay.

Its lines are shown while it works. It runs in its own session: a Ctrl-C reaches the engine,
which then asks the program to end.
"""

# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import contextlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pulumi import dynamic

from cluster.provider import Args, Given, Resource, say
from infra.service.cancellation import WaitingProvider
from node import folders
from node.folders import FolderMark
from node.life import ServiceError
from node.supervisor import inherited_environment

STOP_SECONDS = 20.0  # to remove unfinished work


class OnceArgs(Args):
    """Arguments of a program that runs once.

    Attributes:
        hostFiles: paths on this machine, by the names that the program uses for them.
    """

    folder: Given[str]
    name: str
    command: Given[Sequence[str]]
    environment: Given[Mapping[str, str]]
    hostFiles: Mapping[str, str]
    folders: Sequence[str]
    mark: Given[Mapping[str, str]]


class OnceProvider(WaitingProvider[OnceArgs]):
    """A program that has ended well; it runs again for another command or other files."""

    def configure(self, req: dynamic.ConfigureRequest) -> None:
        super().configure(req)
        self._running: set[subprocess.Popen[str]] = set()

    def cancel(self) -> None:
        super().cancel()
        for process in list(self._running):
            process.terminate()

    def exists(self, _id: str, args: OnceArgs) -> bool:
        """Look whether the folders that it filled still hold something."""
        folders = map(Path, args.folders)
        return all(folder.is_dir() and any(folder.iterdir()) for folder in folders)

    def make(self, args: OnceArgs) -> tuple[str, dict[str, Any]]:
        """Run it to its end.

        Raises:
            ServiceError: it ended badly, or the folder is not the stack's.
            CanceledError: the user asked to stop.
        """
        self._cancellation.check()
        name, own = args.name, Path(args.folder) / args.name
        if reason := folders.foreign(own.parent, FolderMark.of(args.mark)):
            raise ServiceError(
                f"{own.parent} {reason}. Run `up` with --refresh to have another made"
            )
        for folder in args.folders:
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.rmtree(own, ignore_errors=True)
        (own / "files").mkdir(mode=0o700, parents=True)
        for file, path in args.hostFiles.items():
            (own / "files" / file).symlink_to(path)
        process = subprocess.Popen(
            args.command,
            env={**inherited_environment(), **args.environment},
            cwd=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            umask=0o077,
            start_new_session=True,
        )
        self._running.add(process)
        said = "(nothing)"
        try:
            self._cancellation.check()
            assert process.stdout is not None  # noqa: S101 (for the type checker)
            for line in process.stdout:
                said = line.rstrip()
                say(f"{name}: {said}")
            status = process.wait()
        finally:
            _end(process)
            self._running.discard(process)
            shutil.rmtree(own, ignore_errors=True)
        self._cancellation.check()
        if status:
            raise ServiceError(f"{name} ended (exit code {status}): {said.removeprefix('error: ')}")
        return name, {}


class Once(Resource[OnceArgs], module="process", name="Once"):
    """A program that has ended well."""

    _kind = OnceProvider


def _end(process: subprocess.Popen[str]) -> None:
    """End a program, whatever it is doing."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
    process.kill()
    process.wait()
    assert process.stdout is not None  # noqa: S101 (for the type checker)
    process.stdout.close()
