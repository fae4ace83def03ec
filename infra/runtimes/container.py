"""Resources that pulumi-docker lacks: a check of the Engine before, and a wait after.

pulumi-docker's own `wait` sees a container's health only as often as Docker checks it, and does
not show why one is not healthy.
"""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

import psutil
import pulumi
from pulumi import dynamic

from cluster.provider import Provider, Resource
from infra.hosts import docker_engine, local
from infra.provided import say
from infra.runtimes import claims, health
from infra.runtimes import ports as port_check
from infra.runtimes.folders import FolderMark
from trainyard.access.ssh import Connection, SshError
from trainyard.access.ssh_run import run

POLL_SECONDS = 0.2
LOG_LINES = 20
LOOK_SECONDS = 30
LISTENING = "0A"  # state of a socket, as the kernel lists it
CHECK_SECONDS = 10  # the checks themselves give up after 3
END_SECONDS = 60  # from the end of a log to the end of its container
BOUND_TRIES = 5
STARTS_LIMIT = 3  # a program that ended this often before it was up will not come up
QUIET_SECONDS = 3600  # longest silence of a pull, or of a program that runs once
STACK_LABEL = "trainyard.stack"
PROJECT_LABEL = "trainyard.project"
OWNER_LABEL = "trainyard.owner"
CONFIG_SET = "python -m engine config set"


T = TypeVar("T")


class NotReadyError(Exception):
    """A container did not come up; the message ends with its last log lines."""


class NodeError(Exception):
    """An Engine lacks things that a stack needs; the message has a line for each."""


class NodeProvider(Provider):
    """The Engine as a stack uses it: requirements before, and leftovers after."""

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Check names and ports, and get the images."""
        _check(props, {})
        _claim(props)
        engine = docker_engine.info(docker_engine.machine_of(props))
        if docker_engine.lets_neighbours_in(engine["ServerVersion"]):
            say(
                f"note: Docker Engine {engine['ServerVersion']} is older than 28: machines that "
                "route to this one can reach ports published on 127.0.0.1; docs/security.md has "
                "the firewall rules that close them"
            )
        return dynamic.CreateResult(engine["ID"], props)

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.CheckResult:
        """Refuse other names: the volumes would be others too, and empty.

        And name the ports of this machine that others hold, in a preview too. A preview needs no
        Engine: without one, `create` and `update` say so.
        """
        faults = []
        before, after = olds.get("identity"), news["identity"]
        if before and before != after:
            text = (
                f"this stack's network and volumes are named {before}, and the settings "
                f"(containerPrefix, owner) now name them {after}. Nothing was changed. Set them "
                f"back; or end the stack (make down), and bring it up again: it starts empty, and "
                f"volumes that are kept stay under the name {before}"
            )
            faults.append(dynamic.CheckFailure("identity", text))
        elif "host" not in news and port_check.added(olds.get("ports", {}), news["ports"]):
            lines: list[str] = []
            with (
                explained("which ports are free", NodeError),
                suppress(docker_engine.EngineUnavailableError),
            ):
                lines = _taken_ports(docker_engine.of(news), news, olds)
            if lines:
                faults.append(dynamic.CheckFailure("ports", "\n".join(lines)))
        return dynamic.CheckResult(news, faults)

    def update(self, id_: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Check what is new, and get new images."""
        if olds.get("host") != news.get("host"):
            _refuse_another(id_, olds, news)
        _check(news, olds)
        _claim(news)
        return dynamic.UpdateResult(news)

    def delete(self, _id: str, props: dict[str, Any]) -> None:
        """Give up the ports, and say which volumes are kept."""
        claims.release(props["identity"])
        with explained("which volumes stay", NodeError):
            there = docker_engine.of(props).volumes.list()
        kept = [
            volume.name
            for volume in there
            if volume.name in props["volumes"]
            or (volume.name.startswith(f"{props['identity']}-") and _is_of(volume, props))
        ]
        if names := " ".join(sorted(kept)):
            say(
                f"kept{_at(props)}: volumes {names} (setting keepData; docker volume rm {names} "
                "when you no longer need them)"
            )


