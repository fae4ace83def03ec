"""P4: 8 instances on a fake Lambda Cloud; P12: an `up` killed on the way, and the next one.

The cloud lets in one launch a second (12 s on the real one; all bounds are scaled alike), and an
instance boots for 5 s. The plain way of P4 launches at that pace and asks for all instances until
they are active: no tool can be faster than the last launch's turn and one boot. The plain way of
P12 is a cold `up` of the same stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.measure import Ratio, in_turn, seconds
from bench.scratch import PASSPHRASE, ROOT
from infra.hosts.lambda_cloud.client import Client, Network
from infra.hosts.lambda_cloud.model import LaunchRequest
from infra.hosts.lambda_cloud.pacing import Pace, PacedTransport

INSTANCES = 8
ROUNDS = 3
SCALE = 1 / 12  # of the bounds: a launch a second
BOOT_SECONDS = 5.0
KILL_AT = INSTANCES // 2  # launches after which an `up` is killed
PLACE = ("gpu_1x_a10", "us-east-1")


def run() -> list[Ratio]:
    """Both ratios."""
    with _cloud() as cloud, _stack(cloud) as stack:
        begun = in_turn(ROUNDS, stack.up, lambda: _launch_and_wait(cloud))
        killed = in_turn(ROUNDS, stack.recover, stack.up)
    return [
        Ratio(name="P4 8 instances", ours=begun[0], plain=begun[1], unit="s", goal=1.3),
        Ratio(name="P12 recovery", ours=killed[0], plain=killed[1], unit="s", goal=1.3),
    ]


class _Cloud:
    """The fake cloud's process.

    Attributes:
        environment: with which a program uses it.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 Popen was given PIPE
        lines = [process.stdout.readline().strip() for _ in range(3)]
        self.environment = dict(line.split("=", 1) for line in lines)
        self.url = self.environment["LAMBDA_API_URL"]

    def look(self, what: str) -> Any:
        """Return its journal or its instances, without a request of the API."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/_fake/{what}", timeout=10) as answer:
            return json.load(answer)


class _Stack:
    """A stack of tests/projects/lambda."""

    def __init__(self, folder: Path, cloud: _Cloud) -> None:
        self._cloud = cloud
        self._project = folder / "project"
        shutil.copytree(ROOT / "tests" / "projects" / "lambda", self._project)
        config = {
            "keyFile": str(folder / "key.pem"),
            "count": INSTANCES,
            "candidates": [dict(zip(("type", "region"), PLACE, strict=True))],
        }
        (self._project / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
        self._environment = os.environ | cloud.environment
        self._environment |= {
            "PULUMI_BACKEND_URL": f"file://{folder}/backend",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }

    def up(self) -> float:
        """Seconds of a cold `up`."""
        took = self._run("up")
        self.destroy()
        return took

    def recover(self) -> float:
        """Seconds of the `up` after one that was killed half-way."""
        before = self._launches()
        process = subprocess.Popen(
            self._command("up"),
            cwd=self._project,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while self._launches() < before + KILL_AT:
            if process.poll() is not None:
                raise RuntimeError("the up to be killed ended by itself")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        took = self._run("up")
        if (there := len(self._cloud.look("instances"))) != INSTANCES:
            raise RuntimeError(f"{there} instances after the recovery, not {INSTANCES}")
        self.destroy()
        return took

    def destroy(self) -> None:
        """End all; a leak is a failure."""
        self._run("destroy")
        if left := self._cloud.look("instances"):
            raise RuntimeError(f"{len(left)} instances are left")

    def _launches(self) -> int:
        return sum(entry["operation"] == "launch" for entry in self._cloud.look("journal"))

    def _run(self, command: str) -> float:
        return seconds(self._command(command), cwd=self._project, env=self._environment)

    def _command(self, command: str) -> list[str]:
        return [sys.executable, "-m", "engine", command, "--yes"]


@contextlib.contextmanager
def _cloud() -> Iterator[_Cloud]:
    options = ["--pace", str(SCALE), "--boot-seconds", str(BOOT_SECONDS)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.lambda_cloud", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield _Cloud(process)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def _stack(cloud: _Cloud) -> Iterator[_Stack]:
    folder = Path(tempfile.mkdtemp(prefix="ty-bench-"))
    try:
        yield _Stack(folder, cloud)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launch_and_wait(cloud: _Cloud) -> float:
    """Seconds of launching and asking alone; the key is there, and the instances end afterwards."""
    transport = PacedTransport(Network(cloud.url), Pace(scale=SCALE))
    api = Client(cloud.environment["LAMBDA_API_KEY"], cloud.url, transport)
    key = api.add_ssh_key("plain")
    type_, region = PLACE
    begun = time.perf_counter()
    ids = [
        api.launch(
            LaunchRequest(
                region=region, instance_type=type_, ssh_key_name=key.name, name=f"plain-{node}"
            )
        )
        for node in range(INSTANCES)
    ]
    while any(machine.status != "active" for machine in api.instances()):
        pass  # each request waits for its turn
    took = time.perf_counter() - begun
    api.terminate(ids)
    while api.instances():
        pass
    api.delete_ssh_key(key.id)
    api.close()
    return took
