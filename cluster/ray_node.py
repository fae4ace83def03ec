"""Flags, environment and files of a Ray node: pure functions, shared by head and workers."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi

from cluster import storage as stored
from cluster.inputs import join, lift
from cluster.service import Runtime, Volume
from cluster.storage import Storage
from trainyard.access.variables import DASHBOARD, SERVE_HOST, SERVE_PORT, STORAGE_URL
from trainyard.access.variables import SERVE_TOKEN_FILE as SERVE_TOKEN_VARIABLE

MIB = 1024 * 1024  # bytes
OBJECT_STORE_MIN_MIB = 80  # Ray refuses less than 75 MiB
RESERVED_RESOURCES = frozenset({"CPU", "GPU", "memory", "object_store_memory"})

HEAD = "ray-head"  # name of the head's service
WORKER = "ray-worker-"  # how the names of workers' services begin
JOB_START = "jobStartTimeoutSeconds"
JOB_START_SECONDS = 900  # Ray's default
TEMP = Volume(name="ray")
GROUP_LABEL = "group"  # of nodes, with the name of their group
# A node that is asked to end waits half a minute for running jobs, and a minute for a head that
# ended first. A kill loses nothing of value: runs continue from their checkpoints.
STOP_SECONDS = 0
# Share of a node's memory for data loaders and collective communication, on top of Ray's objects.
SHARED_MEMORY_SHARE = 0.25
# Memory of a node's own programs, on top of the memory that it offers to jobs: for each node, and
# for each CPU, for which Ray keeps a worker ready.
NODE_MEMORY_MIB = 2048
CPU_MEMORY_MIB = 128
# Drivers of jobs run on the head, and Ray does not count their memory.
DRIVERS_MEMORY_MIB = 8192
TOKEN_FILE = "ray-token"  # noqa: S105 (a file's name)
SERVE_TOKEN_FILE = "serve-token"  # noqa: S105 (a file's name)
CREDENTIALS_FILE = "aws-credentials"
# How long a node waits for a head that is gone before it ends: by Ray's own default a minute. The
# head gives up a silent node as late (ray_cluster.py). Another head in its place ends the node at
# once (ray_start.py).
HEAD_LOST_SECONDS = 20
# The raylet ends a worker's process group with the worker, even if the worker was killed, and Ray's
# watch over a job ends the group of its entrypoint. By default each worker ends its children
# instead: a killed worker ends nothing, and the watch itself ends before it has done its work
# (Ray 2.60). A process with a session or group of its own stays.
PROCESS_GROUPS = {
    "RAY_process_group_cleanup_enabled": "1",
    "RAY_kill_child_processes_on_worker_exit": "0",
}


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How a group of nodes grows and shrinks, up to its declared nodes.

    Attributes:
        least: nodes that are kept.
        idle_seconds: how long a node beyond these may be idle before it ends.
    """

    least: int
    idle_seconds: float


@dataclass(frozen=True, kw_only=True)
class NodeResources:
    """Resources that a Ray node offers to jobs.

    Attributes:
        cpus: logical CPUs.
        memory_mib: memory that Ray's scheduler hands out, in MiB; it is not enforced by Ray.
        object_store_mib: shared memory for objects, in MiB.
        resources: custom resources by name.
        threads: of PyTorch in one process, where the node offers more CPUs than it has; None leaves
            them to Ray, which takes the CPUs that the process asked for.
        group: name of the node's group, "" for none.
        growth: bounds of the node's group if Ray's autoscaler starts and ends its nodes, else None.
        hourly_cost: $ for each hour that its machine exists, 0 if it costs nothing more.
    """

    cpus: float
    gpus: float
    memory_mib: int
    object_store_mib: int
    resources: Mapping[str, float] = field(default_factory=dict)
    threads: int | None = None
    group: str = ""
    growth: Growth | None = None
    hourly_cost: float = 0.0


@dataclass(frozen=True, kw_only=True)
class NodeAddition:
    """A service's addition to Ray nodes, by which jobs find it.

    Attributes:
        environment: variables, by the runtime and the name of a node's service.
        secrets: content of secret files by name.
        head_only: whether workers do not get it.
    """

    environment: Callable[[Runtime, str], Mapping[str, pulumi.Input[str]]]
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    volumes: Sequence[Volume] = ()
    head_only: bool = False


def worker_name(index: int) -> str:
    """Return the name of the service of worker `index`."""
    return f"{WORKER}{index}"


def common_flags(
    service: str,
    index: int,
    runtime: Runtime,
    resources: pulumi.Input[NodeResources],
    ports: Mapping[str, int],
) -> list[pulumi.Input[str]]:
    """Return the flags of `ray start` that head (index 0) and workers (from 1) share."""
    flags = machine_flags(service, index, runtime, resources, ports)
    # The resources of another machine are known once the machine is.
    if not isinstance(resources, NodeResources) or resources.group:
        flags.append(lift(_labels, resources))
    address = runtime.node_address(index)
    if isinstance(address, pulumi.Output) or address:
        flags.append(join("--node-ip-address=", address))
    return ["--block", *flags]


