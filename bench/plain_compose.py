"""Another plain way to the same containers: a file for docker-compose, as the course has one."""

import json
import os
import time
from pathlib import Path
from typing import Any

from bench.measure import FailedError, run
from bench.plain_docker import NO_OPTION, Declared, volume_option

VERSION = "2.4"  # the newest with limits of memory that docker-compose 1 keeps


class ComposedContainers:
    """The network, volumes and containers that a stack declares, as docker-compose starts them.

    Args:
        declared: what the stack declares.
        program: docker-compose.
        folder: gets the file, and files that containers see.
    """

    def __init__(self, declared: Declared, program: str, folder: Path) -> None:
        self._declared = declared
        folder.mkdir(mode=0o700)
        file = folder / "docker-compose.yml"  # JSON is YAML
        file.write_text(json.dumps(document(declared, folder)))
        self._command = [program, "--project-name", folder.parent.name, "--file", str(file)]

    def start(self) -> float:
        """Start all and wait until every check answers; return the seconds."""
        begun = time.perf_counter()
        run([*self._command, "up", "--detach"])
        self._declared.wait()
        return time.perf_counter() - begun

    def stop(self) -> float:
        """Stop and remove all; return the seconds until nothing is left."""
        return run([*self._command, "down", "--volumes"]).seconds

    def discard(self) -> None:
        """Remove everything, in whatever state it is."""
        run([*self._command, "down", "--volumes", "--timeout=0"])


def document(declared: Declared, folder: Path) -> dict[str, Any]:
    """Return the content of docker-compose.yml.

    Args:
        declared: what the stack declares.
        folder: gets files that containers see.

    Raises:
        FailedError: a container has a property that this does not know.
    """
    return {
        "version": VERSION,
        "networks": {each["name"]: _named(each) for each in declared.networks},
        "volumes": {each["name"]: _named(each) for each in declared.volumes},
        "services": {
            container["name"]: _service(container, folder) for container, _ in declared.containers
        },
    }


def _named(each: dict[str, Any]) -> dict[str, Any]:
    return {"name": each["name"], "labels": _labels(each["labels"])}


def _service(container: dict[str, Any], folder: Path) -> dict[str, Any]:
    name = container["name"]
    if unknown := container.keys() - KNOWN - NO_OPTION:
        raise FailedError(f"{name}: bench does not know the properties {sorted(unknown)}")
    [network] = container["networksAdvanced"]
    memory = container.get("memory")
    service: dict[str, Any] = {
        "container_name": name,
        "image": container["image"],
        "command": [_literal(each) for each in container["command"]],
        **({"entrypoint": starts} if (starts := container.get("entrypoints")) else {}),
        "environment": [_literal(each) for each in container.get("envs", [])],
        "labels": _labels(container["labels"]),
        "ports": [
            f"{port['ip']}:{port['external']}:{port['internal']}/{port['protocol']}"
            for port in container.get("ports", [])
        ],
        "volumes": [
            *(volume_option(volume) for volume in container.get("volumes", [])),
            *(
                f"{_write(folder / name, number, upload)}:{upload['file']}:ro"
                for number, upload in enumerate(container.get("uploads", []))
            ),
        ],
        "networks": {network["name"]: {"aliases": network["aliases"]}},
        "init": container["init"],
        "restart": container["restart"],
        "stop_grace_period": f"{container['destroyGraceSeconds']}s",
        "cap_drop": container["capabilities"]["drops"],
        "security_opt": container["securityOpts"],
        "logging": {"driver": container["logDriver"], "options": container["logOpts"]},
        "devices": [device["hostPath"] for device in container.get("devices", [])],
        "group_add": container.get("groupAdds", []),
    }
    if check := container.get("healthcheck"):
        service["healthcheck"] = {
            "test": [_literal(each) for each in check["tests"]],
            "interval": check["interval"],
            "timeout": check["timeout"],
            "start_period": check["startPeriod"],
            "retries": check["retries"],
        }
    if shared := container.get("shmSize"):
        service["shm_size"] = f"{shared}m"
    if memory:
        swap = container["memorySwap"]
        service |= {"mem_limit": f"{memory}m", "memswap_limit": f"{swap}m" if swap > 0 else -1}
    return service


# All that _service uses; it stops a container as `destroy` does, not by `stopTimeout`.
KNOWN = {
    "name", "envs", "labels", "ports", "volumes", "networksAdvanced", "init", "restart",
    "capabilities", "securityOpts", "logDriver", "logOpts", "devices", "groupAdds", "healthcheck",
    "shmSize", "memory", "memorySwap", "stopTimeout",
}  # fmt: skip


def _literal(text: str) -> str:
    """Escape each `$`, which docker-compose would replace by a variable."""
    return text.replace("$", "$$")


def _labels(labels: list[dict[str, str]]) -> dict[str, str]:
    return {each["label"]: _literal(each["value"]) for each in labels}


def _write(folder: Path, number: int, upload: dict[str, Any]) -> Path:
    """Write a file that a container sees, with the mode that it has in the container."""
    folder.mkdir(exist_ok=True)
    path = folder / str(number)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "w") as file:  # noqa: PTH123 of a descriptor
        file.write(upload["content"])
    path.chmod(int(upload["permissions"], 8))
    return path
