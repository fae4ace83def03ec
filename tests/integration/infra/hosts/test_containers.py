"""A whole stack of containers on the Docker Engine of another machine, reached by SSH."""

import json
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.machines import docker_engine
from tests import ran
from tests.fakes.machines import Machines, images
from tests.fakes.sshd import BINARY, Sshd
from tests.integration.training import tiny
from tests.waiting import wait_for
from trainyard.access import ssh_run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[4]
NAME = "engine"
BUILT = ("jupyter", "ray")  # there, from what is linked
NAMED = ("grafana", "prometheus", "versitygw")
SERVICES = {"grafana", "jupyter", "prometheus", "ray-head", "ray-worker-0", "versitygw"}
TIMER = "~ubuntu/.trainyard/trainyard-test/ending.py"
LEFT = "docker ps --all --quiet; docker network ls --quiet --filter type=custom; docker volume ls"


@pytest.fixture(scope="module")
def host(guests, boot_host) -> Iterator[dict[str, Any]]:
    """A machine with a Docker Engine that has the images of this machine's."""
    if not docker_engine.answers():
        pytest.skip("no Docker Engine answers, which makes the images")
    images.build(*BUILT, *NAMED)
    host = boot_host(NAME, docker=True)
    images.give(guests, NAME, *BUILT, *NAMED)
    yield host
    guests.destroy(NAME)


@pytest.fixture(scope="module")
def there(host, guests, declare_on_hosts, pulumi_cli) -> Iterator[Any]:
    stack = declare_on_hosts(
        [host],
        runtime="docker",
        notebook=True,
        images={program: images.name(program) for program in NAMED},
        buildArgs={"BASE_IMAGE": images.name("base")},
        worker={"cpus": 2},
        keepData=False,
        copied=True,
        cli=pulumi_cli,
    )
    said = stack.engine("preview", check=False)
    assert (
        "may not be used by this user: run there `sudo usermod -aG docker ubuntu`"
        in said.stdout + said.stderr
    )
    guests.exec(NAME, "usermod -aG docker ubuntu")
    stack.engine("up", "--yes")
    yield stack
    # Killed in between, the next one goes on.
    command = [stack.python, "-m", "engine", "destroy", "--yes", "-s", "test"]
    with subprocess.Popen(
        command, cwd=stack.project, env=stack.environment, stdout=subprocess.PIPE, text=True
    ) as ending:
        assert ending.stdout is not None
        assert any("Container" in line and "delete done" in line for line in ending.stdout)
        ending.kill()
    stack.engine("refresh", "--yes")
    stack.pulumi("destroy", "--yes")
    assert guests.exec(NAME, LEFT).stdout.split() == ["DRIVER", "VOLUME", "NAME"]
    timer = "ls -d ~ubuntu/.trainyard; pgrep -f 'ending[.]py wait'"
    assert guests.exec(NAME, timer, check=False).stdout == ""


def _containers(guests: Machines) -> dict[str, str]:
    """States of the containers there, by name."""
    lines = guests.exec(NAME, "docker ps --all --format '{{.Names}} {{.State}}'").stdout
    return dict(line.split() for line in lines.splitlines())


def test_all_services_are_containers_there(there, guests):  # A27
    assert _containers(guests) == dict.fromkeys(SERVICES, "running")


def test_a_job_trains_there(there, tmp_path):  # A27
    said = ran.output(
        [
            *(sys.executable, "-m", "trainyard.client", "submit", tiny.__file__, "--name", "there"),
            *("--outputs", there.write_outputs(tmp_path), "--working-dir", ROOT),
            *("--", "--epochs", "1"),
        ],
        env=there.environment,
        timeout=300,
    )
    assert "Training completed after 1 epochs" in said


def test_a_second_up_and_a_refresh_change_nothing(there):
    there.engine("up", "--yes", "--refresh", "--expect-no-changes")
    there.pulumi("preview", "--expect-no-changes")
    there.pulumi("refresh", "--yes", "--expect-no-changes")


