"""The resources of the process runtime: folders, supervisord, its programs and their files.

A program counts as up when its health checks answer. Everything below the runtime's folder goes
with the stack; volumes that outlive it are in the data folder.
"""

# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from cluster import ray_node
from cluster.provider import Given, Resource
from infra.machines import local
from infra.machines.on_host import OnHostArgs, OnHostProvider
from infra.service import leaving
from node.programs import RESTARTING

# Both engines have all providers in one process.
_one_after_another = threading.Lock()


class DataArgs(OnHostArgs):
    """Arguments of the folder of data that outlives the stack.

    Attributes:
        folder: absolute path.
        store: name of the object store, "" for none.
        ports: numbers by setting, which the stack has for as long as the folder.
    """

    keep: bool
    store: str
    ports: Mapping[str, Sequence[int]]


class DaemonArgs(OnHostArgs):
    """Arguments of a supervisord.

    Attributes:
        ports: numbers by setting.
        data: folder of the stack's data here; None elsewhere.
        reservation: what `node/ending.py` is told; None for no end.
    """

    identifier: str
    ports: Mapping[str, Sequence[int]]
    data: Given[str | None] = None
    reservation: Given[Mapping[str, Any] | None] = None


class FilesArgs(OnHostArgs):
    """Arguments of secret files; name is that of their folder, secrets their contents by name."""

    name: str
    secrets: Given[Mapping[str, str]]


class ProgramArgs(FilesArgs):
    """Arguments of a program; `cluster.service.Service` explains those that it has too.

    Attributes:
        folders: that it needs.
        ports: number and setting of each.
        health: URLs that answer once it is up.
        startTimeout: seconds until they have to.
        leave: file, arguments and drains of its LeaveSteps, and the seconds that a drain may take.
    """

    command: Given[Sequence[str]]
    environment: Given[Mapping[str, str]]
    files: Given[Mapping[str, str]]
    folders: Sequence[str]
    stopSeconds: int
    ports: Sequence[Mapping[str, Any]]
    health: Given[Sequence[str]]
    startTimeout: int
    onDemand: bool | None = None
    steadySeconds: int | None = None
    leave: Given[Mapping[str, Any] | None] = None


class DataProvider(OnHostProvider[DataArgs]):
    """The folder of data that outlives the stack: another folder is another resource."""

    kind = "data"
    replaces = ("folder", "machine")


class DaemonProvider(OnHostProvider[DaemonArgs]):
    """supervisord itself: another folder means another one, whose ports the old one frees first.

    So does another mark or data folder, which it has in its environment and locks from its start.
    """

    kind = "daemon"
    health_output = "healthy"
    replaces = ("folder", "identifier", "mark", "data", "machine")

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Compare; one that has ended with its reservation is replaced, with all its programs."""
        found = super().diff(_id, olds, news)
        before = olds.get("reservation") or {}
        if before != (news.get("reservation") or {}):
            found.changes = True
            if before and datetime.fromisoformat(before["end"]) <= datetime.now(UTC):
                found.replaces = [*(found.replaces or []), "reservation"]
        return found

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Refuse to take a stack that is up away from another checkout: jobs would be lost.

        And name the ports that others hold, in a preview too; those of other machines `up` checks.
        """
        faults = []
        before, after = Path(olds.get("folder", "")), Path(news["folder"])
        apart = before != after and all(map(local.is_runtime_folder, (before, after)))
        where = ""
        if apart and self.act("find", olds) is not None:
            where = f"in {before}, and this one would run in {after}"
        elif olds and "host" not in olds:  # all checkouts have a folder that a setting names
            where = self.act("elsewhere", olds)
        if where:
            text = (
                f"stack {news['mark']['stack']} is up from another checkout, {where}: end it with "
                "`make down`, here or there, or bring up a stack of another name with other ports"
            )
            faults.append(dynamic.CheckFailure("folder", text))
        elif "host" not in news and (taken := self.act("taken", olds, news)):
            faults.append(dynamic.CheckFailure("ports", taken))
        return dynamic.CheckResult(news, faults)

    def update(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Change it; one that was killed starts again, which ends the jobs that go on without it.

        Raises:
            ServiceError: there are such jobs, and FORCE is not set.
        """
        killed = "supervisord was killed, and its jobs go on and would be lost"
        leaving.refuse_loss(killed, partial(self.act, "users", news))
        return super().update(id_, olds, news)


class ProgramProvider(OnHostProvider[ProgramArgs]):
    """One program of a supervisord: another folder or name is another program."""

    kind = "program"
    replaces = ("folder", "name", "machine")
    health_output = "healthy"

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Note that this is no `destroy`."""
        leaving.note_program()
        return super().check(olds, news)

    def delete(self, id_: str, props: dict[str, Any]) -> None:
        """Remove it; the users of a worker that a change removes leave before."""
        leave = props.get("leave") or {}
        if leave.get("drains"):
            seconds = int(leave["seconds"])
            ask = partial(self.act, "users", props)
            drain = partial(self.act, "drain", seconds, props)
            leaving.leave_removed(props["name"], seconds, ask, drain)
        super().delete(id_, props)

    def update(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Change it; its users leave before it restarts, one program after another.

        Jobs end with their head; their runs store a checkpoint first. With another token all nodes
        restart at once, and none waits for another.

        Raises:
            ServiceError: its users would be lost, and FORCE is not set.
        """
        users = self._users(olds, news)
        if not users:
            return super().update(id_, olds, news)
        before, after = (ProgramArgs.of(props) for props in (olds, news))
        tokens = {args.secrets.get(ray_node.TOKEN_FILE) for args in (before, after)}
        leave = before.leave or {}  # never empty: it told the users
        drains = len(tokens) == 1 and bool(leave["drains"])
        with _one_after_another if drains else nullcontext():
            seconds = int((after.leave or leave)["seconds"])
            drain = partial(self.act, "drain", seconds, olds)
            leaving.leave(after.name, users, drain, drains=drains, seconds=seconds)
            return super().update(id_, olds, news)

    def _users(self, olds: dict[str, Any], news: dict[str, Any]) -> list[str]:
        """Return the users of a program that is to restart."""
        if "leave" not in olds or all(olds.get(key) == news.get(key) for key in RESTARTING):
            return []
        found: list[str] = self.act("users", olds)
        return found


class FilesProvider(OnHostProvider[FilesArgs]):
    """Secret files of programs that the stack does not run itself."""

    kind = "files"
    replaces = ("folder", "name", "machine")


class Data(Resource[DataArgs], module="process", name="Data"):
    """The folder of data that outlives the stack.

    Attributes:
        folder: absolute path.
    """

    _kind = DataProvider
    folder: pulumi.Output[str]


class Daemon(Resource[DaemonArgs], module="process", name="Supervisor"):
    """The supervisord of a stack on a host.

    Attributes:
        healthy: whether it answered at the last look.
    """

    _kind = DaemonProvider
    folder: pulumi.Output[str]
    healthy: pulumi.Output[bool]


class Program(Resource[ProgramArgs], module="process", name="Program"):
    """A program of a supervisord; exists once its health checks have answered.

    Attributes:
        healthy: whether it was well at the last look; False where an interrupted create left it.
    """

    _kind = ProgramProvider
    name: pulumi.Output[str]
    healthy: pulumi.Output[bool]


class Files(Resource[FilesArgs], module="process", name="Files"):
    """Secret files of programs that the stack does not run itself."""

    _kind = FilesProvider
