"""A program of this machine, copied to another one whose packages lack it."""

import hashlib
import platform
import shlex
from pathlib import Path
from typing import Any

import pulumi

from cluster.provider import Given, Resource, say
from infra.machines.host_provider import HostArgs, HostProvider
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import copy, run

CALL_SECONDS = 60.0
MODE = 0o755


class ExecutableArgs(HostArgs):
    """Arguments of a copy: its source here, and its path there."""

    source: Given[str]
    path: str


class ExecutableProvider(HostProvider[ExecutableArgs]):
    """Copies once, and again when the file of this machine has another content."""

    replaces = ("machine", "path")  # another way to the machine is the same copy

    def make(self, args: ExecutableArgs) -> tuple[str, dict[str, Any]]:
        if not self.exists(args.path, args):
            _put(args)
        return args.path, {}

    def exists(self, _id: str, args: ExecutableArgs) -> bool:
        path = shlex.quote(args.path)
        there = _call(args, f"test ! -f {path} || sha256sum {path}").partition(" ")[0]
        with Path(args.source).open("rb") as file:
            return there == hashlib.file_digest(file, "sha256").hexdigest()

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        args = self.takes.of(props)
        with self.unless_gone(args.host):
            _call(args, f"rm -f {shlex.quote(args.path)}")


class Executable(Resource[ExecutableArgs], module="host", name="Executable"):
    """A copy of a program."""

    _kind = ExecutableProvider
    path: pulumi.Output[str]


def _put(args: ExecutableArgs) -> None:
    source = Path(args.source)
    theirs, ours = _call(args, "uname -m").strip(), platform.machine()
    if theirs != ours:
        raise SshError(
            f"{args.machine} is {theirs}, and {source.name} of this machine is for {ours}: "
            f"run `up` on a machine that is {theirs}, or set objectStore to directory"
        )
    say(f"copying {source.name} ({source.stat().st_size >> 20} MiB) to {args.machine}")
    _call(args, f"mkdir -p {shlex.quote(str(Path(args.path).parent))}")
    copy(Connection.of(args.host), source, args.path, mode=MODE)


def _call(args: ExecutableArgs, command: str) -> str:
    return run(Connection.of(args.host), command, seconds=CALL_SECONDS)