def _labels(node: NodeResources) -> str:
    return f"--labels={GROUP_LABEL}={node.group}" if node.group else "--labels="


def machine_flags(
    service: str,
    index: int,
    runtime: Runtime,
    resources: pulumi.Input[NodeResources],
    ports: Mapping[str, int],
) -> list[pulumi.Input[str]]:
    """Return the shared flags, except those for reaching and supervising a node."""
    return [
        "--disable-usage-stats",
        *(lift(flag, resources) for flag in RESOURCE_FLAGS),
        f"--dashboard-agent-listen-port={agent_port(ports, index)}",
        # Two nodes in one session folder race for the names of their sockets: each has its own.
        f"--temp-dir={runtime.volume(service, TEMP)}",
        # Ray's default range is the same for every node, so nodes of one machine would collide.
        "--min-worker-port=0",
        "--max-worker-port=0",
    ]


RESOURCE_FLAGS: tuple[Callable[[NodeResources], str], ...] = (
    lambda node: f"--num-cpus={node.cpus:g}",
    lambda node: f"--num-gpus={node.gpus:g}",
    lambda node: f"--memory={node.memory_mib * MIB}",
    lambda node: f"--object-store-memory={node.object_store_mib * MIB}",
    lambda node: f"--resources={json.dumps(dict(node.resources), sort_keys=True)}",
)


def agent_port(ports: Mapping[str, int], index: int) -> int:
    """Return the port of a node's agent."""
    return ports["agentPort"] + index


def shared_memory_mib(resources: NodeResources) -> int:
    """Return the shared memory of a node in MiB; unused memory costs nothing."""
    return resources.object_store_mib + int(resources.memory_mib * SHARED_MEMORY_SHARE)


def memory_limit_mib(resources: NodeResources) -> int:
    """Return the memory that a node may use in MiB: the offered memory, and its own."""
    own = NODE_MEMORY_MIB + int(resources.cpus * CPU_MEMORY_MIB)
    return resources.memory_mib + resources.object_store_mib + own


def head_memory_limit_mib(resources: NodeResources) -> int:
    """Return the memory that a head may use in MiB: drivers of jobs run there too."""
    return memory_limit_mib(resources) + DRIVERS_MEMORY_MIB


def volumes(additions: Sequence[NodeAddition]) -> list[Volume]:
    """Return the volumes of a node."""
    return [TEMP, *(volume for addition in additions for volume in addition.volumes)]


def environment(
    service: str,
    runtime: Runtime,
    ports: Mapping[str, int],
    storage: Storage,
    additions: Sequence[NodeAddition],
    processes: Mapping[str, str],
) -> dict[str, pulumi.Input[str]]:
    """Return the environment of a Ray node; jobs inherit it, so they need no secret of their own.

    A served model is started by a job, on any node, and listens on the head.
    """
    variables: dict[str, pulumi.Input[str]] = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": runtime.file(service, TOKEN_FILE),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Otherwise Ray reports a disk of one byte in pods, and no alert on a full one.
        "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
        # Ray's numbers of GPUs are then those of its agent, by which the queue knows their use.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_LOST_SECONDS),
        **PROCESS_GROUPS,
        **processes,
        STORAGE_URL: storage.url,
        DASHBOARD: runtime.address(HEAD, ports["dashboardPort"]),
        SERVE_HOST: runtime.listen_address(HEAD),
        SERVE_PORT: str(ports["servePort"]),
        SERVE_TOKEN_VARIABLE: runtime.file(service, SERVE_TOKEN_FILE),
        **stored.environment(storage, runtime.file(service, CREDENTIALS_FILE)),
    }
    for addition in additions:
        variables |= addition.environment(runtime, service)
    return variables


def threads(resources: pulumi.Input[NodeResources]) -> dict[str, pulumi.Input[str]]:
    """Return the variable that limits PyTorch's threads, if a node offers more CPUs than it has.

    Threads that share a core wait for each other in every operation: on two busy cores an epoch
    with 4 threads took 3.5 times the processor time of one with a single thread. Other machines
    keep Ray's number, because their cores are not known before they are reached.
    """
    if isinstance(resources, NodeResources) and resources.threads is not None:
        return {"OMP_NUM_THREADS": str(resources.threads)}
    return {}


def secret_files(
    token: pulumi.Input[str],
    storage: Storage,
    additions: Sequence[NodeAddition],
    *,
    serve_token: pulumi.Input[str],
) -> dict[str, pulumi.Input[str]]:
    """Return the secret files of a Ray node: its tokens, and the keys to other services."""
    files: dict[str, pulumi.Input[str]] = {
        TOKEN_FILE: pulumi.Output.secret(token),
        SERVE_TOKEN_FILE: pulumi.Output.secret(serve_token),
    }
    if storage.bucket:
        files[CREDENTIALS_FILE] = stored.credentials(storage)
    for addition in additions:
        files |= addition.secrets
    return files