class ReadyProvider(Provider):
    """A container that is up: it is on its network and its checks answer, or it has ended well."""

    health_output = "ready"

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Wait."""
        _await(props)
        return dynamic.CreateResult(props["alias"], {**props, "ready": True})

    def fault(self, _id: str, props: dict[str, Any]) -> str:
        """Return what is wrong with a container that was up; one that has ended well may go."""
        if props["once"]:
            return ""
        try:
            return _illness(props)
        except (NotReadyError, docker_engine.EngineUnavailableError, SshError) as error:
            return str(error)

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look whether the container runs and stays up, or has ended well."""
        return dynamic.ReadResult(id_, {**props, "ready": not _illness(props)})


class Node(Resource, module="docker", name="Node"):
    """A stack needs free names and ports of an Engine, and images that it can get.

    From stack and project (names), identity (of its network, and what its volumes' names begin
    with), names of all containers, ports (numbers by setting, which it has for as long as the
    network), address (that they are opened on besides loopback, or ""), images (references by
    setting), volumes (other names that stay), store (name of the object store) and keep (whether
    results stay). This and the other two also from host, the machine of the Engine as Connection.of
    takes it, unless it is this machine's.
    """

    _kind = NodeProvider


class Ready(Resource, module="docker", name="Ready"):
    """A container that is up.

    From container (its ID), network and alias that it is reached by, checks (commands), once (it
    has to end), processes (that it may have, threads among them; 0 for any number), timeout
    (seconds) and steadySeconds (for which it has to run until it is up).

    Attributes:
        container: its ID.
        ready: whether it is up now.
    """

    _kind = ReadyProvider
    container: pulumi.Output[str]
    ready: pulumi.Output[bool]


def _check(news: dict[str, Any], olds: dict[str, Any]) -> None:
    """Check what is wanted and was not before.

    Raises:
        NodeError: something is taken, or an image is not available.
    """
    with explained("what the stack needs of Docker", NodeError):
        client = docker_engine.of(news)
        faults = [
            *_other_store(news, olds),
            *_taken_names(client, news, olds),
            *_taken_ports(client, news, olds),
            *_foreign_address(news, olds),
        ]
        # Not before: a pull takes minutes.
        if not faults:
            patient = docker_engine.of(news, QUIET_SECONDS)
            faults = _missing_images(patient, news, olds)
    if faults:
        at = f"{_at(news).strip()}: " if "host" in news else ""
        raise NodeError("\n".join(f"{at}{fault}" for fault in faults))


def _claim(props: dict[str, Any]) -> None:
    """Claim ports of this machine while the network is there; one with only Docker keeps none."""
    if "host" not in props:
        names = {"project": props["project"], "stack": props["stack"], "by": local.owner()}
        mark = FolderMark(id=props["identity"], **names)
        claims.take(mark, port_check.added({}, props["ports"]), network=props["identity"])


def _at(props: dict[str, Any]) -> str:
    """Return where the Engine is, for messages; "" for this machine."""
    return f" on {Connection.of(props['host']).name}" if "host" in props else ""


def _refuse_another(engine: str, olds: dict[str, Any], news: dict[str, Any]) -> None:
    """Raise unless the Engine has the same ID, at whatever address: containers do not move."""
    if docker_engine.info(docker_engine.machine_of(news))["ID"] != engine:
        raise NodeError(
            f"this stack's containers are{_at(olds) or ' on this machine'}, and the settings now "
            f"name the Docker Engine{_at(news) or ' of this machine'}. Nothing was changed. Set "
            "them back; or end the stack first (destroy), and bring it up again there"
        )


def _other_store(news: dict[str, Any], olds: dict[str, Any]) -> list[str]:
    before, after = olds.get("store"), news["store"]
    if not before or before == after:
        return []
    return [
        (
            f"objectStore is now {after}, and this stack runs {before}, whose results in volume "
            f"{news['identity']}-{before}-data cannot be read by {after}. Nothing was changed. Set "
            f"objectStore to {before} to keep using them; or end the stack (the volume stays, "
            f"unless keepData is false), and bring it up again: {after} starts empty"
        )
    ]


