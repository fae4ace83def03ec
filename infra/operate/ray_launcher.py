"""Hosts for Ray's own launcher: a cluster file for `ray up`; the stack runs no Ray.

The nodes get the flags, the environment and the secret files that the stack's own would have.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

import pulumi
import yaml

from cluster import ray_cluster, ray_node
from cluster.descriptor import Stack
from cluster.inputs import join, lift
from infra.machines.machine import Machine
from infra.machines.process_runtime import ProcessRuntime
from node import owned_processes
from trainyard.access import outputs

# The launcher's processes and copies go by the user's SSH: it knows no host keys.
PROVIDER = "local"
# Ray 2.60's newer autoscaler, which `ray up` turns on, never starts a worker of this provider.
AUTOSCALER = {"RAY_enable_autoscaler_v2": "0"}
NODE = "ray-node"  # the launcher starts all workers with the same command, so with the same paths


@dataclass(frozen=True, kw_only=True)
class LaunchTarget:
    """Where the launcher starts Ray.

    Attributes:
        machines: the machines, the head's first.
        key_file: private key to log in with, "" for the SSH agent.
        runtime: of the stack's other services on them.
    """

    machines: Sequence[Machine]
    key_file: str
    runtime: ProcessRuntime


class LauncherHosts(ray_cluster.Cluster):
    """The needs of `ray up` on the hosts, and its cluster file.

    Attributes:
        launcher_file: YAML; a secret output: it says where secrets are and how to get there.
    """

    launcher_file: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        launched: LaunchTarget,
        stack: Stack,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:hosts:RayLauncher", name, None, opts)
        files = ray_node.secret_files(
            stack.token, stack.storage, stack.additions, serve_token=stack.serve_token
        )
        for index in range(len(launched.machines)):
            launched.runtime.place_files(NODE, index, files, pulumi.ResourceOptions(parent=self))
        starts = [_start(index, launched, stack) for index in range(min(2, len(launched.machines)))]
        addresses = [machine.address for machine in launched.machines]
        self.launcher_file = pulumi.Output.secret(
            pulumi.Output.all(
                addresses=addresses,
                starts=starts,
                host=launched.machines[0].connection["host"],
                user=launched.machines[0].connection["user"],
            ).apply(lambda known: cluster_file(key_file=launched.key_file, **known))
        )
        names = [ray_node.HEAD, *workers(len(launched.machines))]
        nodes = [
            lift(partial(ray_cluster.node_output, name), resources)
            for name, resources in zip(names, stack.workers, strict=True)
        ]
        self.export(stack, launched.runtime, nodes)
        stack.outputs[outputs.RAY_CLUSTER_FILE] = self.launcher_file
        self.register_outputs({"dashboard_url": self.dashboard_url, "nodes": self.nodes})


def workers(machines: int) -> tuple[str, ...]:
    """Return the names of the workers: the first machine has the head alone."""
    return tuple(ray_node.worker_name(index) for index in range(1, machines))


def cluster_file(
    *,
    key_file: str,
    addresses: Sequence[str],
    starts: Sequence[str],
    host: str,
    user: str,
) -> str:
    """Return a cluster file for existing machines, with the command that starts Ray on each.

    They reach one another by `addresses`, the head's first; `host` is the head's address from here.
    `key_file` is "" for the SSH agent.
    """
    # Stops the Ray of an earlier `ray up`: the stack runs no other.
    stop = starts[0].partition(" start ")[0].rpartition(" ")[2] + " stop"
    auth = {"ssh_user": user}
    if key_file:
        auth["ssh_private_key"] = key_file
    return yaml.safe_dump(
        {
            "cluster_name": f"{pulumi.get_project()}-{pulumi.get_stack()}",
            "provider": {
                "type": PROVIDER,
                # From outside; Ray's nodes know it by the address in the start command.
                "head_ip": host,
                "worker_ips": list(addresses[1:]),
            },
            "auth": auth,
            "max_workers": len(addresses) - 1,
            "min_workers": len(addresses) - 1,
            "head_start_ray_commands": [stop, starts[0]],
            "worker_start_ray_commands": [stop, *starts[1:2]],
        },
        sort_keys=False,
    )


def _start(index: int, launched: LaunchTarget, stack: Stack) -> pulumi.Output[str]:
    """Return the command that starts Ray on the head (index 0) or on each of the others (1)."""
    runtime, ports = launched.runtime, stack.settings.ports
    machine = launched.machines[index]
    environment = ray_cluster.node_environment(NODE, stack)
    # Workers are all started alike: they get the environment of the first.
    environment |= runtime.environment(machine)
    environment |= {owned_processes.STACK: runtime.label}  # a destroy ends processes with it
    flags = ray_node.machine_flags(NODE, index, runtime, stack.workers[index], ports)
    if index == 0:
        environment |= ray_cluster.head_environment(NODE, stack) | AUTOSCALER
        flags = [
            *ray_cluster.head_flags(runtime, ports),
            join("--node-ip-address=", machine.address),
            *flags,
        ]
    else:
        head = launched.machines[0].address
        flags = ["start", join("--address=", head, f":{ports['gcsPort']}"), *flags]
    values = list(environment.values())
    return pulumi.Output.all(*values, *flags).apply(
        lambda known: _command(
            f"{machine.environment}/bin/ray",
            dict(zip(environment, known[: len(values)], strict=True)),
            known[len(values) :],
            more='--autoscaling-config="$HOME/ray_bootstrap_config.yaml"' if index == 0 else "",
        )
    )


def _command(ray: str, environment: Mapping[str, str], flags: Sequence[str], *, more: str) -> str:
    settings = " ".join(f"{key}={shlex.quote(value)}" for key, value in environment.items())
    words = " ".join(shlex.quote(flag) for flag in flags)
    # Jobs call `python`: this makes it Ray's.
    path = f'PATH={shlex.quote(str(PurePosixPath(ray).parent))}:"$PATH"'
    return f"ulimit -n $(ulimit -Hn); {path} {settings} {ray} {words} {more}".rstrip()
