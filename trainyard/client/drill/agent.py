"""A drill's job on the cluster: kills one process of Ray's there, and says when.

    python agent.py worker NODE PID
    python agent.py node NODE
    python agent.py preempt NODE SECONDS
    python agent.py head

A job of its own, sent as this one file. It prints `{"at": seconds since 1970, "pid": ...}` a moment
before it kills, since the log of a job cannot be read without its head. `preempt` prints it before
it gives notice, as a cloud does before it takes a machine back.

A process is known by its place in Ray: a training worker has its raylet in its environment, as has
the actor that kills it; the head's GCS listens on the address that this driver is connected to.
"""

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

import ray  # makes its own copy of psutil importable
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import psutil  # isort: skip - images have no other

RAYLET, TITLE = "RAY_RAYLET_PID", "ray::"  # of a process that Ray has started
NOTICE_S = 1.0  # until the line below can have been read


class Killer:
    """An actor on the node of the process to kill."""

    def __init__(self) -> None:
        self.raylet = int(os.environ[RAYLET])

    def find(self, pid: int | None) -> int:
        """Return the process to kill: the worker of this node, or without one the node's raylet."""
        if pid is not None and pid not in self._workers():
            raise ValueError(f"process {pid} is not a worker of this node's raylet {self.raylet}")
        return self.raylet if pid is None else pid

    def kill(self, pid: int, at: float) -> None:
        """Kills a process at a time; before a raylet its other workers, which would outlive it."""
        workers = self._workers() - {os.getpid()} if pid == self.raylet else set[int]()
        _kill(at, *workers, pid)

    def _workers(self) -> set[int]:
        """Return the processes of jobs on this node, some of which are forks of another process."""
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, IndexError):
                if process.cmdline()[0].startswith(TITLE):
                    its = process.environ().get(RAYLET) == str(self.raylet)
                    found |= {process.pid} if its else set()
        return found


def main(target: str, node: str = "", argument: str = "") -> None:
    """Kills a worker's process, a node's raylet (for preempt after a notice), or the head's GCS."""
    ray.init(log_to_driver=False)
    if target == "head":
        gcs = _listener(int(ray.get_runtime_context().gcs_address.rpartition(":")[2]))
        _kill(_announce(gcs), gcs)
        return
    place = NodeAffinitySchedulingStrategy(node, soft=False)
    killer: Any = ray.remote(Killer).options(num_cpus=0, scheduling_strategy=place).remote()
    found = ray.get(killer.find.remote(int(argument) if target == "worker" else None))
    at = _announce(found)
    if target == "preempt":
        at += float(argument)
        _give_notice(node, at)
    done = killer.kill.remote(found, at)
    ray.wait([done])  # a raylet's end arrives as an error, as wanted


def _announce(pid: int) -> float:
    at = time.time() + NOTICE_S
    print(json.dumps({"at": at, "pid": pid}), flush=True)  # noqa: T201
    return at


def _give_notice(node: str, deadline: float) -> None:
    """Has the head drain a node, which gets no more work and tells its programs."""
    from ray.core.generated import autoscaler_pb2  # noqa: PLC0415 - for this fault only

    names: Any = autoscaler_pb2
    reason = names.DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    gcs: Any = ray._raylet.GcsClient(address=ray.get_runtime_context().gcs_address)  # type: ignore[attr-defined]
    accepted, why = gcs.drain_node(node, reason, "a drill", int(deadline * 1000))
    if not accepted:
        raise ValueError(f"the head does not drain node {node}: {why}")


def _kill(at: float, *pids: int) -> None:
    time.sleep(max(0.0, at - time.time()))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _listener(port: int) -> int:
    for found in psutil.net_connections("tcp"):
        address: Any = found.laddr
        if found.status == psutil.CONN_LISTEN and address.port == port and found.pid:
            return int(found.pid)
    raise ValueError(f"no process of this user listens on the head's port {port}")


if __name__ == "__main__":
    main(*sys.argv[1:])
