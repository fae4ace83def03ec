"""Measures the peak memory of workers and of Ray's object store while something runs."""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

INTERVAL_S = 0.25
RAYLET = "RAY_RAYLET_PID"  # of Ray: the node's process that starts all others, in theirs
MB = 1e6  # bytes


class PeakMemory:
    """Polls all nodes four times a second while the body of a `with` runs; needs Ray.

    Memory that processes share, above all the object store's, is not counted for each of them.

    Attributes:
        processes_mb: of all together at one moment.
        largest_mb: of one process.
        object_store_mb: of all nodes together at one moment.
    """

    def __init__(self, titles: Sequence[str]) -> None:
        """Measures nothing yet.

        Args:
            titles: of the processes, as Ray names them: those of an actor begin with its class,
                others with the function that they run. Those of other jobs count too.
        """
        self._titles = tuple(f"ray::{title}" for title in titles)
        self.processes_mb = 0.0
        self.largest_mb = 0.0
        self.object_store_mb = 0.0
        self._probes: list[Any] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        probe = ray.remote(num_cpus=0)(_Probe)
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["Alive"]:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                self._probes.append(probe.options(scheduling_strategy=there).remote(self._titles))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._probes.clear()  # ends them

    def _watch(self) -> None:
        def left(resources: dict[str, float]) -> float:
            return resources.get("object_store_memory", 0)

        whole = left(ray.cluster_resources())  # type: ignore[no-untyped-call]
        while not self._over.wait(INTERVAL_S):
            used = [probe.bytes_used.remote() for probe in self._probes]
            try:
                nodes: list[list[int]] = ray.get(used, timeout=10 * INTERVAL_S)
            except ray.exceptions.RayError:
                continue  # a node is lost or slow: this measurement is skipped
            processes = [size for node in nodes for size in node]
            self.processes_mb = max(self.processes_mb, sum(processes) / MB)
            self.largest_mb = max(self.largest_mb, max(processes, default=0) / MB)
            free = left(ray.available_resources())  # type: ignore[no-untyped-call]
            self.object_store_mb = max(self.object_store_mb, (whole - free) / MB)


class _Probe:
    def __init__(self, titles: tuple[str, ...]) -> None:
        self._titles = titles

    def bytes_used(self) -> list[int]:
        import psutil  # noqa: PLC0415 - Ray installs it

        used = []
        raylet = os.environ[RAYLET]
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                title = process.cmdline()[:1]
                known = title and title[0].startswith(self._titles)
                if known and process.environ().get(RAYLET) == raylet:
                    memory = process.memory_info()
                    used.append(memory.rss - memory.shared)
        return used
