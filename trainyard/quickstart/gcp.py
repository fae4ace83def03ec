"""`train cluster-file --provider gcp`: a cluster for Ray's own launcher on Google Cloud.

Ray's launcher starts and ends the machines. No stack knows them: `ray down` ends them, and they
have no preview, budget or end time.

Never run: no Google Cloud was available. Ray's schema and loader take the file
(tests/unit/trainyard/quickstart/test_gcp.py).
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainyard.access import repository
from trainyard.client.errors import ClientError

# What Google allows for names of networks, less what we append.
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")
INSIDE = "10.90.0.0/20"  # addresses of the cluster's own network: 4,092 machines
IDLE_MINUTES = 5
DISK_GB = 150
CPU_WORKERS, GPU_WORKERS, TPU_WORKERS = 4, 2, 1  # at most; at least none
DEBIAN = "projects/debian-cloud/global/images/family/debian-12"
# With NVIDIA's driver, which PyTorch's packages do not bring.
WITH_DRIVER = (
    "projects/deeplearning-platform-release/global/images/family/"
    "common-cu129-ubuntu-2204-nvidia-580"
)
# Four chips in one host. Ray's autoscaler cannot start slices of several hosts properly.
TPU, TPU_RUNTIME, TPU_CHIPS, TPU_CPUS = "v5litepod-4", "v2-alpha-tpuv5-lite", 4, 112
# renovate: datasource=pypi depName=google-api-python-client
GOOGLE_CLIENT = "google-api-python-client==2.202.0"  # of the head: Ray's autoscaler asks with it
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"  # Ray wants the same everywhere
FOLDER = "~/trainyard"  # on the machines
ENVIRONMENT = f"{FOLDER}/env"
RAY = f"{ENVIRONMENT}/bin/ray"
TOKEN = "~/.ray/auth_token"  # noqa: S105 (a file, where Ray looks for it)
PORT = 6379


@dataclass(frozen=True, kw_only=True)
class GcpCluster:
    """The settings of a cluster on Google Cloud.

    Attributes:
        project: id of the Google Cloud project.
        zone: such as us-central1-a; it must have the machine types.
        cidr: range of addresses that may log in, such as a VPN's, in CIDR notation.
        name: of the cluster, its network and its firewall rules.
    """

    project: str
    zone: str
    cidr: str
    name: str

    def __post_init__(self) -> None:
        for value, pattern, what, example in (
            (self.project, PROJECT, "--project must be the id of a project", "my-project-1"),
            (self.zone, ZONE, "--zone must be a zone", "us-central1-a"),
            (self.name, NAME, "--name must be lowercase letters, digits and hyphens", "trainyard"),
        ):
            if not pattern.fullmatch(value):
                raise ClientError(f"{what}, and is {value[:80]!r}: give one such as {example}")
        try:
            network = ipaddress.IPv4Network(self.cidr)
        except ValueError as error:
            raise ClientError(
                f"--cidr must be a range of IPv4 addresses ({error}): give your VPN's, such as "
                "192.0.2.0/24"
            ) from None
        if network.prefixlen == 0:
            raise ClientError(
                f"--cidr {self.cidr} lets the whole internet try to log in: give your VPN's range, "
                "or your own address as A.B.C.D/32"
            )

    @property
    def region(self) -> str:
        """Region of the zone."""
        return self.zone.rpartition("-")[0]

    @property
    def subnetwork(self) -> str:
        """Path of the cluster's own subnetwork."""
        return f"projects/{self.project}/regions/{self.region}/subnetworks/{self.name}"


def write(cluster: GcpCluster, output: Path) -> list[Path]:
    """Writes the cluster file, and next to it the script that makes its network.

    Raises:
        ClientError: a file cannot be written, or the packages' list is not there.
    """
    if not repository.is_checkout():
        raise ClientError(
            "the machines get the packages of requirements/, which is in the checkout only: run "
            "this with its .venv"
        )
    script = output.with_name(f"{output.stem}_network.sh")
    try:
        output.write_text(cluster_file(cluster, script.name), encoding="utf-8")
        script.write_text(network_script(cluster), encoding="utf-8")
        script.chmod(0o755)
    except OSError as error:
        raise ClientError(
            f"cannot write {error.filename} ({error.strerror}): give another file with --output"
        ) from None
    return [output, script]


