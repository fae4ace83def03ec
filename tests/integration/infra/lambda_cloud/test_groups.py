"""Instances that come with the queue and go with it, on the fake cloud with its machines.

`infra.operate.scale` runs as users run it: on this machine, while jobs run on the rented head.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.operate.requested import VARIABLE
from tests import pages, quick, ran
from tests.fakes.lambda_cloud import FakeCloud
from tests.fakes.machines import Machines
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

GROWS, MEETS = pages.read_by(__file__)
UP, SCALE = (["make", *words[:-1], "STACK=test"] for words in GROWS.of("make"))
(ONCE,) = MEETS.of("train")
IDLE_SECONDS = 12
HEAD = "trainyard-test-teacher-0"
SECONDS = 250  # for an instance to boot, be set up and join, on a busy machine
TRAIN = str(Path(sys.executable).parent / "train")
# All nodes at once: each task stays until as many nodes as tasks have joined.
JOB = """\
import ray, time
ray.init()
@ray.remote(num_cpus=1, resources={"extra": 1})
def work():
    while sum(node["Alive"] and "extra" in node["Resources"] for node in ray.nodes()) < COUNT:
        time.sleep(0.5)
    time.sleep(3)
    return ray.util.get_node_ip_address()
print("on", len(set(ray.get([work.remote() for _ in range(COUNT)]))), "nodes")
"""


@dataclass
class Growing:
    """A stack with a group that grows, and the account's view of it."""

    stack: Any
    cloud: FakeCloud
    guests: Machines
    base: Path
    scalers: list[subprocess.Popen[str]] = field(default_factory=list)

    def names(self) -> list[str]:
        """Names of the living instances."""
        self.cloud.account.settle()
        ended = ("terminating", "terminated")
        found = [i for i in self.cloud.account.instances.values() if i.status not in ended]
        return sorted(each.name for each in found)

    def launches(self) -> int:
        return len(self.cloud.journal.of("launch"))

    def scale(self) -> subprocess.Popen[str]:
        """Start the command; its output goes to a file."""
        log = (self.base / "scale.log").open("a")
        process = subprocess.Popen(
            SCALE,
            cwd=self.stack.project,
            env=self.stack.environment | {"PYTHONUNBUFFERED": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        log.close()
        self.scalers.append(process)
        return process

    def said(self) -> str:
        return (self.base / "scale.log").read_text()

    def stop(self) -> None:
        for process in self.scalers:
            family = _family(process)
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                for each in family:
                    each.kill()
                process.wait()

    def submit(self, count: int) -> subprocess.Popen[str]:
        script = self.base / f"job{count}.py"
        script.write_text(JOB.replace("COUNT", str(count)))
        return subprocess.Popen(
            [TRAIN, "submit", str(script), "--outputs", str(self.base / "outputs.json")],
            env=self.stack.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return []


@pytest.fixture(scope="module", autouse=True)
def _as_users_have_it() -> Iterator[None]:
    """The command's children derive keys as the pulumi CLI does, so all processes do here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick, "ROUNDS", quick.PULUMIS)
        yield


@pytest.fixture(scope="module")
def growing(guests, declare) -> Iterator[Growing]:
    base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
    with FakeCloud(machines=guests) as cloud:
        stack = declare(
            base,
            copied=True,
            stateDir="",
            dataDir="",
            owner="teacher",
            startTimeoutSeconds=300,
            sshKeyFile=str(base / "keys" / "group.pem"),
            allowedCidrs=["192.0.2.0/24"],
            nodeGroups=[
                {
                    "name": "gpu",
                    "max": 2,
                    "idleMinutes": IDLE_SECONDS / 60,
                    "cpus": 1,
                    "gpus": 0,
                    "resources": {"extra": 1},
                }
            ],
            lambdaCloud={
                "candidates": [{"type": "gpu_1x_a10", "region": "us-east-1"}],
                "sshKeyName": "group",
                "ttlHours": 8,
                "budget": 20,
            },
        )
        stack.environment.pop("SSH_AUTH_SOCK", None)
        stack.environment.update(cloud.environment() | {"TRAINYARD_LAMBDA_PACE": "0.05"})
        found = Growing(stack, cloud, guests, base)
        try:
            preview = stack.engine("preview").stderr
            assert (
                "1 to 3 x gpu_1x_a10 in us-east-1: 0.75 to 2.25 $/h, at most 18.00 $ for the "
                "stack's 8 h (budget 20 $)" in preview
            )
            subprocess.run(UP, cwd=stack.project, env=stack.environment, check=True)
            stack.write_outputs(base)
            yield found
        finally:
            found.stop()
            for identifier in list(cloud.account.instances):
                guests.destroy(identifier)
            shutil.rmtree(base, ignore_errors=True)


def _kill(process: subprocess.Popen[str]) -> None:
    for each in _family(process):
        each.kill()
    process.wait()


def test_instances_come_with_the_queue_and_go_with_it(growing):  # B1 B4 F2
    assert growing.names() == [HEAD]
    first = growing.scale()
    job = growing.submit(2)
    wait_for("a launch", lambda: growing.launches() > 1, SECONDS)
    _kill(first)  # and the `up` that it runs, in the middle of it
    scaler = growing.scale()
    text, _ = job.communicate(timeout=2 * SECONDS)
    assert "on 2 nodes" in text, text + growing.said()
    wait_for("the end of both", lambda: growing.names() == [HEAD], SECONDS)
    assert growing.launches() == 3, growing.said()  # nothing twice
    # And the `up` that ended them is over: until then the stack is locked.
    wait_for(
        "the request", lambda: "as requested: 0 of" in growing.said().splitlines()[-1], SECONDS
    )
    # The group's leftovers are not drift, and give a user's own `up` nothing to do.
    growing.stack.engine("up", "--yes", "--expect-no-changes")
    assert growing.launches() == 3
    os.killpg(scaler.pid, signal.SIGINT)  # as a terminal does it
    scaler.wait(60)
    assert "stopped" in growing.said().splitlines()[-1]
    once = ran.run(
        [str(Path(growing.stack.python).with_name("train")), *ONCE, "-s", "test"],
        cwd=growing.stack.project,
        env=growing.stack.environment,
    )
    assert once.returncode == 0, once.stdout + once.stderr
    assert "as requested: 0 of" in once.stdout


def test_destroy_ends_what_was_begun_and_needs_no_head(growing):  # B1
    launches = growing.launches()
    up = subprocess.Popen(
        [growing.stack.python, "-P", "-m", "engine", "up", "--yes", "-s", "test"],
        cwd=growing.stack.project,
        env=growing.stack.environment | {VARIABLE: "ray-worker-1,ray-worker-2"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wait_for("a launch", lambda: growing.launches() > launches, SECONDS)
    _kill(up)
    account = growing.cloud.account
    (head,) = [each for each in account.instances.values() if each.name == HEAD]
    account.disappear(head.id)
    growing.guests.destroy(head.id)
    assert growing.names()
    growing.stack.engine("destroy", "--yes")
    assert growing.names() == []
    assert not account.ssh_keys
    assert not account.rulesets
    assert growing.cloud.journal.problems == []
