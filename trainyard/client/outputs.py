"""The contract: the outputs of a stack, and where the client reads them.

In this order: a file (`--outputs`, or TRAINYARD_OUTPUTS), the file of an attached cluster, the
stack's state, and `pulumi stack output` where only the CLI can read that. Knows nothing else of the
stack.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from trainyard import json_values
from trainyard.access import outputs as names
from trainyard.access import repository, typed, user, users_file
from trainyard.access.kubectl import Cluster
from trainyard.access.ssh import Connection
from trainyard.client import fields
from trainyard.client.console import about
from trainyard.client.errors import ClientError, DownError

DEFAULT_STACK = "dev"
FILE_VARIABLE = "TRAINYARD_OUTPUTS"
STACK_VARIABLE = "TRAINYARD_STACK"
NAME = re.compile(r"[\w.-]{1,100}", re.ASCII)  # as for the file of a stack's settings
MOST_BYTES = 16 * 2**20  # of a file with outputs
UNKNOWN_MIB = 2.0**20  # for a node whose memory is not known: more than it has
READ_TIMEOUT_S = 120  # of a command: some seconds of work, which 40 commands at once share
# A process without it, such as a sweep of Hydra, may have a module `engine` of its user.
OWN_PROCESS = "trainyard.client.cli"
NO_STACK = "no stack named"  # the engine's message about a stack without a state
WRONG_KEY = "incorrect passphrase"  # in the engine's message, and in the CLI's

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Node:
    """One declared Ray node; `resources` are custom ones, by name."""

    name: str
    group: str  # "" where all workers are alike
    cpus: float
    gpus: float
    memory_mib: float
    object_store_mib: float
    resources: dict[str, float]
    on_demand: bool = False  # Ray's autoscaler starts and ends it
    hourly_cost: float = 0.0  # $ while its machine is there; 0 where that costs nothing more
    launched: bool = True  # whether its machine existed at the last `up`

    @classmethod
    def of(cls, value: dict[str, Any]) -> Node:
        """Reads one of the output `nodes`.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it is not one.
        """
        return cls(
            name=str(value["name"]),
            group=str(value.get("group", "")),
            cpus=fields.amount(value, "cpus"),
            gpus=fields.amount(value, "gpus"),
            memory_mib=fields.amount(value, "memoryMib"),
            object_store_mib=fields.amount(value, "objectStoreMib"),
            resources=fields.bundle(value["resources"]),
            on_demand=bool(value.get("onDemand", False)),
            hourly_cost=float(value.get("hourlyCost", 0)),
            launched=bool(value.get("launched", True)),
        )


@dataclass(frozen=True, kw_only=True)
class Service:
    """A service at one of the stack's addresses."""

    title: str  # its name for users
    output: str  # name of the output with its URL
    url: str = field(repr=False)  # its URL, which may hold a token; "" where it does not run
    login: str  # name of the output with its password or token, "" for none
    password: str = field(repr=False)  # that password or token
    user: str  # who logs in with it, "" for a token


@dataclass(frozen=True, kw_only=True)
class Ssh(Connection):
    """How to log in to the machine of a stack."""

    key_file: str  # of the key to log in with; "" without one: then `private_key`, else the agent

    @property
    def rented(self) -> bool:
        """Whether the stack made the machine's keys itself, as it does for rented machines."""
        return bool(self.private_key)


@dataclass(frozen=True, kw_only=True)
class InCluster:
    """The place of a stack on Kubernetes."""

    cluster: Cluster  # its namespace, and how kubectl reaches it
    ray_cluster: str  # name of its RayCluster
    services: Mapping[str, str]  # name of the Service of each port


