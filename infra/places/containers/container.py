"""Resources that pulumi-docker lacks: a check of the Engine before, and a wait after.

pulumi-docker's own `wait` sees a container's health only as often as Docker checks it, and does
not show why one is not healthy.
"""
# ruff: noqa: N815 (property names are camelCase in Pulumi states)

import json
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

import psutil
import pulumi
from pulumi import dynamic

from cluster.provider import Given, Provider, Resource, say
from infra.machines import docker_engine, local
from infra.machines.docker_engine import EngineArgs
from node import claims, life
from node import ports as port_check
from node.folders import FolderMark
from node.life import ServiceError
from trainyard.access import parallel
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import run

POLL_SECONDS = 0.2
LOOK_SECONDS = 30
LISTENING = "0A"  # state of a socket, as the kernel lists it
CHECK_SECONDS = 10  # the checks themselves give up after 3
END_SECONDS = 60  # from the end of a log to the end of its container
BOUND_TRIES = 5
QUIET_SECONDS = 3600  # longest silence of a pull, or of a program that runs once
STACK_LABEL = "trainyard.stack"
PROJECT_LABEL = "trainyard.project"
OWNER_LABEL = "trainyard.owner"
CONFIG_SET = "train config set"


class NodeArgs(EngineArgs):
    """What a stack needs of an Engine.

    Attributes:
        identity: name of its network, with which its volumes' names begin.
        ports: the numbers by setting, claimed for as long as the network exists.
        address: where the ports are opened besides loopback, or "".
        images: references by setting.
        volumes: other names that stay.
    """

    stack: str
    project: str
    identity: str
    names: Sequence[str]
    ports: Mapping[str, Sequence[int]]
    address: str
    images: Mapping[str, str]
    volumes: Sequence[str]
    store: str
    keep: bool

    @property
    def at(self) -> str:
        """Where the Engine is, for messages; "" for this machine."""
        return f" on {self.machine.name}" if self.machine else ""

    def added(self, before: "NodeArgs | None") -> port_check.Ports:
        """Return the ports that it had not before, each with its setting."""
        return port_check.new_ports(before.ports if before else {}, self.ports)


class ReadyArgs(EngineArgs):
    """Arguments of a container that is up.

    Attributes:
        network: that it is on.
        alias: by which it is reached there.
        once: whether it has to end.
        processes: that it may have, threads among them; 0 for any number.
        timeout: seconds until it is up.
        steadySeconds: for which it has to run until it is up.
    """

    container: Given[str]
    network: Given[str]
    alias: str
    checks: Sequence[list[str]]
    once: bool
    processes: int
    timeout: float
    steadySeconds: int | None = None


