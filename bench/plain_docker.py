"""The plain way to the same containers: a script of docker commands, all at once, and a wait."""

import io
import shlex
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.measure import FailedError
from engine.state import Entry
from engine.values import reveal
from infra.places.containers.container import ReadyProvider

# Properties for which `docker create` needs no option: only the provider looks at them, `docker rm`
# gets them, or they are Docker's own defaults.
NO_OPTION = {
    "__defaults", "image", "command", "entrypoints", "uploads", "mustRun", "start", "waitTimeout",
    "networkMode", "containerReadRefreshTimeoutMilliseconds", "removeVolumes",
    "destroyGraceSeconds",
}  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """The resources that a stack of containers declares, secrets in the clear.

    Attributes:
        networks, volumes: inputs of each.
        containers: inputs of each, and those of the wait for it.
    """

    networks: list[dict[str, Any]]
    volumes: list[dict[str, Any]]
    containers: list[tuple[dict[str, Any], dict[str, Any]]]

    @classmethod
    def of(cls, resources: Iterable[Entry]) -> "Declared":
        """Return the declarations of the resources of a stack that is up."""
        found: dict[str, list[dict[str, Any]]] = {}
        names: dict[str, str] = {}  # by ID
        for entry in resources:
            inputs = reveal(entry.get("inputs", {}))
            found.setdefault(entry["type"].rpartition(":")[2], []).append(inputs)
            if entry["type"].endswith(":Container"):
                names[entry["id"]] = inputs["name"]
        ready = {names[inputs["container"]]: inputs for inputs in found["Ready"]}
        containers = [(each, ready[each["name"]]) for each in found["Container"]]
        return cls(found["Network"], found["Volume"], containers)

    def wait(self) -> None:
        """Wait as the stack does, so that neither side looks more often or in another way."""
        _at_once(self.containers, lambda each, ready: await_container(each["name"], ready))


class PlainContainers:
    """The network, volumes and containers that a stack declares, and its waits for them.

    Secrets are those of the stack, and nothing is made inside the store: the plain way has
    less to do.
    """

    def __init__(self, declared: Declared) -> None:
        self._shared = [("network", each) for each in declared.networks]
        self._shared += [("volume", each) for each in declared.volumes]
        self._containers = declared.containers

    def start(self) -> float:
        """Start all at once and wait until every check answers; return the seconds."""
        begun = time.perf_counter()
        _at_once(
            self._shared,
            lambda kind, each: _docker(kind, "create", *_labels(each["labels"]), each["name"]),
        )
        _at_once(self._containers, self._run)
        return time.perf_counter() - begun

    def stop(self) -> float:
        """Stop and remove all at once; return the seconds until nothing is left."""
        begun = time.perf_counter()
        _at_once(self._containers, lambda container, _: _remove(container))
        _at_once(self._shared, lambda kind, each: _docker(kind, "rm", each["name"]))
        return time.perf_counter() - begun

    def discard(self) -> None:
        """Remove everything that exists."""
        for container, _ in self._containers:
            _docker("rm", "--force", "--volumes", container["name"], check=False)
        for kind, each in self._shared:
            _docker(kind, "rm", each["name"], check=False)

    def _run(self, container: dict[str, Any], ready: dict[str, Any]) -> None:
        name = container["name"]
        # `docker create` takes one word as an entry point.
        first, *entry = container.get("entrypoints") or [""]
        starts = [f"--entrypoint={first}"] if first else []
        create = [*options(container), *starts, container["image"], *entry, *container["command"]]
        if container["uploads"]:
            _docker("create", *create)
            _docker("cp", "-", f"{name}:/", given=archive(container["uploads"]))
            _docker("start", name)
        else:
            _docker("run", "--detach", *create)
        await_container(name, ready)


def await_container(name: str, ready: dict[str, Any]) -> None:
    """Wait for a container as the stack does.

    Args:
        name: the container's.
        ready: inputs of the stack's wait for it.
    """
    ReadyProvider().create({**ready, "container": name})


