"""Lists the users of a Ray cluster, and drains one of its nodes before it restarts or ends.

    python ray_leave.py GCS NODE users           prints the jobs that run, as JSON
    python ray_leave.py GCS NODE drain SECONDS   tells the head that NODE will leave, and waits

NODE is its address: "" means this machine's, "*" all but the head. A drained node gets no more
work, Ray Train's runs store a checkpoint and continue elsewhere, and the node ends once nothing
runs on it. Work that still runs after SECONDS is lost: the script returns, and the node is ended.

A head whose address nobody listens at has no users. A head that refuses this node's token is a new
one: the head of this node has ended, and its jobs with it. A head that listens but does not list
its users is asked again, for it may have just been started. If it goes on so, perhaps because it is
busy, it may have some: the script fails. This module is a file of every node, runs there with the
node's environment, and needs only Ray.
"""

import json
import socket
import sys
import time
from typing import Any

FILE = "ray_leave.py"
ANSWER_SECONDS = 5
AGAIN_SECONDS = 20.0  # in which a head that has just been started answers
POLL_SECONDS = 0.2
RUNNING = ("PENDING", "RUNNING")
EVERY = "*"
WHY = "its service restarts or ends"


def main(arguments: list[str]) -> None:
    """Run the command of the command line."""
    gcs, node, command, *seconds = arguments
    if not listens(gcs):
        print("[]")  # noqa: T201
        return
    until = time.monotonic() + AGAIN_SECONDS
    while (said := _ask(gcs, node, command, *seconds)) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
    if said:
        sys.exit(f"the head at {gcs} does not say who uses it: {said}")


def _ask(gcs: str, node: str, command: str, *seconds: str) -> str:
    """Do what the command says; return why a head that listens does not answer, "" if it did."""
    import ray  # noqa: PLC0415 - slow

    try:
        client = ray._raylet.GcsClient(address=gcs)  # type: ignore[attr-defined]
        if command == "drain":
            drain(client, node, float(seconds[0]))
        else:
            print(json.dumps(users(client)))  # noqa: T201
    except Exception as error:
        if listens(gcs) and not isinstance(error, ray.exceptions.AuthenticationError):
            return str(error)[:200] or repr(error)
        print("[]")  # noqa: T201
    return ""


def listens(gcs: str) -> bool:
    """Return whether a process listens at the head's address."""
    host, _, port = gcs.rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER_SECONDS).close()
    except OSError as error:
        sys.stderr.write(f"nobody listens at {gcs}: {error}\n")
        return False
    return True


def users(client: Any) -> list[str]:
    """Return running and waiting jobs with their runs, and drivers outside of jobs."""
    from ray._private import ray_constants  # noqa: PLC0415
    from ray.dashboard.modules.job.common import JobInfoStorageClient  # noqa: PLC0415

    space = ray_constants.KV_NAMESPACE_JOB
    prefix = JobInfoStorageClient.JOB_DATA_KEY_PREFIX.encode()
    found = set()
    for key in client.internal_kv_keys(prefix, namespace=space, timeout=ANSWER_SECONDS):
        value = client.internal_kv_get(key, namespace=space, timeout=ANSWER_SECONDS)
        job = json.loads(value or "{}")
        if job.get("status") in RUNNING:
            name, run = key.removeprefix(prefix).decode(), (job.get("metadata") or {}).get("run")
            found.add(f"{name} ({run})" if run else name)
    for job_id, job in client.get_all_job_info(timeout=ANSWER_SECONDS).items():
        submitted = "job_submission_id" in job.config.metadata
        internal = job.config.ray_namespace.startswith("_ray_internal")
        if not (job.is_dead or submitted or internal):
            found.add(f"driver {job_id.hex()}")
    return sorted(found)


def drain(client: Any, address: str, seconds: float) -> None:
    """Tell the head that a node leaves, and wait until it has ended or the time is over."""
    from ray.core.generated import autoscaler_pb2  # noqa: PLC0415
    from ray.util import get_node_ip_address  # noqa: PLC0415

    address = address or get_node_ip_address()  # type: ignore[no-untyped-call]
    end = time.time() + seconds
    reason = autoscaler_pb2.DrainNodeReason.Value(  # type: ignore[attr-defined]
        "DRAIN_NODE_REASON_PREEMPTION"
    )
    leaving = alive(client, address)
    for node in leaving:
        client.drain_node(node, reason, WHY, int(end * 1000))
    while time.time() < end:
        try:
            # By their ids: one that has ended is started again at the same address.
            if not {*leaving} & {*alive(client, address)}:
                return
        except TimeoutError:
            if not listens(client.address):
                return  # it has ended
            continue  # a busy head; the node may well be alive
        time.sleep(POLL_SECONDS)


def alive(client: Any, address: str) -> list[str]:
    """Return the ids of the living nodes at an address, or at EVERY one, except a head's.

    Raises:
        TimeoutError: the head does not answer in time.
    """
    return [
        node_id.hex()
        for node_id, node in client.get_all_node_info(timeout=ANSWER_SECONDS).items()
        if address in (EVERY, node.node_manager_address)
        and not node.is_head_node
        and node.state == node.ALIVE
    ]


if __name__ == "__main__":
    main(sys.argv[1:])