@dataclass(frozen=True, kw_only=True)
class StackOutputs:
    """The outputs of a stack. Secrets stay out of `repr`.

    With `ssh`, addresses are those on that host; with `cluster`, those that kubectl leads to.
    """

    project: str  # "" for an attached cluster
    stack: str
    dashboard_url: str
    ray_token: str = field(repr=False)
    storage_url: str
    object_store_endpoint: str
    bucket: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    serve_url: str  # nothing answers there before something is served
    serve_token: str = field(repr=False)
    ray_version: str
    python_version: str
    nodes: tuple[Node, ...]
    services: tuple[Service, ...]  # all that a stack can have
    ssh: Ssh | None  # None where the services run on this machine, or in a cluster
    cluster: InCluster | None = None  # None outside a cluster
    owner: str  # of an attached queue, whose token it is
    queue: bool = False  # whether jobs wait in a queue, which keeps an account
    container_prefix: str = ""  # what the names of its containers begin with
    reserved_from: datetime | None  # when the reservation begins, in UTC
    expires_at: datetime | None  # when the services or machines end themselves, in UTC
    job_start_timeout: timedelta | None  # after which Ray fails a job that could not start
    ray_cluster_file: str = field(repr=False)
    volumes: str  # the folders from outside, for people
    folder: Path | None = None  # of the project whose state has them; None if a file has

    @property
    def attached(self) -> bool:
        """Whether this is a Ray that no stack started (`train attach`)."""
        return not self.project

    @property
    def bearer(self) -> dict[str, str]:
        """The header with Ray's token; none for a Ray that asks for none."""
        return {"Authorization": f"Bearer {self.ray_token}"} if self.ray_token else {}

    @property
    def user(self) -> str:
        """The user's name, as the cluster has it: that of their own token, else of this machine."""
        return self.owner if self.attached and self.owner else user.name()

    @property
    def away(self) -> str:
        """The name of the place where the services run; "" for this machine."""
        if self.ssh is not None:
            return self.ssh.name
        return self.cluster.cluster.name if self.cluster is not None else ""

    @property
    def keeps_files_away(self) -> bool:
        """Whether results are files of another machine, which cannot be read here."""
        return bool(self.away) and self.storage_url.startswith("file:")

    @property
    def shows_runs(self) -> bool:
        """Whether runs can be read here: from a store, or through a queue by a user's token."""
        return bool(self.storage_url or self.queue) and not self.keeps_files_away

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that may appear in no upload and no runtime environment."""
        private_key = self.ssh.private_key.strip() if self.ssh else ""
        keys = (self.access_key, self.secret_key)
        tokens = (self.ray_token, self.serve_token)
        passwords = (service.password for service in self.services)
        found = (*keys, *tokens, *passwords, private_key)
        return tuple(dict.fromkeys(value for value in found if value))

    def at(self, addresses: Mapping[str, str]) -> StackOutputs:
        """Returns the same with other URLs, by the names of their outputs."""
        return replace(
            self,
            services=tuple(
                replace(service, url=addresses.get(service.output, service.url))
                for service in self.services
            ),
            dashboard_url=addresses.get(names.DASHBOARD_URL, self.dashboard_url),
            object_store_endpoint=addresses.get(
                names.OBJECT_STORE_ENDPOINT, self.object_store_endpoint
            ),
            serve_url=addresses.get(names.SERVE_URL, self.serve_url),
        )


def read(stack: str | None = None, file: Path | None = None) -> StackOutputs:
    """Reads the outputs of a stack (default: TRAINYARD_STACK, else the file's own, else `dev`).

    The file has them as JSON, with secrets; without one it is that in TRAINYARD_OUTPUTS.

    Raises:
        ClientError: no such stack or file, outputs missing or of another stack.
    """
    asked = stack or os.environ.get(STACK_VARIABLE)
    path = file or (Path(given) if (given := os.environ.get(FILE_VARIABLE)) else None)
    about(asked or DEFAULT_STACK)
    if path is None:
        name = asked or DEFAULT_STACK
        return _of_attached(name) if is_attached(name) else of_state(name)
    text = read_private(path, "outputs file", f"write it with: {_how(None)}")
    found = parse(text, asked, f"outputs file {path}")
    about(found.stack)
    return found


def chosen(stack: str | None) -> str:
    """Return the name of the stack asked for: the given one, TRAINYARD_STACK, or `dev`."""
    return stack or os.environ.get(STACK_VARIABLE) or DEFAULT_STACK


def attached_file(name: str) -> Path:
    """Return the file that has an attached cluster in the form of a stack's outputs."""
    settings = user.folder("XDG_CONFIG_HOME", ".config")
    return settings / "trainyard" / "attached" / f"{name}.json"


def known_stacks() -> set[str]:
    """Return the names of the stacks that have settings, and of the attached clusters."""
    found = {path.stem for path in attached_file("x").parent.glob("*.json")}
    with suppress(ClientError):  # a client without a checkout
        settings = checkout().glob("Pulumi.*.yaml")
        found |= {path.stem.removeprefix("Pulumi.") for path in settings}
    return found


def is_attached(name: str) -> bool:
    """Whether a cluster is attached by this name."""
    return NAME.fullmatch(name) is not None and attached_file(name).exists()


def check_no_settings(name: str) -> None:
    """Refuses a name that is also that of a stack of the checkout: it would mean two clusters.

    Raises:
        ClientError: saying how to choose.
    """
    try:
        settings = checkout() / f"Pulumi.{name}.yaml"
    except ClientError:
        return
    if settings.exists():
        raise ClientError(
            f"{name!r} is a stack, with the settings {settings}: attach the cluster by another "
            f"name with -s NAME (`train detach -s {name}` removes an attached one)"
        )


def _of_attached(name: str) -> StackOutputs:
    check_no_settings(name)
    path, again = attached_file(name), f"run `train attach ADDRESS -s {name}` again"
    text = read_private(path, "file of an attached cluster", again)
    try:
        return parse(text, name, str(path))
    except ClientError as error:
        reason = str(error).partition(";")[0]
        raise ClientError(
            f"the file of an attached cluster is damaged ({reason}): {again}"
        ) from None


def of_state(stack: str) -> StackOutputs:
    """Reads the outputs that a stack's state has, whatever TRAINYARD_OUTPUTS says.

    Raises:
        DownError: the stack is not up.
        ClientError: its state cannot be read, or outputs are missing.
    """
    return replace(parse(_ask_engines(stack), stack, f"stack {stack!r}"), folder=checkout())


def parse(text: str, stack: str | None, source: str) -> StackOutputs:
    """Checks and types the JSON object of a stack's outputs.

    The stack is the one that it must be of; None accepts any. Messages name the source.

    Raises:
        ClientError: naming every output that is missing or of a wrong type.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClientError(f"{source} is not JSON: {error}; write it with: {_how(stack)}") from None
    if not isinstance(values, dict):
        raise ClientError(f"{source} is not a JSON object; write it with: {_how(stack)}")
    missing = [name for name in names.NOTHING if name not in values]
    if not values:
        raise DownError(f"stack {stack or DEFAULT_STACK!r} is down: run `make up`")
    if missing:
        whose = stack or values.get(names.STACK) or "of no name"
        raise ClientError(
            f"{source} lacks the outputs {', '.join(missing)} of stack {whose!r}: it is not up, or "
            "of another version than this client; run `make up`, then try again"
        )
    wrong = [name for name in names.TEXTS if not isinstance(values[name], str)]
    if wrong:
        raise ClientError(f"{source}: the outputs {', '.join(wrong)} are not text; run `make up`")
    if values[names.RAY_TOKEN] == "[secret]":
        raise ClientError(f"{source} was written without its secrets; use: {_how(stack)}")
    if stack and (own := values[names.STACK]) != stack:
        raise ClientError(
            f"{source} holds the outputs of stack {own!r}, not of {stack!r}: give the "
            f"file of {stack!r}, or ask for it with --stack {own}"
        )
    nodes = _typed(values, names.NODES, source, lambda value: tuple(map(Node.of, value)))
    services = _typed(
        values,
        names.SERVICES,
        source,
        lambda value: tuple(_service(each, values) for each in value),
    )
    ssh = _typed(values, names.SSH, source, lambda value: _ssh(value) if value else None)
    cluster = _typed(
        values, names.KUBERNETES, source, lambda value: _in_cluster(value) if value else None
    )
    reserved_from, expires_at = (
        _typed(values, name, source, lambda value: _time(value) if value else None)
        for name in (names.RESERVED_FROM, names.EXPIRES_AT)
    )
    start_timeout = _typed(
        values,
        names.JOB_START_TIMEOUT_SECONDS,
        source,
        lambda value: timedelta(seconds=float(value)) if value else None,
    )
    return StackOutputs(
        project=values[names.PROJECT],
        stack=values[names.STACK],
        dashboard_url=values[names.DASHBOARD_URL].rstrip("/"),
        ray_token=values[names.RAY_TOKEN],
        storage_url=values[names.STORAGE_URL].rstrip("/"),
        object_store_endpoint=values[names.OBJECT_STORE_ENDPOINT],
        bucket=values[names.BUCKET],
        access_key=values[names.ACCESS_KEY],
        secret_key=values[names.SECRET_KEY],
        serve_url=values[names.SERVE_URL].rstrip("/"),
        serve_token=values[names.SERVE_TOKEN],
        ray_version=values[names.RAY_VERSION],
        python_version=values[names.PYTHON_VERSION],
        nodes=nodes,
        services=services,
        ssh=ssh,
        cluster=cluster,
        queue=bool(values[names.QUEUE]),
        owner=values[names.OWNER],
        container_prefix=values[names.CONTAINER_PREFIX],
        reserved_from=reserved_from,
        expires_at=expires_at,
        job_start_timeout=start_timeout,
        ray_cluster_file=values[names.RAY_CLUSTER_FILE],
        volumes=values[names.VOLUMES],
    )


def checkout() -> Path:
    """The folder of the Pulumi program: from here upwards, else the one with this package.

    Raises:
        ClientError: no such folder.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, repository.ROOT):
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise ClientError(
        f"no Pulumi.yaml in {here} or above: run this in the checkout, or give --outputs FILE"
    )