def options(container: dict[str, Any]) -> list[str]:
    """Return the options of `docker create` for a container, from the inputs of its resource.

    Raises:
        FailedError: an input is unknown: the containers would not be the same.
    """
    flags: list[str] = []
    for key, value in container.items():
        if key in NO_OPTION:
            continue
        if key not in FLAGS:
            raise FailedError(f"{container['name']}: bench does not know the property {key}")
        flags += FLAGS[key](value)
    return flags


def archive(uploads: list[dict[str, Any]]) -> bytes:
    """Return the tar archive of a container's files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for upload in uploads:
            file = tarfile.TarInfo(upload["file"].lstrip("/"))
            file.size, file.mtime = len(upload["content"].encode()), int(time.time())
            file.mode = int(upload["permissions"], 8)
            tar.addfile(file, io.BytesIO(upload["content"].encode()))
    return content.getvalue()


def _each(flag: str, text: Callable[[Any], str] = str) -> Callable[[list[Any]], list[str]]:
    return lambda values: [f"--{flag}={text(value)}" for value in values]


def _one(flag: str, text: Callable[[Any], str] = str) -> Callable[[Any], list[str]]:
    return lambda value: [f"--{flag}={text(value)}"]


def _labels(labels: list[dict[str, str]]) -> list[str]:
    return _each("label", lambda label: f"{label['label']}={label['value']}")(labels)


def volume_option(volume: dict[str, Any]) -> str:
    """Return a volume as docker and docker-compose name it."""
    source = volume.get("volumeName") or volume["hostPath"]
    return f"{source}:{volume['containerPath']}:{'ro' if volume['readOnly'] else 'rw'}"


def _networks(networks: list[dict[str, Any]]) -> list[str]:
    [network] = networks  # `docker create` takes one
    return [
        f"--network={network['name']}",
        *_each("network-alias")(network["aliases"]),
    ]


def _healthcheck(check: dict[str, Any]) -> list[str]:
    kind, *test = check["tests"]
    return [
        f"--health-cmd={test[0] if kind == 'CMD-SHELL' else shlex.join(test)}",
        f"--health-interval={check['interval']}",
        f"--health-timeout={check['timeout']}",
        f"--health-start-period={check['startPeriod']}",
        f"--health-retries={check['retries']}",
    ]


FLAGS: dict[str, Callable[[Any], list[str]]] = {
    "name": _one("name"),
    "envs": _each("env"),
    "labels": _labels,
    "ports": _each(
        "publish", lambda p: f"{p['ip']}:{p['external']}:{p['internal']}/{p['protocol']}"
    ),
    "volumes": _each("volume", volume_option),
    "networksAdvanced": _networks,
    "healthcheck": _healthcheck,
    "init": lambda init: ["--init"] if init else [],
    "restart": _one("restart"),
    "memory": _one("memory", lambda mib: f"{mib}m"),
    "memorySwap": _one("memory-swap", lambda mib: f"{mib}m" if mib > 0 else "-1"),
    "shmSize": _one("shm-size", lambda mib: f"{mib}m"),
    "stopTimeout": _one("stop-timeout"),
    "capabilities": lambda capabilities: _each("cap-drop")(capabilities["drops"]),
    "securityOpts": _each("security-opt"),
    "logDriver": _one("log-driver"),
    "logOpts": lambda options: _each("log-opt")([f"{k}={v}" for k, v in options.items()]),
    "gpus": _one("gpus"),
    "devices": _each("device", lambda device: str(device["hostPath"])),
    "groupAdds": _each("group-add"),
}


def _remove(container: dict[str, Any]) -> None:
    # With no time to end, a container is killed, which `rm` does as well.
    if grace := container["destroyGraceSeconds"]:
        _docker("stop", f"--time={grace}", container["name"])
    _docker("rm", "--force", "--volumes", container["name"])


def _at_once(things: list[tuple[Any, Any]], work: Callable[[Any, Any], None]) -> None:
    with ThreadPoolExecutor(len(things)) as pool:
        list(pool.map(lambda pair: work(*pair), things))


def _docker(*arguments: str, given: bytes = b"", check: bool = True) -> None:
    done = subprocess.run(["docker", *arguments], input=given, capture_output=True, check=False)
    if check and done.returncode != 0:
        raise FailedError(f"docker {arguments[0]} failed: {done.stderr.decode().strip()}")