def cluster_file(cluster: GcpCluster, script: str) -> str:
    """Returns the cluster file as YAML, after a few lines that say how to use it."""
    return (
        f"# A Ray cluster on Google Cloud, for Ray's own launcher.\n"
        f"#   ray get-auth-token --generate >/dev/null   the token, which goes to the machines\n"
        f"#   ./{script} up                              network and firewall\n"
        f"#   ray up -y FILE, then ray dashboard FILE    the cluster; its dashboard by SSH\n"
        f"#   ray down -y FILE, then ./{script} down     ends all, or names what still runs\n"
        + yaml.safe_dump(_config(cluster), sort_keys=False, width=100)
    )


def _config(cluster: GcpCluster) -> dict[str, Any]:
    return {
        "cluster_name": cluster.name,
        "max_workers": CPU_WORKERS + GPU_WORKERS + TPU_WORKERS,
        "idle_timeout_minutes": IDLE_MINUTES,
        "provider": {
            "type": "gcp",
            "project_id": cluster.project,
            "region": cluster.region,
            "availability_zone": cluster.zone,
            # A stopped machine's disk still costs money.
            "cache_stopped_nodes": False,
        },
        "auth": {"ssh_user": "ubuntu"},
        "head_node_type": "head",
        "available_node_types": {
            # Without CPUs for jobs: a job that fills the head takes the cluster down.
            "head": {
                "resources": {"CPU": 0},
                "node_config": _machine(cluster, "e2-standard-4", DEBIAN),
            },
            "cpu": {
                "min_workers": 0,
                "max_workers": CPU_WORKERS,
                "resources": {"CPU": 8},
                "node_config": _machine(cluster, "e2-standard-8", DEBIAN, {"preemptible": True}),
            },
            "gpu": {
                "min_workers": 0,
                "max_workers": GPU_WORKERS,
                "resources": {"CPU": 8, "GPU": 1},
                # Machines with GPUs cannot move to another host for maintenance.
                "node_config": _machine(
                    cluster,
                    "g2-standard-8",
                    WITH_DRIVER,
                    {"preemptible": True, "onHostMaintenance": "TERMINATE"},
                ),
            },
            "tpu": {
                "min_workers": 0,
                "max_workers": TPU_WORKERS,
                "resources": {"CPU": TPU_CPUS, "TPU": TPU_CHIPS},
                "node_config": {
                    "acceleratorType": TPU,
                    "runtimeVersion": TPU_RUNTIME,
                    "schedulingConfig": {"preemptible": True},
                    "networkConfig": {
                        "network": f"projects/{cluster.project}/global/networks/{cluster.name}",
                        "subnetwork": cluster.subnetwork,
                        "enableExternalIps": True,
                    },
                },
                # Instead of the common setup.
                "worker_setup_commands": _setup("tpu.txt"),
            },
        },
        "file_mounts": {
            f"{FOLDER}/requirements": str(repository.ROOT / "requirements"),
            TOKEN: TOKEN,
        },
        "rsync_exclude": ["**/.git", "**/.git/**"],
        "rsync_filter": [".gitignore"],
        "setup_commands": _setup("host.txt"),
        "head_setup_commands": [
            f"{FOLDER}/uv/bin/uv pip install --quiet --python {ENVIRONMENT} {GOOGLE_CLIENT}"
        ],
        "worker_setup_commands": [],
        # The dashboard is reached through SSH only, by `ray dashboard`.
        "head_start_ray_commands": _start(
            f"--head --port={PORT} --dashboard-host=127.0.0.1 "
            "--autoscaling-config=~/ray_bootstrap_config.yaml"
        ),
        "worker_start_ray_commands": _start(f"--address=$RAY_HEAD_IP:{PORT}"),
    }