class NodeProvider(Provider[NodeArgs]):
    """The Engine as a stack uses it: requirements before, and leftovers after."""

    def make(self, args: NodeArgs) -> tuple[str, dict[str, Any]]:
        """Check names and ports, and get the images."""
        _check(args, None)
        _claim(args)
        engine = docker_engine.info(args.machine)
        if docker_engine.lets_neighbours_in(engine["ServerVersion"]):
            say(
                f"note: Docker Engine {engine['ServerVersion']} is older than 28: machines that "
                "route to this one can reach ports published on 127.0.0.1; docs/security.md has "
                "the firewall rules that close them"
            )
        return engine["ID"], {}

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Refuse other names: the volumes would be others too, and empty.

        And name the ports of this machine that others hold, in a preview too. A preview needs no
        Engine: without one, `create` and `update` say so.
        """
        faults = []
        before, after = NodeArgs.of(olds) if olds else None, NodeArgs.of(news)
        if before and before.identity != after.identity:
            text = (
                f"this stack's network and volumes are named {before.identity}, and the settings "
                f"(containerPrefix, owner) now name them {after.identity}. Nothing was changed. "
                "Set them back; or end the stack (make down), and bring it up again: it starts "
                f"empty, and volumes that are kept stay under the name {before.identity}"
            )
            faults.append(dynamic.CheckFailure("identity", text))
        elif not after.host and after.added(before):
            lines: list[str] = []
            with (
                explained("which ports are free"),
                suppress(docker_engine.EngineUnavailableError),
            ):
                lines = _taken_ports(after.engine(), after, before)
            if lines:
                faults.append(dynamic.CheckFailure("ports", "\n".join(lines)))
        return dynamic.CheckResult(news, faults)

    def update(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Check what is new, and get new images."""
        before, after = NodeArgs.of(olds), NodeArgs.of(news)
        if before.host != after.host:
            _refuse_another(id_, before, after)
        _check(after, before)
        _claim(after)
        return dynamic.UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Give up the ports, and say which volumes are kept."""
        args = NodeArgs.of(props)
        claims.release(args.identity)
        with explained("which volumes stay"):
            there = args.engine().volumes.list()
        kept = [
            volume.name
            for volume in there
            if volume.name in args.volumes
            or (volume.name.startswith(f"{args.identity}-") and _is_of(volume, args))
        ]
        if names := " ".join(sorted(kept)):
            say(
                f"kept{args.at}: volumes {names} (setting keepData; docker volume rm {names} "
                "when you no longer need them)"
            )


class ReadyProvider(Provider[ReadyArgs]):
    """A container that is up: it is on its network and its checks answer, or it has ended well."""

    health_output = "ready"

    def make(self, args: ReadyArgs) -> tuple[str, dict[str, Any]]:
        container = ContainerDriver(args)
        container.make()
        if not args.once:
            life.await_up(container, args.timeout)
        return args.alias, {"ready": True}

    def fault(self, _id: str, props: dict[str, Any]) -> str:
        """Return what is wrong with a container that was up; one that has ended well may go."""
        args = ReadyArgs.of(props)
        try:
            return "" if args.once else life.fault(ContainerDriver(args))
        except (docker_engine.EngineUnavailableError, SshError) as error:
            return str(error)

    def log(self, _id: str, props: dict[str, Any], lines: int) -> list[str]:
        """Ask the Engine, also about a container that has ended."""
        container = ContainerDriver(ReadyArgs.of(props))
        container.look()
        return container.log(lines)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether the container runs and stays up, or has ended well."""
        args = ReadyArgs.of(props)
        container = ContainerDriver(args)
        ready = container.has_ended_well() if args.once else not life.fault(container)
        return dynamic.ReadResult(id_, {**props, "ready": ready})


class Node(Resource[NodeArgs], module="docker", name="Node"):
    """A stack needs free names and ports of an Engine, and images that it can get."""

    _kind = NodeProvider


class Ready(Resource[ReadyArgs], module="docker", name="Ready"):
    """A container that is up."""

    _kind = ReadyProvider
    container: pulumi.Output[str]
    ready: pulumi.Output[bool]


def _check(news: NodeArgs, olds: NodeArgs | None) -> None:
    """Check what is wanted and was not before."""
    with explained("what the stack needs of Docker"):
        client = news.engine()
        faults = [
            *_other_store(news, olds.store if olds else ""),
            *_taken_names(client, news, olds),
            *_taken_ports(client, news, olds),
            *_foreign_address(news, olds),
        ]
        # Not before: a pull takes minutes.
        if not faults:
            faults = _missing_images(news.engine(QUIET_SECONDS), news, olds)
    if faults:
        at = f"{news.at.strip()}: " if news.host else ""
        raise ServiceError("\n".join(f"{at}{fault}" for fault in faults))


def _claim(args: NodeArgs) -> None:
    """Claim ports of this machine while the network is there; one with only Docker keeps none."""
    if not args.host:
        mark = FolderMark(
            id=args.identity, project=args.project, stack=args.stack, by=local.owner()
        )
        claims.take(mark, args.added(None), network=args.identity)


def _refuse_another(engine: str, olds: NodeArgs, news: NodeArgs) -> None:
    """Raise unless the Engine has the same ID, at whatever address: containers do not move."""
    if docker_engine.info(news.machine)["ID"] != engine:
        raise ServiceError(
            f"this stack's containers are{olds.at or ' on this machine'}, and the settings now "
            f"name the Docker Engine{news.at or ' of this machine'}. Nothing was changed. Set "
            "them back; or end the stack first (destroy), and bring it up again there"
        )


