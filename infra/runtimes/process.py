"""The process runtime: services as programs of one supervisord for each host and stack.

A service counts as up when its health checks answer. Everything below the runtime's folder goes
with the stack; volumes that outlive it are in the data folder.
"""

import ipaddress
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from cluster import ray_head, ray_node
from cluster.autoscaling import NodeProvider
from cluster.service import Port, Service, Volume
from infra.hosts import local
from infra.provided import FORCE, say
from infra.runtimes import ray_logs
from infra.runtimes.mark import StackMark
from infra.runtimes.on_host import OnHostProvider
from infra.runtimes.once import Once
from infra.runtimes.programs import RESTARTING, ProgramError

LOOPBACK = "127.0.0.1"
# Both engines have all providers in one process.
_one_after_another = threading.Lock()
NODE_PROVIDER = Path(__file__).with_name("node_provider.py")


@dataclass(frozen=True, kw_only=True)
class ProcessRuntimeArgs:
    """Arguments of the process runtime.

    Attributes:
        folder: runtime folder, absolute; removed with the stack.
        data: data folder, absolute.
        keep_data: whether the data folder outlives the stack.
        identifier: name of this stack's supervisord.
        executables: path of each program that services name.
        ports: every port of the stack, so that all conflicts are reported at once.
        store: name of the object store, "" for a folder.
        start_timeout: seconds that a service may take until it answers.
        drain: seconds that its users may take to leave before it restarts.
    """

    folder: str
    data: str
    keep_data: bool
    identifier: str
    executables: Mapping[str, pulumi.Input[str]]
    ports: Sequence[Port]
    store: str
    start_timeout: int
    drain: int

    def __post_init__(self) -> None:
        for folder in (self.folder, self.data):
            if not Path(folder).is_absolute():
                raise ValueError(f"folder {folder!r} must be absolute")