def _machine(
    cluster: GcpCluster, kind: str, image: str, scheduling: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the body of a request to Compute Engine for a machine."""
    disk = {"diskSizeGb": DISK_GB, "sourceImage": image}
    machine: dict[str, Any] = {
        "machineType": kind,
        "disks": [
            {"boot": True, "autoDelete": True, "type": "PERSISTENT", "initializeParams": disk}
        ],
        "networkInterfaces": [
            {
                "subnetwork": cluster.subnetwork,
                # For packages from outside; the firewall lets only the range in.
                "accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}],
            }
        ],
        "labels": {"trainyard": cluster.name},
    }
    return machine | ({"scheduling": dict(scheduling)} if scheduling else {})


def _setup(lock: str) -> list[str]:
    """Returns the commands that install a lock of requirements/ on a machine."""
    installer = f"{FOLDER}/uv/bin"
    packages = "sudo apt-get update -qq && sudo apt-get install -y -qq rsync python3-venv"
    setup = f"--quiet --require-hashes --requirement {FOLDER}/requirements/setup.txt"
    wanted = f"--quiet --require-hashes --python {ENVIRONMENT} {FOLDER}/requirements/{lock}"
    python = f"--quiet --python {PYTHON} {ENVIRONMENT}"
    return [
        f"{{ command -v rsync && python3 -c 'import ensurepip'; }} >/dev/null || {{ {packages}; }}",
        f"python3 -m venv {FOLDER}/uv && {installer}/pip install {setup}",
        f"test -x {ENVIRONMENT}/bin/python || {installer}/uv venv {python}",
        f"{installer}/uv pip sync {wanted}",
        # The launcher calls the ray that a login finds.
        f"mkdir -p ~/.local/bin && ln -sfn {RAY} ~/.local/bin/ray",
    ]


def _start(flags: str) -> list[str]:
    """Returns the commands that start Ray on a machine."""
    start = f"RAY_AUTH_MODE=token {RAY} start {flags} --disable-usage-stats"
    return [f"{RAY} stop", f"ulimit -n 65536; {start}"]


def network_script(cluster: GcpCluster) -> str:
    """Returns a script that makes and removes the network that the cluster file names.

    Google's default network lets the whole internet reach port 22.
    """
    return f"""\
#!/usr/bin/env bash
# The network of the Ray cluster {cluster.name}: only {cluster.cidr} may log in.
#   up      makes it
#   down    removes it, after `ray down`
set -euo pipefail
gcloud() {{ command gcloud --project {cluster.project} --quiet "$@"; }}

case "${{1:-}}" in
  up)
    gcloud compute networks create {cluster.name} --subnet-mode custom
    gcloud compute networks subnets create {cluster.name} --network {cluster.name} \\
      --region {cluster.region} --range {INSIDE}
    gcloud compute firewall-rules create {cluster.name}-inside --network {cluster.name} \\
      --allow tcp,udp,icmp --source-ranges {INSIDE}
    gcloud compute firewall-rules create {cluster.name}-ssh --network {cluster.name} \\
      --allow tcp:22 --source-ranges {cluster.cidr}
    ;;
  down)
    left=$(gcloud compute instances list --format 'value(name)' \\
      --filter 'labels.ray-cluster-name={cluster.name}')
    left+=$(gcloud compute tpus tpu-vm list --zone {cluster.zone} --format 'value(name)' \\
      --filter 'labels.ray-cluster-name={cluster.name}')
    if [ -n "$left" ]; then
      printf 'these machines are there, and bill: %s\\nend them with ray down first\\n' "$left" >&2
      exit 1
    fi
    gcloud compute firewall-rules delete {cluster.name}-ssh {cluster.name}-inside
    gcloud compute networks subnets delete {cluster.name} --region {cluster.region}
    gcloud compute networks delete {cluster.name}
    ;;
  *)
    echo "usage: $0 up|down" >&2
    exit 2
    ;;
esac
"""