def _typed(values: dict[str, Any], name: str, source: str, make: Callable[[Any], T]) -> T:
    try:
        return make(values[name])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ClientError(
            f"{source}: output {name!r} is malformed ({error!r}); run `make up`"
        ) from None


def _service(value: dict[str, Any], values: dict[str, Any]) -> Service:
    return Service(
        title=str(value["title"]),
        output=str(value["url"]),
        url=str(values[value["url"]]),
        login=str(value["login"]),
        password=str(values[value["login"]]) if value["login"] else "",
        user=str(value["user"]),
    )


def _ssh(value: dict[str, Any]) -> Ssh:
    return Ssh(
        host=str(value["host"]),
        port=int(value["port"]),
        user=str(value["user"]),
        host_key=str(value["hostKey"]),
        key_file=str(value["keyFile"]),
        private_key=str(value["privateKey"]),
    )


def _in_cluster(value: dict[str, Any]) -> InCluster:
    return InCluster(
        cluster=Cluster.of(value),
        ray_cluster=str(value["rayCluster"]),
        services={str(port): str(name) for port, name in value["services"].items()},
    )


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text!r} does not say its time zone")
    return found.astimezone(UTC)


def _how(stack: str | None) -> str:
    name = stack or DEFAULT_STACK
    show = typed.command(f"train output --json --show-secrets -s {name}")
    return f"(umask 077; {show} > FILE)"