def _other_store(news: NodeArgs, before: str) -> list[str]:
    where = f"volume {news.identity}-{before}-data"
    kept = "the volume stays, unless keepData is false"
    text = life.other_store(before, news.store, where, kept)
    return [text] if text else []


def _taken_names(client: Any, news: NodeArgs, olds: NodeArgs | None) -> list[str]:
    wanted = set(news.names) - set(olds.names if olds else ())
    taken = [
        ("container", container["Names"][0].removeprefix("/"), container["Labels"], "rm -f")
        for container in client.api.containers(all=True)
        # One that is being removed may have lost its name.
        if container["Names"] and container["Names"][0].removeprefix("/") in wanted
    ]
    if not olds or news.identity != olds.identity:
        taken += [
            ("network", network["Name"], network["Labels"], "network rm")
            for network in client.api.networks(names=[news.identity])
            if network["Name"] == news.identity
        ]
    stack, others = news.stack, ""
    if not olds:  # a stack that is up keeps its prefix
        others = f", or set another prefix: `{CONFIG_SET} containerPrefix {stack}- -s {stack}`"
    return [
        f"a {kind} {name} is there already ({_owner(labels)}). Remove it (docker {command} "
        f"{name}){others}"
        for kind, name, labels, command in taken
    ]


def _taken_ports(client: Any, news: NodeArgs, olds: NodeArgs | None) -> list[str]:
    wanted = news.added(olds)
    if not news.host and (claimed := claims.conflicts(news.identity, wanted)):
        return claimed
    if news.machine:
        holders = dict.fromkeys(_listened(news.machine), "held by another program")
    else:
        holders = port_check.holders(wanted)
    # Docker listens in a container's place, so the listener does not show which container it is.
    for container in client.api.containers():
        if numbers := [port["PublicPort"] for port in container["Ports"] if "PublicPort" in port]:
            name, owner = container["Names"][0].removeprefix("/"), _owner(container["Labels"])
            published = f"published by container {name} ({owner}): docker stop {name}"
            holders |= dict.fromkeys(numbers, published)
    faults = port_check.describe_taken(wanted, holders)
    return [*faults, port_check.advice()] if faults else []


def _listened(machine: Connection) -> set[int]:
    """Return the TCP ports that programs of another machine listen on."""
    lines = run(machine, "cat /proc/net/tcp*", seconds=LOOK_SECONDS).splitlines()
    sockets = [line.split() for line in lines]
    return {int(each[1].rpartition(":")[2], 16) for each in sockets if each[3] == LISTENING}


def _foreign_address(news: NodeArgs, olds: NodeArgs | None) -> list[str]:
    own = sorted(
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family is socket.AF_INET and not entry.address.startswith("127.")
    )
    address = news.address
    if address in ("", olds and olds.address, *own):
        return []
    fault = f"publishAddress = {address!r} is not an address of this machine"
    action = f"`{CONFIG_SET} publishAddress ADDRESS -s {news.stack}`"
    return [f"{fault}, which has {', '.join(own)}: {action}"]


def _missing_images(client: Any, news: NodeArgs, olds: NodeArgs | None) -> list[str]:
    """Pull missing images: pulumi-docker would do so too, but cannot name the setting."""
    new = news.images.items() - (olds.images if olds else {}).items()
    return [
        f"{setting} = {reference!r}: this image is not on this machine and cannot be pulled "
        f"({reason}). Load it (docker load), or name another one, such as a mirror's: "
        f"`{CONFIG_SET} --path {setting} IMAGE -s {news.stack}`"
        for setting, reference in sorted(new)
        if (reason := docker_engine.fetch(client, reference)) is not None
    ]


