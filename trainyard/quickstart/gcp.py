"""`train cluster-file --provider gcp`: a cluster for Ray's own launcher on Google Cloud.

Ray's launcher starts and ends the machines. No stack knows them: `ray down` ends them, and they
have no preview, budget or end time.

Never run: no Google Cloud was available. Ray's schema and loader take the file
(tests/unit/trainyard/quickstart/test_gcp.py).
"""

import ipaddress
import json
import re
import string
import sys
from dataclasses import dataclass
from pathlib import Path

from trainyard.access import repository
from trainyard.client.console import say
from trainyard.client.errors import ClientError

FILES = Path(__file__).resolve().parent / "google"
# What Google allows for names of networks, less what we append.
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
PROJECT = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]")
# renovate: datasource=pypi depName=google-api-python-client
GOOGLE_CLIENT = "google-api-python-client==2.202.0"  # of the head: Ray's autoscaler asks with it
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"  # Ray wants the same everywhere
TPU_PYTHONS = ("3.11", "3.12")  # for which requirements/tpu.txt has packages


class Form(string.Template):
    """A text with names such as @zone in the place of values."""

    delimiter = "@"


@dataclass(frozen=True, kw_only=True)
class GcpCluster:
    """The settings of a cluster on Google Cloud."""

    project: str  # id of the Google Cloud project
    zone: str  # such as us-central1-a; it must have the machine types
    cidr: str  # range of addresses that may log in, such as a VPN's, in CIDR notation
    name: str  # of the cluster, its network and its firewall rules

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
    if PYTHON not in TPU_PYTHONS:
        say(
            f"warning: the group tpu starts no machine, because PyTorch/XLA has no packages for "
            f"Python {PYTHON}: for TPUs make .venv with `make setup PYTHON=python3.12`"
        )
    script = output.with_name(f"{output.stem}_network.sh")
    region = cluster.zone.rpartition("-")[0]
    values = vars(cluster) | {
        "client": GOOGLE_CLIENT,
        "python": PYTHON,
        "region": region,
        "requirements": json.dumps(str(repository.ROOT / "requirements")),
        "script": script.name,
        "tpus": int(PYTHON in TPU_PYTHONS),
        "subnetwork": f"projects/{cluster.project}/regions/{region}/subnetworks/{cluster.name}",
    }
    try:
        for form, path in ((FILES / "cluster.yaml", output), (FILES / "network.sh", script)):
            path.write_text(Form(form.read_text(encoding="utf-8")).substitute(values), "utf-8")
        script.chmod(0o755)
    except OSError as error:
        raise ClientError(
            f"cannot write {error.filename} ({error.strerror}): give another file with --output"
        ) from None
    return [output, script]