def read_private(path: Path, what: str, advice: str) -> str:
    """Reads a file with secrets; `what` names it in messages.

    Raises:
        ClientError: others may read it, it is too large, or it cannot be read.
    """
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ClientError(
                    f"{what} {path} holds secrets and others may read it (mode {mode:04o}, "
                    f"at most 0600): chmod 600 {path}"
                )
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ClientError(f"{what} {path} has more than {MOST_BYTES} bytes: {advice}")
        return users_file.decoded(content, path)
    except OSError as error:
        raise ClientError(f"cannot read {what} {path} ({error.strerror}); {advice}") from None


def _ask_engines(stack: str) -> str:
    folder, reasons = checkout(), []
    asked = ["output", "--json", "--show-secrets", "-s", stack]
    commands: dict[str, list[str]] = {}
    # Both read the same state if it is a file, and the engine answers sooner. The engine is this
    # checkout's: the folder may be anybody's, and its code must not run to read a state.
    if repository.is_checkout() and OWN_PROCESS in sys.modules:
        try:
            return json_values.text(_of_engine(folder, stack))
        except ClientError as error:
            reasons.append(f"engine: {error}")
    elif repository.is_checkout():
        commands["engine"] = [sys.executable, "-m", "engine", "-C", str(folder), *asked]
    if shutil.which("pulumi"):
        commands["pulumi"] = ["pulumi", "-C", str(folder), "stack", *asked, "--non-interactive"]
    for program, command in commands.items():
        reason, text = _printed(stack, program, command)
        if not reason:
            return text
        reasons.append(f"{program}: {reason}")
    if not reasons:
        raise ClientError(
            f"cannot read the outputs of stack {stack!r}: this client was installed without a "
            "checkout, and pulumi is not on PATH; write them in the checkout, and name the file "
            f"by --outputs: {_how(stack)}"
        )
    why = reasons[0].partition(": ")[2]
    if NO_STACK in why:
        found = why.partition(";")[0]
        raise DownError(f"stack {stack!r} is down, or never was up ({found}): run `make up`")
    if WRONG_KEY in why:
        raise ClientError(f"cannot read the secrets of stack {stack!r}: {why}")
    raise ClientError(
        f"cannot read the outputs of stack {stack!r} ({'; '.join(reasons)}); "
        f"if it does not exist yet, run `make up STACK={stack}`; "
        "`train stack ls` lists the stacks"
    )