def _is_of(volume: Any, args: NodeArgs) -> bool:
    """Return whether a volume is not another stack's, such as lab-2's next to lab."""
    labels = volume.attrs.get("Labels") or {}
    owner = f"{labels.get(PROJECT_LABEL)}-{labels.get(STACK_LABEL)}"
    return STACK_LABEL not in labels or args.identity.endswith(owner)


def _owner(labels: dict[str, str] | None) -> str:
    if not labels or STACK_LABEL not in labels:
        return "not made by Trainyard"
    return f"made by stack {labels[STACK_LABEL]} of {labels.get(PROJECT_LABEL)}"


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn errors of the Engine into one message about `what`.

    Raises:
        ServiceError: the container is gone.
        EngineUnavailableError: the Engine refuses something, or no longer answers.
    """
    from docker.errors import APIError, NotFound  # noqa: PLC0415 (only where containers are)
    from requests import RequestException  # noqa: PLC0415

    try:
        yield
    except NotFound:
        raise ServiceError(
            f"{what}: its container is gone; run `refresh`, then `up` again"
        ) from None
    except APIError as answer:
        raise docker_engine.EngineUnavailableError(
            f"{what}: the Docker Engine says: {answer.explanation}"
        ) from None
    except RequestException as silence:
        raise docker_engine.EngineUnavailableError(
            f"{what}: the Docker Engine no longer answers ({silence}); start it and run `up` again"
        ) from None


class ContainerDriver(life.Driver):
    """A container, which Docker starts again whenever it ends, by the properties of its Ready."""

    poll_seconds = POLL_SECONDS

    def __init__(self, args: ReadyArgs) -> None:
        self.name, self.checks = args.alias, args.checks
        self.steady_seconds = args.steadySeconds or 0
        self._args = args
        self._engine: Any = None
        self._before: int | None = None

    def look(self) -> life.Look:
        state, restarts = self._state(), int(self._container.attrs["RestartCount"])
        # One that has been up for long may have restarted often, for good reasons.
        self._before = restarts if self._before is None else self._before
        runs, over = state["Running"] and not state["Restarting"], ""
        if state["Status"] in ("exited", "dead"):
            over = f"ended ({_exit(state)})"
        # While it runs again, Docker does not tell how it ended.
        elif (starts := restarts - self._before) >= life.STARTS_LIMIT and not runs:
            over = f"ended {starts} times ({_exit(state)})"
        return life.Look(runs=runs, start=restarts, over=over)

    def ask(self, check: list[str]) -> str:
        from docker.errors import APIError  # noqa: PLC0415

        with explained(self.name):
            try:
                # Docker's library reads some answers without a time limit, whatever it is told.
                call = parallel.start(self._container.exec_run, check)
                code, output = call.result(CHECK_SECONDS)
            except APIError as error:  # it ended at this moment
                return str(error.explanation)
            except TimeoutError:
                shown = " ".join(check)
                return f"the check {shown!r} has not ended after {CHECK_SECONDS:g} s"
        return "" if code == 0 else f"exit code {code}: {output.decode(errors='replace').strip()}"

    def lately(self) -> tuple[int, str, float]:
        """Ask the Engine, which remembers the last minutes' ends: restarts are of a whole life."""
        api, state = self._engine.api, self._container.attrs["State"]
        with explained(self.name):
            now = _seconds(self._engine.info()["SystemTime"])
            ends = api.get(  # its own `events` reads without a time limit
                f"{api.base_url}/v{api.api_version}/events",
                params={
                    "since": int(now - life.WINDOW_SECONDS),
                    "until": int(now),
                    "filters": json.dumps({"container": [self._container.id], "event": ["die"]}),
                },
                timeout=api.timeout,
            ).text.splitlines()
        how = "it runs again" if state["Running"] and not state["Restarting"] else _exit(state)
        return len(ends), how, now - _seconds(state["StartedAt"])

    def amiss(self, *, asked: bool) -> list[str]:
        """Look at its network, its bound, and Docker's own health check."""
        health = self._container.attrs["State"].get("Health") or {}
        said = [str(each.get("Output", "")) for each in health.get("Log") or []]
        found = {
            "is not on its network": not self._is_connected(),
            "has another limit of processes": not self._is_bound(),
            f"does not answer{life.last_error(said)}": health.get("Status") == "unhealthy",
        }
        return [] if asked else [f"{self.name} {what}" for what, wrong in found.items() if wrong]

    def log(self, lines: int, since: float | None = None) -> list[str]:
        with explained(self.name):
            found = self._container.logs(tail=lines, since=since)
        return [*found.decode(errors="replace").splitlines()]

    def _state(self) -> dict[str, Any]:
        with explained(self.name):
            self._engine = self._engine or self._args.engine()
            self._container = self._engine.containers.get(self._args.container)
        self.whole_log = f"docker logs {self._container.name}"
        return dict(self._container.attrs["State"])

    def make(self) -> None:
        """Give it what pulumi-docker does not look at again, and start one that somebody stopped.

        Raises:
            ServiceError: it is gone, or what runs once has not ended well.
            EngineUnavailableError: the Engine does not take it.
        """
        state, once = self._state(), self._args.once
        failed = state["Status"] == "exited" and state["ExitCode"]
        with explained(self.name):
            if not (once or self._is_connected()):
                network = self._engine.networks.get(self._args.network)
                network.connect(self._container, aliases=[self.name])
            self._bound()
            # One that failed in an earlier `up` may find the cause fixed by now.
            if failed or (state["Status"] == "exited" and not once):
                self._container.start()
            if once:
                self._await_end()

    def has_ended_well(self) -> bool:
        try:
            state = self._state()
        except ServiceError:
            return False
        return bool(state["Status"] == "exited" and state["ExitCode"] == 0)

    def _await_end(self) -> None:
        """Follow it to its end; its log is the progress that the user sees."""
        started = _seconds(self._state()["StartedAt"])
        lines = self._container.logs(stream=True, follow=True, since=started)
        try:
            while line := parallel.start(next, lines, b"").result(QUIET_SECONDS):
                say(f"{self.name}: {line.decode(errors='replace').rstrip()}")
        except TimeoutError:
            name = self._container.name
            raise ServiceError(
                f"{self.name} has said nothing for {QUIET_SECONDS:g} s and goes on: see `docker "
                f"logs {name}`, end it (docker rm -f {name}) and run `up` again"
            ) from None
        if self._container.wait(timeout=END_SECONDS)["StatusCode"]:
            state = self._state()
            volumes = [
                f"volume {mount['Name']} is its {mount['Destination']}"
                for mount in self._container.attrs["Mounts"]
                if mount["Type"] == "volume"
            ]
            raise ServiceError(life.failure(self, f"ended ({_exit(state)})", volumes))

    def _bound(self) -> None:
        """Bound its processes, which pulumi-docker has no property for."""
        from docker.errors import create_api_error_from_http_exception  # noqa: PLC0415
        from requests import HTTPError  # noqa: PLC0415

        if self._is_bound():
            return
        api = self._engine.api  # requests' session; its `update_container` knows no such bound
        for left in reversed(range(BOUND_TRIES)):
            reply = api.post(
                f"{api.base_url}/v{api.api_version}/containers/{self._container.id}/update",
                json={"PidsLimit": self._args.processes},
                timeout=api.timeout,
            )
            try:
                reply.raise_for_status()
            except HTTPError as error:
                # It may have ended at this moment. The Engine takes the bound once it knows that.
                if not left:
                    create_api_error_from_http_exception(error)
                time.sleep(POLL_SECONDS)
            else:
                return

    def _is_bound(self) -> bool:
        wanted, attrs = self._args.processes, self._container.attrs
        return bool(not wanted or attrs["HostConfig"]["PidsLimit"] == wanted)

    def _is_connected(self) -> bool:
        return self._args.network in self._container.attrs["NetworkSettings"]["Networks"]


def _exit(state: dict[str, Any]) -> str:
    return f"exit code {state['ExitCode']}"


def _seconds(moment: str) -> float:
    """Return a time of Docker's, which has nanoseconds, in seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()