def test_a_second_clone_is_refused_and_harms_nothing(there, host, guests, declare_on_hosts):
    kept = ("runtime", "images", "buildArgs", "prometheusPort")
    clone = declare_on_hosts([host], **{key: there.settings[key] for key in kept})
    said = clone.engine("up", "--yes", check=False)
    address = f"on ubuntu@{host['address']}: "
    name = "a container ray-head is there already (made by stack test of trainyard)"
    assert f"{address}{name}" in said.stdout + said.stderr
    port = f"port {there.settings['prometheusPort']} (prometheusPort) is published by container"
    assert f"{address}{port}" in said.stdout + said.stderr
    clone.engine("destroy", "--yes")
    assert _containers(guests) == dict.fromkeys(SERVICES, "running")


def test_a_stopped_container_is_drift_and_is_started_again(there, guests):
    assert there.drift().returncode == 0
    guests.exec(NAME, "docker stop --time 0 prometheus")
    done = there.drift("--json")
    found = {each["name"]: each["found"] for each in json.loads(done.stdout)["findings"]}
    assert (done.returncode, found) == (2, {"hosts-prometheus": "stopped"})
    there.engine("up", "--yes", "--refresh")
    assert _containers(guests) == dict.fromkeys(SERVICES, "running")


def test_they_end_by_a_timer_there_and_run_again_when_the_reservation_is_extended(  # D3
    there, guests
):
    def reserve(seconds: float, *options: str) -> Any:
        now = datetime.now(UTC)
        times = {"start": now, "end": now + timedelta(seconds=seconds)}
        texts = {key: f"{time:%Y-%m-%dT%H:%M:%SZ}" for key, time in times.items()}
        there.change(reservation=texts, drainSeconds=5)
        there.engine("up", "--yes", *options)
        return times["end"]

    def started() -> str:
        nodes = "ray-head ray-worker-0"
        return guests.exec(
            NAME, f"docker inspect --format '{{{{.State.StartedAt}}}}' {nodes}"
        ).stdout

    def notices() -> list[str]:
        listed = guests.exec(NAME, "docker exec jupyter ls /var/lib/trainyard/workspace").stdout
        return [name for name in listed.split() if name.startswith("reservation-")]

    before = started()
    reserve(7200)
    guests.exec(NAME, "pkill -9 -f 'ending[.]py wait'")
    found = json.loads(there.drift("--json").stdout)["findings"]
    ((name, end),) = [(each["name"], each["found"]) for each in found]
    assert (name, end.partition(": ")[2]) == ("hosts-deadline", "the reservation's timer is gone")
    end = reserve(75, "--refresh")
    named = f"reservation-ends-{end:%Y-%m-%d-%H%M}-UTC.txt"
    wait_for("the notice", lambda: notices() == [named], 30)
    assert started() == before, "a reservation restarts no Ray node"

    # Nobody is logged in.
    wait_for("the end", lambda: {*_containers(guests).values()} == {"exited"}, 150)
    said = guests.exec(NAME, f"cat {TIMER}.log").stdout
    assert "runs store a checkpoint and leave, for at most 5 s" in said
    assert "could not be drained" not in said
    late = there.engine("up", "--yes", check=False)
    assert late.returncode == 1
    assert "set reservation.end to the new end" in late.stdout + late.stderr
    reserve(7200)
    healthy = "docker ps --filter health=healthy --format '{{.Names}}'"
    # Docker's own look may come later than that of `up`.
    wait_for("health", lambda: {*guests.exec(NAME, healthy).stdout.split()} == SERVICES, 60)
    there.engine("up", "--yes", "--refresh", "--expect-no-changes")


def _asked(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        return client.recv(100)


def test_a_socket_there_is_one_here_again_after_a_lost_connection(tmp_path):  # A27
    if not BINARY:
        pytest.skip("no sshd")
    with Sshd(tmp_path) as sshd, socket.socket(socket.AF_UNIX) as served:
        host = sshd.connection()
        served.bind(path := str(tmp_path / "served"))
        served.listen()

        def answer() -> None:
            for _ in range(2):
                with served.accept()[0] as client:
                    client.sendall(b"an answer")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        here = ssh_run.socket(host, path)
        assert stat.S_IMODE(Path(here).parent.stat().st_mode) == 0o700
        assert _asked(here) == b"an answer"
        assert ssh_run.socket(host, path) == here
        sshd.cut()
        deadline = time.monotonic() + 30
        while (again := ssh_run.socket(host, path)) == here:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert _asked(again) == b"an answer"
        thread.join()
