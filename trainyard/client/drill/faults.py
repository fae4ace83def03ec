"""The faults: a training worker or its node, the object store, or the head is lost.

Workers and the head are killed from inside the cluster, by a small job, so that containers and
other machines make no difference; the store is stopped on the machine that it runs on.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from trainyard.client import jobs, package, submission
from trainyard.client.drill import Fault, agent, store
from trainyard.client.drill.watch import RunWatch
from trainyard.client.errors import ClientError
from trainyard.client.job_server import JobServer
from trainyard.client.outputs import StackOutputs
from trainyard.client.state import Actor, ClusterState

STARTED_S = 120  # a job of a busy cluster
POLL_S = 0.1
CLOCKS_S = 60  # how far the cluster's clock may be from this machine's


@dataclass(frozen=True)
class InjectedFault:
    """A fault in words, and its time in seconds since 1970."""

    what: str
    at: float


def check(fault: Fault, outputs: StackOutputs) -> None:
    """Refuses a fault that a stack cannot have, or would not recover from; ClientError says why."""
    if fault is Fault.STORE_LOSS:
        store.find_server(outputs)
    if fault is Fault.HEAD_LOSS and outputs.ray_cluster_file:
        raise ClientError(
            f"the head of stack {outputs.stack!r} was started by Ray's own launcher, which does "
            "not start it again: drill worker-loss, or a stack that is supervised"
        )


def lose_worker(
    outputs: StackOutputs, state: ClusterState, watch: RunWatch, *, whole_node: bool
) -> InjectedFault:
    """Kills one of the run's workers, or its node's raylet with all processes of the node."""
    worker, where = _victim(state, watch)
    if whole_node:
        at, pid = _kill(outputs, "node", worker.node)
        return InjectedFault(f"killed {where} (raylet, process {pid})", at)
    at, pid = _kill(outputs, "worker", worker.node, str(worker.pid))
    return InjectedFault(f"killed the training worker (process {pid}) on {where}", at)


def preempt(
    outputs: StackOutputs, state: ClusterState, watch: RunWatch, seconds: float
) -> InjectedFault:
    """Gives notice to the node of one of the run's workers, and kills it after some seconds."""
    worker, where = _victim(state, watch)
    at, pid = _kill(outputs, "preempt", worker.node, f"{seconds:g}")
    what = f"gave {where} notice of {seconds:g} s, then it is killed (raylet, process {pid})"
    return InjectedFault(what, at)


def _victim(state: ClusterState, watch: RunWatch) -> tuple[Actor, str]:
    """Return a worker of the run, and its node in words."""
    worker = next(iter(watch.workers.values()))
    addresses = {node.id: node.address for node in state.nodes()}
    return worker, f"node {addresses.get(worker.node, worker.node)}"


def lose_head(outputs: StackOutputs) -> InjectedFault:
    """Kills the head's GCS; the head ends with it, and its restart policy brings it back."""
    at, pid = _kill(outputs, "head")
    return InjectedFault(f"killed the head (GCS, process {pid})", at)


def lose_store(outputs: StackOutputs, seconds: float, look: Callable[[], None]) -> InjectedFault:
    """Stops the store for some seconds, then kills it; its restart policy brings it back.

    Meanwhile `look` is called repeatedly.
    """
    server = store.find_server(outputs)
    at = time.time()
    with store.outage(server, outputs.object_store_endpoint) as check:
        while time.time() < at + seconds:
            look()
            check()
            time.sleep(POLL_S)
    return InjectedFault(
        f"stopped the object store ({server.what}) for {seconds:g} s, then killed it", at
    )


def _kill(outputs: StackOutputs, *arguments: str) -> tuple[float, int]:
    """Runs agent.py on the cluster; returns when it kills, and the process."""
    with tempfile.TemporaryDirectory() as folder:
        script = shutil.copy(Path(agent.__file__), folder)
        job_id = submission.send(
            outputs,
            package.packages({"working_dir": folder}),
            entrypoint=join(["python", Path(script).name, *arguments]),
            metadata={"job": "drill"},
        )
    server = JobServer(outputs)
    end = time.monotonic() + STARTED_S
    while time.monotonic() < end:
        log = "".join(jobs.read_log(server, job_id))
        for line in log.splitlines():
            if line.startswith('{"at": '):
                at, pid = _announced(line, job_id)
                time.sleep(max(0.0, at - time.time()))
                return at, pid
        if server.job(job_id).status.ended:
            last = (log.strip().splitlines() or ["no output"])[-1]
            raise ClientError(
                f"the drill's own job {job_id} found nothing to kill ({last}): the run may just "
                "have ended or moved; see train status, then drill again"
            )
        time.sleep(POLL_S)
    server.stop(job_id)
    raise ClientError(
        f"the drill's own job {job_id} did not start within {STARTED_S} s: the cluster is busy or "
        "half down; see `train list`"
    )


def _announced(line: str, job_id: str) -> tuple[float, int]:
    """Return the time of the kill and the process. Both are checked: they come from the cluster."""
    try:
        said = json.loads(line)
        at, pid = float(said["at"]), int(said["pid"])
    except (ValueError, KeyError, TypeError):
        at, pid = float("nan"), 0
    if not abs(at - time.time()) < STARTED_S + CLOCKS_S:
        raise ClientError(
            f"the drill's own job {job_id} says {line[:80]!r}: the machines' clocks differ, or it "
            "is not this client's; see `train logs`, then set the clocks and drill again"
        )
    return min(at, time.time() + agent.NOTICE_S), pid