def _taken_names(client: Any, news: dict[str, Any], olds: dict[str, Any]) -> list[str]:
    wanted = set(news["names"]) - set(olds.get("names", []))
    taken = [
        ("container", container["Names"][0].removeprefix("/"), container["Labels"], "rm -f")
        for container in client.api.containers(all=True)
        # One that is being removed may have lost its name.
        if container["Names"] and container["Names"][0].removeprefix("/") in wanted
    ]
    if news["identity"] != olds.get("identity"):
        taken += [
            ("network", network["Name"], network["Labels"], "network rm")
            for network in client.api.networks(names=[news["identity"]])
            if network["Name"] == news["identity"]
        ]
    stack, others = news["stack"], ""
    if not olds:  # a stack that is up keeps its prefix
        others = f", or set another prefix: `{CONFIG_SET} containerPrefix {stack}- -s {stack}`"
    return [
        f"a {kind} {name} is there already ({_owner(labels)}). Remove it (docker {command} "
        f"{name}){others}"
        for kind, name, labels, command in taken
    ]


def _taken_ports(client: Any, news: dict[str, Any], olds: dict[str, Any]) -> list[str]:
    wanted = port_check.added(olds.get("ports", {}), news["ports"])
    # Docker listens in a container's place, so the listener does not show which container it is.
    publishers = {
        port["PublicPort"]: container
        for container in client.api.containers()
        for port in container["Ports"]
        if "PublicPort" in port
    }
    faults = [] if "host" in news else claims.conflicts(news["identity"], wanted)
    if faults:
        return faults
    for setting, numbers in wanted.items():
        for number in numbers:
            if number in publishers:
                container = publishers[number]
                name = container["Names"][0].removeprefix("/")
                faults.append(
                    f"port {number} ({setting}) is published by container {name} "
                    f"({_owner(container['Labels'])}): docker stop {name}"
                )
    rest = {s: [n for n in numbers if n not in publishers] for s, numbers in wanted.items()}
    if "host" in news:
        held = _listened(Connection.of(news["host"]))
        faults += [
            f"port {number} ({setting}) is held by another program"
            for setting, numbers in rest.items()
            for number in numbers
            if number in held
        ]
    else:
        faults += port_check.held(rest)
    return [*faults, port_check.advice()] if faults else []


def _listened(machine: Connection) -> set[int]:
    """Return the TCP ports that programs of another machine listen on."""
    lines = run(machine, "cat /proc/net/tcp*", seconds=LOOK_SECONDS).splitlines()
    sockets = [line.split() for line in lines]
    return {int(each[1].rpartition(":")[2], 16) for each in sockets if each[3] == LISTENING}


def _foreign_address(news: dict[str, Any], olds: dict[str, Any]) -> list[str]:
    own = sorted(
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family is socket.AF_INET and not entry.address.startswith("127.")
    )
    address = news["address"]
    if address in ("", olds.get("address"), *own):
        return []
    fault = f"publishAddress = {address!r} is not an address of this machine"
    action = f"`{CONFIG_SET} publishAddress ADDRESS -s {news['stack']}`"
    return [f"{fault}, which has {', '.join(own)}: {action}"]


def _missing_images(client: Any, news: dict[str, Any], olds: dict[str, Any]) -> list[str]:
    """Pull missing images: pulumi-docker would do so too, but cannot name the setting."""
    new = news["images"].items() - olds.get("images", {}).items()
    return [
        f"{setting} = {reference!r}: this image is not on this machine and cannot be pulled "
        f"({reason}). Load it (docker load), or name another one, such as a mirror's: "
        f"`{CONFIG_SET} --path {setting} IMAGE -s {news['stack']}`"
        for setting, reference in sorted(new)
        if (reason := docker_engine.fetch(client, reference)) is not None
    ]


def _is_of(volume: Any, props: dict[str, Any]) -> bool:
    """Return whether a volume is not another stack's, such as lab-2's next to lab."""
    labels = volume.attrs.get("Labels") or {}
    owner = f"{labels.get(PROJECT_LABEL)}-{labels.get(STACK_LABEL)}"
    return STACK_LABEL not in labels or str(props["identity"]).endswith(owner)


def _owner(labels: dict[str, str] | None) -> str:
    if not labels or STACK_LABEL not in labels:
        return "not made by Trainyard"
    return f"made by stack {labels[STACK_LABEL]} of {labels.get(PROJECT_LABEL)}"


