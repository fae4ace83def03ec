"""P4: 8 instances on a fake Lambda Cloud; P12: an `up` killed on the way, and the next one.

The cloud lets in one launch a second (12 s on the real one; all bounds are scaled alike), and an
instance boots for 5 s. The plain way of P4 launches at that pace and asks for all instances until
they are active: no tool can be faster than the last launch's turn and one boot. The plain way of
P12 is a cold `up` of the same stack.
"""

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

from bench import measure
from bench.form import Form
from bench.measure import ROOT, FailedError, Ratio, in_turn
from bench.scratch import PASSPHRASE
from infra.machines import keys
from infra.places.lambda_cloud.pacing import Pace, PacedClient

INSTANCES = 8
ROUNDS = 3
SCALE = 1 / 12  # of the bounds: a launch a second
BOOT_SECONDS = 5.0
PLACE = ("gpu_1x_a10", "us-east-1")


def run(form: Form) -> list[Ratio]:
    """Return both ratios."""
    count = form.pick(INSTANCES, 2)
    boot = form.pick(BOOT_SECONDS, 0.5)
    with _cloud(boot) as cloud, _stack(cloud, count) as stack:
        up, launched, recovered = in_turn(
            form.rounds(ROUNDS), stack.up, lambda: _launch_and_wait(cloud, count), stack.recover
        )
    return [
        Ratio(name="P4 rented machines", ours=up, plain=launched, unit="s", goal=1.3),
        Ratio(name="P12 recovery", ours=recovered, plain=up, unit="s", goal=1.3),
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

    def __init__(self, folder: Path, cloud: _Cloud, count: int) -> None:
        self._cloud = cloud
        self._count = count
        self._project = folder / "project"
        shutil.copytree(ROOT / "tests" / "projects" / "lambda", self._project)
        config = {
            "keyFile": str(folder / "key.pem"),
            "count": count,
            "candidates": [dict(zip(("type", "region"), PLACE, strict=True))],
        }
        (self._project / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
        self._environment = os.environ | cloud.environment
        self._environment |= {
            "PULUMI_BACKEND_URL": f"file://{folder}/backend",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }

    def up(self) -> float:
        """Return the seconds of a cold `up`."""
        took = self._run("up")
        self.destroy()
        return took

    def recover(self) -> float:
        """Return the seconds of the `up` after one that was killed with half of them launched."""
        before = self._launches()
        process = subprocess.Popen(
            self._command("up"),
            cwd=self._project,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while self._launches() < before + self._count // 2:
            if process.poll() is not None:
                raise FailedError("the up to be killed had already ended")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        took = self._run("up")
        if (there := len(self._cloud.look("instances"))) != self._count:
            raise FailedError(f"{there} instances after the recovery, not {self._count}")
        self.destroy()
        return took

    def destroy(self) -> None:
        """End all; a leak is a failure."""
        self._run("destroy")
        if left := self._cloud.look("instances"):
            raise FailedError(f"{len(left)} instances are left")

    def _launches(self) -> int:
        return sum(entry["operation"] == "launch" for entry in self._cloud.look("journal"))

    def _run(self, command: str) -> float:
        options = {"cwd": self._project, "env": self._environment}
        return measure.run(self._command(command), **options).seconds

    def _command(self, command: str) -> list[str]:
        return [sys.executable, "-m", "engine", command, "--yes"]


@contextlib.contextmanager
def _cloud(boot_seconds: float) -> Iterator[_Cloud]:
    options = ["--pace", str(SCALE), "--boot-seconds", str(boot_seconds)]
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
def _stack(cloud: _Cloud, count: int) -> Iterator[_Stack]:
    folder = Path(tempfile.mkdtemp(prefix="ty-bench-"))
    try:
        yield _Stack(folder, cloud, count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _launch_and_wait(cloud: _Cloud, count: int) -> float:
    """Return the seconds of launching and asking, without the key and the instances' end."""
    account = cloud.environment["LAMBDA_API_KEY"], cloud.url
    api = PacedClient(*account, sleep=time.sleep, pace=Pace(scale=SCALE))
    key = api.add_ssh_key("plain", keys.generate().public)
    type_, region = PLACE
    begun = time.perf_counter()
    ids = [
        api.launch(
            {
                "region_name": region,
                "instance_type_name": type_,
                "ssh_key_names": [key.name],
                "name": f"plain-{node}",
            }
        )
        for node in range(count)
    ]
    while any(machine.status != "active" for machine in api.instances()):
        pass  # each request waits for its turn
    took = time.perf_counter() - begun
    for id_ in ids:
        api.terminate(id_)
    while api.instances():
        pass
    api.delete_ssh_key(key.id)
    return took