def _of_engine(folder: Path, stack: str) -> dict[str, Any]:
    """The outputs in the state of a stack, read in this process: a second one takes longer."""
    checkout_first()
    try:  # an installed client lacks these modules, or what they need
        from engine import outputs as recorded  # noqa: PLC0415
        from engine.errors import EngineError  # noqa: PLC0415
    except ImportError as error:
        raise ClientError(str(error)) from None
    try:
        found: dict[str, Any] = recorded.read(*recorded.place(folder, stack), secrets=True)
    except EngineError as error:
        raise ClientError(str(error)) from None
    except OSError as error:  # also a bucket's
        where = f"{error.filename}: " if error.filename else ""
        raise ClientError(f"{where}{error.strerror or type(error).__name__}") from None
    return found


def checkout_first() -> None:
    """Have Python look for modules in the checkout first: of `python -m`, it is another folder."""
    if sys.path[0] != (root := str(repository.ROOT)):
        sys.path.insert(0, root)


def _printed(stack: str, program: str, command: list[str]) -> tuple[str, str]:
    """Why a command does not print a stack's outputs, "" if it does, and what it prints."""
    try:
        result = run_in_checkout(command, READ_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ClientError(
            f"cannot read the outputs of stack {stack!r}: waited {READ_TIMEOUT_S} s for the "
            f"answer of {program}. The machine is busy, or does not reach the stack's state: "
            "run the command again once other commands have ended"
        ) from None
    said = [line for line in result.stderr.strip().splitlines() if line.strip()]
    reason = said[-1].strip().rpartition("error: ")[2] if said else "no reason given"
    return (reason, "") if result.returncode else ("", result.stdout)


def run_in_checkout(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command in this client's checkout, where `-m` finds its modules, and keep its output.

    Raises:
        subprocess.TimeoutExpired: it takes longer.
    """
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(folder for folder in path if Path(folder).is_absolute())
    return subprocess.run(
        command,
        cwd=repository.ROOT,
        env=os.environ | {"PYTHONPATH": kept},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
        check=False,
    )