class ProcessRuntime(pulumi.ComponentResource):
    """Runs services as supervised processes of this machine.

    Attributes:
        folder: runtime folder.
    """

    folder: pulumi.Output[str]
    via = None

    def __init__(
        self, name: str, args: ProcessRuntimeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:process:ProcessRuntime", name, None, opts)
        self._name, self._args = name, args
        self._filled: dict[str, Once] = {}
        child = pulumi.ResourceOptions(parent=self)
        settings: dict[str, list[int]] = {}
        for port in args.ports:
            settings.setdefault(port.setting, []).append(port.number)
        self._mark = StackMark(f"{name}-mark", child)
        marked = {"mark": self._mark.props}
        self._data = Data(
            f"{name}-data",
            {"folder": args.data, "keep": args.keep_data, "store": args.store, **marked},
            child,
        )
        self._daemon = Daemon(
            f"{name}-supervisor",
            {
                "folder": args.folder,
                "identifier": args.identifier,
                "ports": settings,
                "data": self._data.folder,
                **marked,
            },
            child,
        )
        self.folder = self._daemon.folder
        self.register_outputs({"folder": self.folder})

    def listen_address(self, service: str) -> str:  # noqa: ARG002 (all share one machine)
        """Return the address that a service listens on for its clients."""
        return LOOPBACK

    def node_address(self, index: int) -> str:
        """Return a loopback address of the node's own.

        Ray takes 127.0.0.1 for the machine's address, with which the cluster would be open to
        others, and lost when a laptop changes its network.
        """
        return str(ipaddress.IPv4Address(LOOPBACK) + 1 + index)

    def address(self, service: str, port: int) -> str:  # noqa: ARG002 (all share one machine)
        """Return host:port at which other services reach the port of a service."""
        return f"{LOOPBACK}:{port}"

    def published(self, service: str, port: int) -> str:
        """Return host:port at which this Pulumi program reaches a published port."""
        return self.address(service, port)

    def public(self, service: str, port: int) -> str:
        """Return host:port at which users of this machine reach a published port."""
        return self.address(service, port)

    def file(self, service: str, name: str) -> str:
        """Return the path at which a service finds one of its files or secrets."""
        return f"{self._args.folder}/{service}/files/{name}"

    def volume(self, service: str, volume: Volume) -> str:
        """Return the path at which a service finds one of its volumes."""
        base = self._args.data if volume.keep else self._args.folder
        return f"{base}/{volume.name}" if volume.shared else f"{base}/{service}/{volume.name}"

    def node_provider(self) -> NodeProvider:
        """Return the provider that has supervisord start and stop nodes on demand."""
        # Not imported: it imports all of Ray.
        text = NODE_PROVIDER.read_text(encoding="utf-8")
        return NodeProvider(text=text, settings={"supervisor": self._args.folder})

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        """Declare a service; the returned resource exists once it is up, or has ended well."""
        if service.once:
            return self._place_once(service, opts)
        props: dict[str, Any] = {
            "folder": self._daemon.folder,
            "name": service.name,
            "command": [self._args.executables[service.program], *service.arguments],
            "environment": {**service.environment, **self._one_machine(service)},
            "files": dict(service.files),
            "secrets": pulumi.Output.secret(dict(service.secrets)),
            "folders": self._folders(service),
            "stopSeconds": service.stop_seconds,
            "ports": [{"number": p.number, "setting": p.setting} for p in service.ports],
            "health": [f"http://{LOOPBACK}:{check.port}{check.path}" for check in service.health],
            "startTimeout": self._args.start_timeout,
            "mark": self._mark.props,
            **({"onDemand": True} if service.on_demand else {}),
            **leaving(service, self._args.drain),
        }
        fillers = [self._filled[v.name] for v in service.volumes if v.name in self._filled]
        after = pulumi.ResourceOptions(depends_on=[self._data, *fillers])
        return Program(
            f"{self._name}-{service.name}", props, pulumi.ResourceOptions.merge(opts, after)
        )

    def _place_once(self, service: Service, opts: pulumi.ResourceOptions) -> Once:
        props: dict[str, Any] = {
            "folder": self._daemon.folder,
            "name": service.name,
            "command": [self._args.executables[service.program], *service.arguments],
            "environment": dict(service.environment),
            "hostFiles": {
                name: local.existing_file(path, f"{service.name}.{name}")
                for name, path in service.host_files.items()
            },
            "folders": self._folders(service),
            "mark": self._mark.props,
        }
        after = pulumi.ResourceOptions(depends_on=[self._data])
        once = Once(
            f"{self._name}-{service.name}", props, pulumi.ResourceOptions.merge(opts, after)
        )
        self._filled |= {volume.name: once for volume in service.volumes if volume.shared}
        return once

    def _one_machine(self, service: Service) -> dict[str, str]:
        """Return the variables of a Ray worker whose head is on the same machine."""
        if service.program != "ray" or service.name == ray_head.SERVICE:
            return {}
        return ray_logs.environment(self.volume(ray_head.SERVICE, ray_node.TEMP))

    def _folders(self, service: Service) -> list[str]:
        """Return the folders that a service needs; another one makes those that it only reads."""
        return [self.volume(service.name, v) for v in service.volumes if not v.read_only]


def leaving(service: Service, seconds: int) -> dict[str, Any]:
    """Return the property of a program whose users are asked to leave before it restarts."""
    if (leave := service.leave) is None:
        return {}
    said = {"file": leave.file, "arguments": list(leave.arguments), "drains": leave.drains}
    return {"leave": {**said, "seconds": seconds}}


class DataProvider(OnHostProvider):
    """The folder of data that outlives the stack: another folder is another resource."""

    kind = "data"
    replaces = ("folder",)


class DaemonProvider(OnHostProvider):
    """supervisord itself: another folder means another one, whose ports the old one frees first.

    So does another mark or data folder, which it has in its environment and locks from its start.
    """

    kind = "daemon"
    replaces = ("folder", "identifier", "mark", "data")

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Refuse to take a stack that is up away from another checkout: jobs would be lost."""
        faults = []
        before, after = Path(olds.get("folder", "")), Path(news["folder"])
        apart = before != after and all(map(local.is_runtime_folder, (before, after)))
        where = ""
        if apart and self.act("read", str(before), olds) is not None:
            where = f"in {before}, and this one would run in {after}"
        elif olds and "host" not in olds:  # all checkouts have a folder that a setting names
            where = self.act("elsewhere", olds)
        if where:
            text = (
                f"stack {news['mark']['stack']} is up from another checkout, {where}: end it with "
                "`make down`, here or there, or bring up a stack of another name with other ports"
            )
            faults.append(dynamic.CheckFailure("folder", text))
        return dynamic.CheckResult(news, faults)


class ProgramProvider(OnHostProvider):
    """One program of a supervisord: another folder or name is another program."""

    kind = "program"
    replaces = ("folder", "name")

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Compare; a program that an interrupted create left is waited for."""
        found = super().diff(_id, olds, news)
        found.changes = found.changes or not olds.get("healthy", True)
        return found

    def update(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Change it; its users leave before it restarts, one program after another.

        Jobs end with their head; their runs store a checkpoint first. With another token all nodes
        restart at once, and none waits for another.

        Raises:
            ProgramError: its users would be lost, and FORCE is not set.
        """
        users = self._users(olds, news)
        if not users:
            return super().update(id_, olds, news)
        tokens = {props["secrets"].get(ray_node.TOKEN_FILE) for props in (olds, news)}
        lost = len(tokens) > 1 or not olds["leave"]["drains"]
        if lost and not os.environ.get(FORCE):
            raise ProgramError(
                f"{news['name']} is restarted by this change, and its jobs would be lost: "
                f"{', '.join(users)}. Wait for their end, or stop them (train stop JOB), and "
                "run `up` again; `make up FORCE=1` asks, and ends them"
            )
        with nullcontext() if lost else _one_after_another:
            seconds = int(news.get("leave", olds["leave"])["seconds"])
            say(f"{news['name']} is drained, for at most {seconds} s: {', '.join(users)}")
            self.act("drain", seconds, olds)
            return super().update(id_, olds, news)

    def _users(self, olds: dict[str, Any], news: dict[str, Any]) -> list[str]:
        """Return the users of a program that is to restart."""
        if "leave" not in olds or all(olds.get(key) == news.get(key) for key in RESTARTING):
            return []
        found: list[str] = self.act("users", olds)
        return found


class FilesProvider(OnHostProvider):
    """Secret files of programs that the stack does not run itself."""

    kind = "files"
    replaces = ("folder", "name")


class Data(dynamic.Resource, module="process", name="Data"):
    """The folder of data that outlives the stack.

    Attributes:
        folder: absolute path.
    """

    folder: pulumi.Output[str]

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare a data folder from folder, keep, mark and store (its name, "" for none)."""
        super().__init__(DataProvider(), name, props, opts)


class Daemon(dynamic.Resource, module="process", name="Supervisor"):
    """The supervisord of a stack on this machine.

    Attributes:
        folder: absolute path of its folder.
    """

    folder: pulumi.Output[str]

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare a supervisord from folder, identifier, ports (numbers by setting), data, mark."""
        super().__init__(DaemonProvider(), name, props, opts)


class Program(dynamic.Resource, module="process", name="Program"):
    """A program of a supervisord; exists once its health checks have answered.

    Attributes:
        name: name of the program.
    """

    name: pulumi.Output[str]

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare a program from the properties that ProcessRuntime.place gives it."""
        super().__init__(ProgramProvider(), name, {**props, "healthy": None}, opts)


class Files(dynamic.Resource, module="process", name="Files"):
    """Secret files of programs that the stack does not run itself."""

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare files from folder (of a supervisord), name, secrets (content by name), mark."""
        super().__init__(FilesProvider(), name, props, opts)