def _await(props: dict[str, Any]) -> None:
    """Wait until a container is up.

    Raises:
        NotReadyError: it ended, or the time is over.
    """
    from docker.errors import NotFound  # noqa: PLC0415 (only where containers are)

    name = props["alias"]
    try:
        with explained(name, NotReadyError):
            client = docker_engine.of(props)
            if props["once"]:
                container = client.containers.get(props["container"])
                _bound(client, container, props)
                _await_end(container, name)
            else:
                _await_answers(client, props)
    except NotFound:
        raise NotReadyError(
            f"{name}: its container was removed; run `refresh`, then `up` again"
        ) from None


@contextmanager
def explained(what: str, error: type[Exception]) -> Iterator[None]:
    """Turn errors of the Engine, except NotFound, into one message about `what`."""
    from docker.errors import APIError, NotFound  # noqa: PLC0415
    from requests import RequestException  # noqa: PLC0415

    try:
        yield
    except NotFound:
        raise
    except APIError as answer:
        raise error(f"{what}: the Docker Engine says: {answer.explanation}") from None
    except RequestException as silence:
        raise error(
            f"{what}: the Docker Engine no longer answers ({silence}); start it and run `up` again"
        ) from None


def _await_answers(client: Any, props: dict[str, Any]) -> None:
    name = props["alias"]
    deadline = time.monotonic() + props["timeout"]
    container = client.containers.get(props["container"])
    if not _connected(container, props["network"]):
        # pulumi-docker does not look at a container's networks again.
        client.networks.get(props["network"]).connect(container, aliases=[props["alias"]])
    _bound(client, container, props)
    if container.attrs["State"]["Status"] == "exited":  # by hand: its Engine starts it else
        container.start()
        container.reload()
    # A container that has been up for long may have restarted often, for good reasons.
    before = container.attrs["RestartCount"]
    restarts, waiting = before, list(props["checks"])
    said: str | None = None
    while True:
        state = container.attrs["State"]
        if state["Status"] in ("exited", "dead"):
            raise NotReadyError(_failure(container, name, f"ended ({_exit(state)})"))
        runs = state["Running"] and not state["Restarting"]
        # While it runs again, Docker does not tell how it ended.
        if (starts := container.attrs["RestartCount"] - before) >= STARTS_LIMIT and not runs:
            raise NotReadyError(_failure(container, name, f"ended {starts} times ({_exit(state)})"))
        if restarts != container.attrs["RestartCount"]:  # what answered has ended since
            restarts, waiting = container.attrs["RestartCount"], list(props["checks"])
        if runs:
            while waiting and (said := _complaint(container, waiting[0])) is None:
                del waiting[0]
        if runs and not waiting and _stays_up(client, container, props):
            return
        if time.monotonic() > deadline:
            late = f"does not answer after {props['timeout']:g} s (setting startTimeoutSeconds)"
            late += f": {said}" if said else ""
            raise NotReadyError(_failure(container, name, late))
        time.sleep(POLL_SECONDS)
        container.reload()


def _complaint(container: Any, check: list[str]) -> str | None:
    """Run a check in a container; return its error, None if it succeeds."""
    from docker.errors import APIError  # noqa: PLC0415

    def run() -> str | None:
        try:
            code, output = container.exec_run(check)
        except APIError as error:  # it ended at this moment
            return str(error.explanation)
        return None if code == 0 else f"exit code {code}: {output.decode(errors='replace').strip()}"

    try:
        return within(CHECK_SECONDS, run)
    except TimeoutError:
        return f"the check {' '.join(check)!r} has not ended after {CHECK_SECONDS:g} s"


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the result of a call.

    Docker's library reads some answers without a time limit, whatever its client is told. The call
    goes on in its thread, which does not keep this process from ending.

    Raises:
        TimeoutError: it has not returned by then.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(seconds)


