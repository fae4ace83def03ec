"""A program of this machine, copied to another one whose packages lack it."""

import hashlib
import platform
import shlex
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Resource, say
from infra.machines.host_provider import HostProvider
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import copy, run

CALL_SECONDS = 60.0
MODE = 0o755


class ExecutableProvider(HostProvider):
    """Copies once, and again when the file of this machine has another content."""

    replaces = ("machine", "path")  # another way to the machine is the same copy

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Copy the file, unless the machine has it."""
        _put(props)
        return dynamic.CreateResult(props["path"], props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Check whether the copy is there and intact."""
        there = False
        with self.unless_gone(props):
            there = _digest(props) == _local_digest(props)
        return dynamic.ReadResult(id_, props) if there else dynamic.ReadResult("", {})

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Remove the copy."""
        with self.unless_gone(props):
            _call(props, f"rm -f {shlex.quote(props['path'])}")


class Executable(Resource, module="host", name="Executable"):
    """A copy of a program, from source (path here), path (there), host and machine."""

    _kind = ExecutableProvider
    path: pulumi.Output[str]


def _put(props: dict[str, Any]) -> None:
    source = Path(props["source"])
    if _digest(props) == _local_digest(props):
        return
    theirs, ours = _call(props, "uname -m").strip(), platform.machine()
    if theirs != ours:
        raise SshError(
            f"{props['machine']} is {theirs}, and {source.name} of this machine is for {ours}: "
            f"run `up` on a machine that is {theirs}, or set objectStore to directory"
        )
    say(f"copying {source.name} ({source.stat().st_size >> 20} MiB) to {props['machine']}")
    _call(props, f"mkdir -p {shlex.quote(str(Path(props['path']).parent))}")
    copy(Connection.of(props["host"]), source, props["path"], mode=MODE)


def _digest(props: dict[str, Any]) -> str:
    path = shlex.quote(props["path"])
    return _call(props, f"test ! -f {path} || sha256sum {path}").partition(" ")[0]


def _local_digest(props: dict[str, Any]) -> str:
    with Path(props["source"]).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _call(props: dict[str, Any], command: str) -> str:
    return run(Connection.of(props["host"]), command, seconds=CALL_SECONDS)
