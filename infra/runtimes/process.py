"""The process runtime: services as programs of one supervisord for each host and stack.

A service counts as up when its health checks answer. Everything below the runtime's folder goes
with the stack; volumes that outlive it lie in the data folder.
"""

import http.client
import ipaddress
import shutil
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.service import Port, Service, Volume
from infra.resource import difference, say
from infra.runtimes import ports as port_check
from infra.runtimes.supervisor import Definition, Supervisor, SupervisorError

LOOPBACK = "127.0.0.1"
POLL_SECONDS = 0.1
REQUEST_SECONDS = 2.0
STARTS_LIMIT = 3  # a program that ended this often before it was up will not come up
LOG_LINES = 20
RESTARTING = ("command", "environment", "files", "secrets", "folders", "stopSeconds")


class ProgramError(Exception):
    """A service did not come up; the message ends with its last log lines."""


@dataclass(frozen=True, kw_only=True)
class ProcessRuntimeArgs:
    """Arguments of the process runtime.

    Attributes:
        folder: runtime folder, absolute; removed with the stack.
        data: data folder, absolute.
        keep_data: whether the data folder outlives the stack.
        identifier: name of this stack's supervisord.
        executables: path of each program that services name.
        ports: every port of the stack, so that all conflicts are told at once.
        start_timeout: seconds that a service may take until it answers.
    """

    folder: str
    data: str
    keep_data: bool
    identifier: str
    executables: Mapping[str, pulumi.Input[str]]
    ports: Sequence[Port]
    start_timeout: int

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
    bind_address = LOOPBACK

    def __init__(
        self, name: str, args: ProcessRuntimeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:process:ProcessRuntime", name, None, opts)
        self._name, self._args = name, args
        child = pulumi.ResourceOptions(parent=self)
        settings: dict[str, list[int]] = {}
        for port in args.ports:
            settings.setdefault(port.setting, []).append(port.number)
        self._data = Data(f"{name}-data", {"folder": args.data, "keep": args.keep_data}, child)
        self._daemon = Daemon(
            f"{name}-supervisor",
            {"folder": args.folder, "identifier": args.identifier, "ports": settings},
            child,
        )
        self.folder = self._daemon.folder
        self.register_outputs({"folder": self.folder})

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
        """Return host:port at which users reach a published port: those of this machine only."""
        return self.address(service, port)

    def file(self, service: str, name: str) -> str:
        """Return the path at which a service finds one of its files or secrets."""
        return f"{self._args.folder}/{service}/files/{name}"

    def volume(self, service: str, volume: Volume) -> str:
        """Return the path at which a service finds one of its volumes."""
        if volume.keep:
            return f"{self._args.data}/{service}/{volume.name}"
        return f"{self._args.folder}/{service}/{volume.name}"

    def place(self, service: Service, opts: pulumi.ResourceOptions) -> "Program":
        """Declare a service; the returned resource exists once its health checks answer."""
        props: dict[str, Any] = {
            "folder": self._daemon.folder,
            "name": service.name,
            "command": [self._args.executables[service.program], *service.arguments],
            "environment": dict(service.environment),
            "files": dict(service.files),
            "secrets": pulumi.Output.secret(dict(service.secrets)),
            "folders": [self.volume(service.name, volume) for volume in service.volumes],
            "stopSeconds": service.stop_seconds,
            "ports": [{"number": p.number, "setting": p.setting} for p in service.ports],
            "health": [f"http://{LOOPBACK}:{check.port}{check.path}" for check in service.health],
            "startTimeout": self._args.start_timeout,
        }
        after = pulumi.ResourceOptions(depends_on=[self._data])
        return Program(
            f"{self._name}-{service.name}", props, pulumi.ResourceOptions.merge(opts, after)
        )


class DataProvider(dynamic.ResourceProvider):
    """The folder of what outlives the stack."""

    serialize_as_secret_always = False  # captures nothing

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another folder is another resource; whether it is kept is only noted."""
        return difference(_olds, _news, replaces=["folder"])

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Make the folder, or take over the one of an earlier stack."""
        Path(props["folder"]).mkdir(mode=0o700, parents=True, exist_ok=True)
        return dynamic.CreateResult(props["folder"], props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether the folder is there."""
        return dynamic.ReadResult(id_, props) if Path(id_).is_dir() else dynamic.ReadResult("", {})

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        """Note whether the folder is kept."""
        return dynamic.UpdateResult(_news)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove the folder, or say where it is kept."""
        folder = Path(_props["folder"])
        if not _props["keep"]:
            shutil.rmtree(folder, ignore_errors=True)
        elif any(path.is_file() for path in folder.rglob("*")):
            say(f"kept: {folder} (setting keepData; remove the folder when you no longer need it)")
        elif folder.is_dir():
            shutil.rmtree(folder)  # holds folders only: there is nothing to keep


class DaemonProvider(dynamic.ResourceProvider):
    """supervisord itself."""

    serialize_as_secret_always = False  # captures nothing

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another folder is another supervisord, and the ports are free only after the old one."""
        return difference(_olds, _news, replaces=["folder", "identifier"])

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Start supervisord, or take over the one that an interrupted create left."""
        daemon = _daemon(props)
        if not daemon.alive():
            # What a killed supervisord left running would hold the ports.
            daemon.sweep()
            port_check.refuse_held(_numbers(props["ports"]))
        daemon.start()
        return dynamic.CreateResult(props["folder"], props)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Ask supervisord; one that was killed or lost in a reboot is gone."""
        if _daemon(props).alive():
            return dynamic.ReadResult(id_, props)
        return dynamic.ReadResult("", {})

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        """Check the ports that are new; supervisord itself does not change."""
        old = {number for numbers in _numbers(_olds["ports"]).values() for number in numbers}
        new = {
            setting: [number for number in numbers if number not in old]
            for setting, numbers in _numbers(_news["ports"]).items()
        }
        port_check.refuse_held(new)
        return dynamic.UpdateResult(_news)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """End supervisord with all that it started, and remove its folder."""
        _daemon(_props).stop()

    def find(self, props: dict[str, Any]) -> dynamic.CreateResult | None:
        """Return the supervisord that an interrupted create left behind."""
        if not _daemon(props).alive():
            return None
        return dynamic.CreateResult(props["folder"], props)


class ProgramProvider(dynamic.ResourceProvider):
    """One program of a supervisord."""

    serialize_as_secret_always = False  # captures nothing

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Another folder or name is another program; its ports are free only after the old one."""
        found = difference(_olds, _news, replaces=["folder", "name"])
        found.changes = found.changes or not _olds.get("healthy", True)
        return found

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Start the program and wait until it answers; leave nothing of one that does not."""
        daemon, definition = _daemon(props), _definition(props)
        try:
            if not (daemon.matches(definition) and daemon.running(definition.name)):
                _begin(daemon, definition, props)
            _await(daemon, props)
        except Exception:
            daemon.remove(definition.name)
            raise
        return dynamic.CreateResult(definition.name, {**props, "healthy": True})

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Ask supervisord; a program that does not run is gone, and the next up remakes it."""
        if _daemon(props).running(id_):
            return dynamic.ReadResult(id_, props)
        return dynamic.ReadResult("", {})

    def update(
        self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]
    ) -> dynamic.UpdateResult:
        """Restart the program if it differs, and wait until it answers."""
        daemon, definition = _daemon(_news), _definition(_news)
        differs = any(_olds.get(key) != _news.get(key) for key in RESTARTING)
        if differs or not daemon.running(definition.name):
            _begin(daemon, definition, _news)
        # A program that fails its update stays as it is: the old state has no other to go back to.
        _await(daemon, _news)
        return dynamic.UpdateResult({**_news, "healthy": True})

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Stop the program, with all that it started, and remove its files."""
        _daemon(_props).remove(_id)

    def find(self, props: dict[str, Any]) -> dynamic.CreateResult | None:
        """Return the program that an interrupted create left behind, be it up or not.

        One that is not up yet is marked, so that the next update waits for it.
        """
        daemon = _daemon(props)
        if not (daemon.folder / props["name"]).exists() and not daemon.running(props["name"]):
            return None
        return dynamic.CreateResult(props["name"], {**props, "healthy": False})


class Data(dynamic.Resource, module="process", name="Data"):
    """The folder of what outlives the stack.

    Attributes:
        folder: absolute path.
    """

    folder: pulumi.Output[str]

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare a data folder from folder and keep."""
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
        """Declare a supervisord from folder, identifier and ports (numbers by setting)."""
        super().__init__(DaemonProvider(), name, props, opts)


class Program(dynamic.Resource, module="process", name="Program"):
    """A program of a supervisord; exists once its health checks have answered.

    Attributes:
        name: of the program.
    """

    name: pulumi.Output[str]

    def __init__(
        self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare a program from the properties that ProcessRuntime.place gives it."""
        super().__init__(ProgramProvider(), name, {**props, "healthy": None}, opts)


def _daemon(props: dict[str, Any]) -> Supervisor:
    return Supervisor(folder=Path(props["folder"]), identifier=props.get("identifier", "trainyard"))


def _definition(props: dict[str, Any]) -> Definition:
    return Definition(
        name=props["name"],
        command=props["command"],
        environment=props["environment"],
        files={**props["files"], **props["secrets"]},
        folders=props["folders"],
        stop_seconds=int(props["stopSeconds"]),
    )


def _numbers(ports: dict[str, list[float]]) -> dict[str, list[int]]:
    return {setting: [int(number) for number in numbers] for setting, numbers in ports.items()}


def _begin(daemon: Supervisor, definition: Definition, props: dict[str, Any]) -> None:
    """Start a program whose ports nobody else holds."""
    if not daemon.alive():
        raise SupervisorError(
            f"supervisord of {daemon.folder} does not answer: it was killed, or this machine was "
            "started anew. Run `up` with --refresh to bring the services back"
        )
    daemon.remove(definition.name)
    settings: dict[str, list[int]] = {}
    for port in props["ports"]:
        settings.setdefault(port["setting"], []).append(int(port["number"]))
    port_check.refuse_held(settings)
    daemon.add(definition)


def _await(daemon: Supervisor, props: dict[str, Any]) -> None:
    """Wait until all health checks answer.

    Raises:
        ProgramError: the program keeps ending, or the time is over.
    """
    name, urls = props["name"], list(props["health"])
    deadline = time.monotonic() + float(props["startTimeout"])
    starts: set[int] = set()
    while urls:
        urls = [url for url in urls if not _answers(url)]
        if not urls:
            return
        try:
            state = daemon.state(name)
        except OSError:
            state = None
        if state is None:
            raise ProgramError(f"{name} went away with its supervisord while it started")
        starts.add(state["start"])
        if len(starts) > STARTS_LIMIT:
            reason = f"{name} ended {STARTS_LIMIT} times before it answered {urls[0]}"
        elif time.monotonic() > deadline:
            reason = (
                f"{name} did not answer {urls[0]} within {float(props['startTimeout']):g} s "
                "(setting startTimeoutSeconds)"
            )
        else:
            time.sleep(POLL_SECONDS)
            continue
        log = "\n".join(f"  {line}" for line in daemon.log(name, LOG_LINES)) or "  (nothing)"
        raise ProgramError(f"{reason}. The last lines that it wrote:\n{log}")


def _answers(url: str) -> bool:
    # A proxy of the user's cannot reach this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=REQUEST_SECONDS) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False