def _bound(client: Any, container: Any, props: dict[str, Any]) -> None:
    """Bound a container's processes, which pulumi-docker has no property for.

    Raises:
        APIError: the Engine does not take it.
    """
    from docker.errors import create_api_error_from_http_exception  # noqa: PLC0415
    from requests import HTTPError  # noqa: PLC0415

    if _is_bound(container, props):
        return
    api = client.api  # a session of requests; its `update_container` does not know this bound
    for left in reversed(range(BOUND_TRIES)):
        reply = api.post(
            f"{api.base_url}/v{api.api_version}/containers/{container.id}/update",
            json={"PidsLimit": int(props["processes"])},
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


def _is_bound(container: Any, props: dict[str, Any]) -> bool:
    wanted = int(props["processes"])
    return not wanted or container.attrs["HostConfig"]["PidsLimit"] == wanted


def _await_end(container: Any, name: str) -> None:
    """Follow a container to its end; its log is the progress that the user sees."""
    state = container.attrs["State"]
    if state["Status"] == "exited" and state["ExitCode"]:
        # It failed in an earlier `up`, and the cause may be fixed by now.
        container.start()
        container.reload()
        state = container.attrs["State"]
    started = _seconds(state["StartedAt"])
    lines = container.logs(stream=True, follow=True, since=started)
    try:
        while line := within(QUIET_SECONDS, lambda: next(lines, b"")):
            say(f"{name}: {line.decode(errors='replace').rstrip()}")
    except TimeoutError:
        raise NotReadyError(
            f"{name} has said nothing for {QUIET_SECONDS:g} s and goes on: see `docker logs "
            f"{container.name}`, end it (docker rm -f {container.name}) and run `up` again"
        ) from None
    if container.wait(timeout=END_SECONDS)["StatusCode"]:
        container.reload()
        state = container.attrs["State"]
        volumes = ", ".join(
            f"volume {mount['Name']} is its {mount['Destination']}"
            for mount in container.attrs["Mounts"]
            if mount["Type"] == "volume"
        )
        what = f"ended ({_exit(state)}{f'; {volumes}' if volumes else ''})"
        raise NotReadyError(_failure(container, name, what, since=started))


def _illness(props: dict[str, Any]) -> str:
    """Return what is wrong with a container that was up or has ended, "" if nothing is.

    Raises:
        NotReadyError: the Engine does not tell.
    """
    from docker.errors import NotFound  # noqa: PLC0415

    name = props["alias"]
    try:
        with explained(name, NotReadyError):
            client = docker_engine.of(props)
            container = client.containers.get(props["container"])
            state, restarts = container.attrs["State"], container.attrs["RestartCount"]
            if props["once"]:
                well = state["Status"] == "exited" and state["ExitCode"] == 0
                return "" if well else f"{name} has not ended well ({_exit(state)})"
            runs = state["Running"] and not state["Restarting"]
            if not runs or not _stays_up(client, container, {}):
                log = container.logs(tail=LOG_LINES).decode(errors="replace").splitlines()
                how = "it runs again" if runs else _exit(state)
                return f"{name} {health.ended(restarts, how, '')}{health.last_error(log)}"
    except NotFound:
        return f"{name}: its container is gone"
    checked, found = state.get("Health") or {}, ""
    if not _connected(container, props["network"]):
        found = f"{name} is not on its network"
    elif not _is_bound(container, props):
        found = f"{name} has another limit of processes"
    elif checked.get("Status") == "unhealthy":
        said = [str(each.get("Output", "")) for each in checked.get("Log") or []]
        found = f"{name} does not answer{health.last_error(said)}"
    return found


def _stays_up(client: Any, container: Any, props: dict[str, Any]) -> bool:
    """Return whether a container that runs has done so for long enough, and keeps on.

    Its number of restarts is that of its whole life; the Engine remembers the last minutes' ends.
    """
    now = _seconds(client.info()["SystemTime"])
    up = now - _seconds(container.attrs["State"]["StartedAt"])
    api = client.api  # whose own `events` reads without a time limit
    ends = api.get(
        f"{api.base_url}/v{api.api_version}/events",
        params={
            "since": int(now - health.WINDOW_SECONDS),
            "until": int(now),
            "filters": json.dumps({"container": [container.id], "event": ["die"]}),
        },
        timeout=api.timeout,
    ).text.splitlines()
    return bool(up >= props.get("steadySeconds", 0)) and not health.loops(len(ends), up)


def _connected(container: Any, network: str) -> bool:
    return network in container.attrs["NetworkSettings"]["Networks"]


def _exit(state: dict[str, Any]) -> str:
    return f"exit code {state['ExitCode']}"


def _seconds(moment: str) -> float:
    """Return a time of Docker's, which has nanoseconds, in seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()


def _failure(container: Any, name: str, what: str, since: float | None = None) -> str:
    log = container.logs(tail=LOG_LINES, since=since).decode(errors="replace").rstrip()
    return f"{name} {what}. Its last log lines (docker logs {container.name} has all):\n{log}"
