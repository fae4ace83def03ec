"""P13: from two machines with Debian and sshd to a Ray cluster of both, next to `ray up`.

Each way gets new machines (tests/fakes/machines) in each round. Both install the same locked
packages by uv from this machine's cache, and end when Ray's own API reports that a node of each
machine is alive. Ours has the object store and monitoring then, too. What the machines write, 3.3
GB each, is kept in memory: real ones have a disk each, and here the two would wait for one.
"""

import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

from bench import measure
from bench.form import Form
from bench.measure import ROOT, FailedError, Ratio, SkippedError, in_turn
from bench.scratch import scratch_stack
from tests.fakes.machines import Machines, NoMachinesError
from tests.fakes.machines import machines as fakes

ROUNDS = 3
MEMORY = Path("/dev/shm")  # noqa: S108 - folders of their own are made in it
NAMES = ("head", "worker")
PROGRAMS = ("rsync", "ssh", "ssh-keygen")
USER, HOME = "ubuntu", "/home/ubuntu"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
RAY = f"{HOME}/ray/bin/ray"
PORT, DASHBOARD = 6379, "http://127.0.0.1:8265"
JOIN_SECONDS = 300.0
POLL_SECONDS = 0.25
# As a host of a stack gets them (infra/machines/environment.py).
INSTALL = f"""\
python3 -m venv {HOME}/uv
{HOME}/uv/bin/pip install --quiet --require-hashes --requirement {HOME}/setup.txt
{HOME}/uv/bin/uv venv --quiet --python {sys.version_info.major}.{sys.version_info.minor} {HOME}/ray
{HOME}/uv/bin/uv pip sync --quiet --require-hashes --python {HOME}/ray {HOME}/host.txt
"""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two new machines.

    Attributes:
        public, private: their addresses, the head's first.
        key: file of the key that they let in.
    """

    machines: Machines
    public: list[str]
    private: list[str]
    key: Path

    def await_nodes(self, url: str, token: str = "") -> None:
        """Wait until a node of each machine is alive, as the head's dashboard reports.

        Raises:
            FailedError: they are not.
        """
        curl = shlex.join(
            ["curl", "-s", "-H", f"Authorization: Bearer {token}", f"{url}/api/v0/nodes"]
        )
        deadline = time.monotonic() + JOIN_SECONDS
        while time.monotonic() < deadline:
            said = self.machines.exec(NAMES[0], curl, user=USER, check=False).stdout
            if {*self.private} <= _alive(said):
                return
            time.sleep(POLL_SECONDS)
        raise FailedError(f"Ray has no node on each of {self.private}: {said[-1000:]}")


def run(form: Form) -> list[Ratio]:
    """Return the ratio.

    Raises:
        SkippedError: this machine cannot start others.
    """
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        raise SkippedError(f"not on PATH: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="ty-bench-") as name, contextlib.ExitStack() as held:
        folder = Path(name)
        measure.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")])
        try:
            held.enter_context(patch.object(fakes, "FOLDERS", MEMORY))
            machines = held.enter_context(Machines())
            ours, plain = in_turn(
                form.rounds(ROUNDS),
                lambda: _on_new_machines(machines, folder, _up),
                lambda: _on_new_machines(machines, folder, _ray_up),
            )
        except NoMachinesError as error:
            raise SkippedError(str(error)) from error
    return [Ratio(name="P13 on-prem start", ours=ours, plain=plain, unit="s", goal=0.6)]


def _on_new_machines(machines: Machines, folder: Path, way: Callable[[Pair], float]) -> float:
    key = folder / "key"
    login = key.with_suffix(".pub").read_text().strip()
    try:
        addresses = [machines.boot(name, hostname=name, ssh_public_key=login) for name in NAMES]
        for name in NAMES:
            machines.wait(name)
        public, private = (list(each) for each in zip(*addresses, strict=True))
        return way(Pair(machines=machines, public=public, private=private, key=key))
    finally:
        for name in NAMES:
            machines.destroy(name)


def _up(pair: Pair) -> float:
    hosts = [
        {
            "address": public,
            "user": USER,
            "hostKey": " ".join(pair.machines.path(name, HOST_KEY).read_text().split()[:2]),
            "privateAddress": private,
        }
        for name, public, private in zip(NAMES, pair.public, pair.private, strict=True)
    ]
    settings = {"hosts": hosts, "sshKeyFile": str(pair.key), "stateDir": "", "dataDir": ""}
    with scratch_stack("auto", **settings) as stack:
        begun = time.perf_counter()
        stack.engine("up", "--yes")
        outputs = stack.outputs()
        pair.await_nodes(outputs["dashboardUrl"], outputs["rayToken"])
        return time.perf_counter() - begun


def _ray_up(pair: Pair) -> float:
    # The launcher's own state is of one cluster; its SSH must not ask this user's agent.
    kept = {name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}
    with tempfile.TemporaryDirectory(prefix="ty-bench-") as name:
        file = Path(name) / "cluster.yaml"
        file.write_text(yaml.safe_dump(_cluster(pair)))
        command: list[str | Path] = [
            ROOT / ".venv/bin/ray",
            "up",
            "--yes",
            "--no-config-cache",
            file,
        ]
        more = {"RAY_TMPDIR": name, "RAY_USAGE_STATS_ENABLED": "0", "TERM": "dumb"}
        begun = time.perf_counter()
        measure.run(command, env=kept | more)
        pair.await_nodes(DASHBOARD)
        return time.perf_counter() - begun


def _cluster(pair: Pair) -> dict[str, Any]:
    """Return a cluster file of `ray up`."""
    head, worker = pair.private
    scaling = f"--autoscaling-config={HOME}/ray_bootstrap_config.yaml"
    # Ray 2.60's newer autoscaler never starts a worker of this provider.
    start = f"RAY_enable_autoscaler_v2=0 {RAY} start --disable-usage-stats"
    return {
        "cluster_name": "bench",
        "provider": {
            "type": "local",
            "head_ip": head,
            "external_head_ip": pair.public[0],
            "worker_ips": [worker],
        },
        "auth": {"ssh_user": USER, "ssh_private_key": str(pair.key)},
        "min_workers": 1,
        "max_workers": 1,
        "file_mounts": {
            f"{HOME}/{name}.txt": str(ROOT / "requirements" / f"{name}.txt")
            for name in ("setup", "host")
        },
        "setup_commands": INSTALL.splitlines(),
        "head_start_ray_commands": [
            f"{start} --head --port={PORT} --node-ip-address={head} {scaling}"
        ],
        "worker_start_ray_commands": [
            f"{start} --address={head}:{PORT} --node-ip-address={worker}"
        ],
    }


def _alive(said: str) -> set[str]:
    """Return the addresses of the living nodes in the dashboard's answer."""
    try:
        nodes = json.loads(said)["data"]["result"]["result"]
    except (ValueError, KeyError, TypeError):
        return set()
    return {node["node_ip"] for node in nodes if node["state"] == "ALIVE"}
