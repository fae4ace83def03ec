"""Ray's own launcher on hosts that the stack made ready: `ray up`, `ray dashboard`, `ray down`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import pages
from tests.fakes.machines import Machines

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
(PAGE,) = pages.read_by(__file__)
UP, DASHBOARD, DOWN = PAGE.of("ray")
HOSTS = ("launched-a", "launched-b")
BIN = Path(sys.executable).parent


@pytest.fixture(scope="module")
def prepared(
    guests: Machines,
    boot_host: Callable[..., Any],
    declare_on_hosts: Callable[..., Any],
) -> Iterator[Any]:
    for program in ("ssh", "rsync"):
        if not shutil.which(program):
            pytest.skip(f"`ray up` needs {program} on PATH")
    stack = declare_on_hosts(
        [boot_host(name) for name in HOSTS], startRay=False, objectStore="auto", keepData=False
    )
    try:
        stack.engine("up", "--yes")
        yield stack
        stack.engine("destroy", "--yes")
        for name in HOSTS:
            assert guests.exec(name, "pgrep -u ubuntu -f raylet || true").stdout == ""
    finally:
        for name in HOSTS:
            guests.destroy(name)


@pytest.fixture(scope="module")
def cluster_file(prepared: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launcher")
    outputs = folder / "outputs.json"
    outputs.write_text(json.dumps(prepared.outputs()))
    outputs.chmod(0o600)
    path = folder / UP[-1]
    (command,) = [words for words in PAGE.of("train") if words[0] == "cluster-file"]
    done = subprocess.run(
        [BIN / "train", *command, "--outputs", outputs],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"Generating ray config file {path.name} using IP from ray-head instance" in done.stdout
    return path  # A22, A23


def ray(prepared: Any, folder: Path, *arguments: str) -> str:
    environment = {**prepared.environment, "TERM": "dumb", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [BIN / "ray", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_file_names_the_hosts_and_the_key(prepared: Any, cluster_file: Path) -> None:  # A24
    found = yaml.safe_load(cluster_file.read_text())
    first, second = prepared.settings["hosts"]
    assert found["provider"] == {
        "type": "local",
        "head_ip": first["address"],
        "worker_ips": [second["privateAddress"]],
    }
    assert found["auth"] == {
        "ssh_user": "ubuntu",
        "ssh_private_key": prepared.settings["sshKeyFile"],
    }
    assert prepared.outputs()["rayToken"] not in cluster_file.read_text()
    assert "--disable-usage-stats" in str(found)  # A28


def test_up_dashboard_and_down(
    prepared: Any, cluster_file: Path, guests: Machines, wait_for: Callable[..., Any]
) -> None:  # A25, A26, A29, A42
    port = prepared.settings["dashboardPort"]
    said = ray(prepared, cluster_file.parent, *UP, "--no-config-cache")
    for text in ("Acquiring an up-to-date head node", "Ray runtime started", "Next steps"):
        assert text in said
    try:
        forward = subprocess.Popen(
            [BIN / "ray", *DASHBOARD, f"--port={port}", f"--remote-port={port}"],
            cwd=cluster_file.parent,
            env=prepared.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        token = prepared.outputs()["rayToken"]
        try:
            # The launcher starts workers some time after the head.
            wait_for(lambda: living(port, token) == 2, 120)
            with pytest.raises(urllib.error.HTTPError, match="403"):
                living(port, "0" * 64)  # F34
        finally:
            os.killpg(forward.pid, signal.SIGTERM)
            forward.wait()
    finally:
        said = ray(prepared, cluster_file.parent, *DOWN)
    assert "Fetched IP" in said
    assert "No nodes remaining" in said
    head = guests.exec(HOSTS[0], "pgrep -u ubuntu -f raylet || true").stdout
    assert head == ""


def living(port: int, token: str) -> int:
    """Return the number of living nodes, 0 while nothing answers yet."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v0/nodes",
        headers={"Authorization": f"Bearer {token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            nodes = json.load(answer)["data"]["result"]["result"]
    except urllib.error.HTTPError:
        raise
    except OSError:
        return 0
    return sum(node["state"] == "ALIVE" for node in nodes)
