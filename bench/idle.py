"""CPU and memory of idle containers, and of Docker for them."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil

from bench.measure import Usage
from infra.machines import docker_engine

# Docker's own processes: the first two serve all containers of the machine.
FOR_ALL = ("dockerd", "containerd")
FOR_ONE = ("containerd-shim", "docker-proxy")


def idle(names: Sequence[str], prefix: str, seconds: float) -> list[Usage]:
    """Return the usage of each container, of all together, and of Docker for them.

    Memory of a container is its working set, which the kernel cannot reclaim.

    Args:
        names: of the containers.
        prefix: left out of the names that are shown.
        seconds: to watch them, and to wait before, since a new container is not idle yet.
    """
    containers = [docker_engine.client().containers.get(name) for name in sorted(names)]
    time.sleep(seconds)
    docker = _docker_processes(containers)
    begun = time.perf_counter()
    before = [_stats(container) for container in containers]
    docker_before = _seconds_of_cpu(docker)
    time.sleep(seconds)
    after = [_stats(container) for container in containers]
    docker_after = _seconds_of_cpu(docker)
    took = time.perf_counter() - begun
    found = [
        Usage(
            name=name.removeprefix(prefix),
            cpu_percent=(new[0] - old[0]) / took * 100,
            memory_mb=new[1] / 1e6,
        )
        for name, old, new in zip(sorted(names), before, after, strict=True)
    ]
    return [
        *found,
        Usage(
            name="all containers",
            cpu_percent=sum(usage.cpu_percent for usage in found),
            memory_mb=sum(usage.memory_mb for usage in found),
        ),
        Usage(
            name="Docker itself",
            cpu_percent=(docker_after - docker_before) / took * 100,
            memory_mb=sum(process.memory_info().rss for process in docker) / 1e6,
        ),
    ]


def _stats(container: Any) -> tuple[float, float]:
    """Return seconds of CPU so far, and bytes of the working set now."""
    stats = container.client.api.stats(container.id, stream=False, one_shot=True)
    memory = stats["memory_stats"]
    # The first is of cgroup v1, the second of v2.
    cache = memory["stats"].get("total_inactive_file", memory["stats"].get("inactive_file", 0))
    return stats["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9, memory["usage"] - cache


def _docker_processes(containers: Sequence[Any]) -> list[psutil.Process]:
    networks = [container.attrs["NetworkSettings"]["Networks"].values() for container in containers]
    ours = {container.id for container in containers}
    ours |= {network["IPAddress"] for found in networks for network in found}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            for_one = process.name().startswith(FOR_ONE) and ours & set(process.cmdline())
            if process.name() in FOR_ALL or for_one:
                found.append(process)
    return found


def _seconds_of_cpu(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)
