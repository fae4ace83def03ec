"""A user's own project, on a box: a real sshd, and a Ray that we did not start."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import yaml

from tests import own_project, pages, pip_index
from tests.fakes import sshd as fake
from tests.fakes.sshd import Sshd
from tests.integration.training.conftest import FOREIGN
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.skipif(fake.BINARY is None, reason="sshd is not installed (openssh-server)"),
]

COMMANDS, ON_A_STACK = pages.read_by(__file__)
*_, FIRST = COMMANDS.of("python")
Train = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def box(folder) -> Iterator[Sshd]:
    """An SSH server whose user has another home folder than this machine's."""
    for name in ("keys", "box", "here/.ssh"):
        (folder / name).mkdir(parents=True)
    with Sshd(folder / "keys", f"SetEnv HOME={folder / 'box'}") as server:
        known = f"[{server.host}]:{server.port} {server.host_key}\n"
        (folder / "here/.ssh/known_hosts").write_text(known)
        yield server


@pytest.fixture(scope="module")
def train(folder, box, cluster) -> Train:
    """Starts a script of a fresh project as its user does."""
    project = folder / "here" / "project"
    own_project.write(project)
    (project / "requirements.txt").write_text("nobody-has-this-package==1.0\n")
    file = project / "config/ray_config.yaml"
    values = yaml.safe_load(file.read_text())
    values["driver"]["private_key_file"] = str(box.key_file)
    values["ray_head"] = {
        "hostname_or_ip_address": box.host,
        "client_server_port": cluster.client_port,
    }
    values["worker"] |= {
        "user": box.user,
        "hostname_or_ip_address": box.host,
        "ssh_port": box.port,
        "base_dir": "~/base",
        "setup_commands": ["grep -q nobody-has requirements.txt", "echo ready > done"],
    }
    file.write_text(yaml.safe_dump(values))
    env = {k: v for k, v in os.environ.items() if not k.startswith((*FOREIGN, "SSH_"))}
    env |= {k: cluster.ray_env[k] for k in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")}
    env |= {"HOME": str(folder / "here"), "PYTHONUNBUFFERED": "1"}
    # Ray's client and its server wait so long for each other; by default 30 s.
    env["RAY_CLIENT_RECONNECT_GRACE_PERIOD"] = "2"

    def start(script: str, *arguments: str, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, script, *arguments],
            cwd=project,
            env=env | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


def output(process: subprocess.Popen[str], code: int = 0) -> str:
    """What a script printed, once it has ended with a code."""
    try:
        said, _ = process.communicate(timeout=280)
    finally:
        process.kill()
    assert process.returncode == code, said
    return said


TUNE = """
import tempfile
from pathlib import Path

import config
import ray.tune
from trainyard.quickstart import Tuner, initialize_ray_with_syncer, one_message
from ray.tune import Checkpoint, RunConfig


def trial(settings):
    if settings["rate"] > 1:
        raise ValueError("too fast")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "state").write_text(str(settings["rate"]))
        ray.tune.report(
            {"loss": 1 - settings["rate"]}, checkpoint=Checkpoint.from_directory(folder)
        )


with one_message():
    syncer = initialize_ray_with_syncer(
        config.PROJECT, config.PROJECT / "src", config.RAY_CONFIG, config.RESULTS
    )
    rates = {"rate": ray.tune.grid_search([0.25, 0.5, 2])}
    trials = Tuner(trial, param_space=rates, run_config=RunConfig(name="search")).fit(syncer)
    for each in trials:
        learned = (each.checkpoint / "state").read_text() if each.checkpoint else ""
        print("trial", learned, each.metrics.get("loss"), "too fast" in each.fault)
"""


def test_a_search_runs_there_and_its_trials_come_home(folder, train):  # F59
    source = folder / "here/project/src"
    (source / "search.py").write_text(TUNE)
    (source / "round").symlink_to(source)
    os.mkfifo(source / "pipe")
    said = output(train("src/search.py"))
    for line in ("trial 0.25 0.75 False", "trial 0.5 0.5 False", "trial  None True"):
        assert line in said


LONG = """
import sys
import tempfile
import time
from pathlib import Path

import config
import ray.train
from trainyard.quickstart import TorchTrainer, initialize_ray_with_syncer, one_message
from ray.train import Checkpoint, RunConfig


def loop():
    for epoch in range(2):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "began").write_text(str(began))
            ray.train.report({"epoch": epoch}, checkpoint=Checkpoint.from_directory(folder))
        while not Path(GATE).exists():
            time.sleep(0.1)


began = time.time()
with one_message():
    syncer = initialize_ray_with_syncer(
        config.PROJECT, config.PROJECT / "src", config.RAY_CONFIG, config.RESULTS
    )
    result = TorchTrainer(loop, run_config=RunConfig(name=sys.argv[1])).fit(syncer)
    print("epoch", result.metrics["epoch"], "began", (result.checkpoint / "began").read_text())
"""


def test_a_lost_connection_does_not_end_a_training_and_ctrl_c_does(  # C13
    folder, box, train, cluster
):
    gate = folder / "gate"
    (folder / "here/project/src/long.py").write_text(LONG.replace("GATE", repr(str(gate))))

    def began(run: str) -> str:
        place = folder / "box/ray-results" / run
        return next((path.read_text() for path in place.rglob("began")), "")

    def actors(run: str) -> list[str]:
        found = cluster.api("/api/v0/actors?limit=1000")["data"]["result"]["result"]
        alive = [actor["name"] for actor in found if actor["state"] == "ALIVE"]
        return [name for name in alive if name.endswith(f"/{run}")]

    def drivers() -> list[str]:
        found = cluster.api("/api/jobs/")
        return [job["status"] for job in found if job["type"] == "DRIVER"]

    def training(run: str) -> subprocess.Popen[str]:
        process = train("src/long.py", run)
        with suppress(TimeoutError):
            wait_for("a checkpoint", lambda: began(run) or process.poll() is not None, 120)
        if not began(run):
            process.kill()
            pytest.fail(f"run {run} has no checkpoint: {process.communicate()[0]}")
        return process

    first = training("long")
    time_of_first = began("long")
    assert box.cut()
    assert "What trains there goes on: start long again to collect it" in output(first, 1)
    # Ray has forgotten the client, and does not end the training with it.
    wait_for("the end of the client's driver", lambda: "RUNNING" not in drivers(), 60)
    assert actors("long")
    gate.touch()
    said = output(train("src/long.py", "long"))
    assert "long is on the box already: this start waits for it" in said
    assert f"epoch 1 began {time_of_first}" in said
    assert not actors("long")

    gate.unlink()
    stopped = training("stopped")
    stopped.send_signal(signal.SIGINT)
    assert "stopped is ended on the box" in output(stopped, 130)
    wait_for("the end of the training", lambda: not actors("stopped"))


def test_a_fresh_project_trains_on_a_ray_that_is_there(  # C2, C5, C6, C11 to C15, C17 to C19
    folder, box, train, cluster
):
    own = len(cluster.outputs["nodes"])
    # Ray takes a while to miss the node that another test had added.
    wait_for("the cluster's own nodes only", lambda: len(cluster.alive()) == own)
    nodes = cluster.alive()
    old = folder / "box/ray-results/first/old"
    old.parent.mkdir(parents=True)
    old.touch()
    said = output(train(*FIRST))
    assert not old.exists()  # C4
    assert (folder / "box/base/done").read_text() == "ready\n"  # C3
    here, there = (folder / name / "ray-results/first" for name in ("here", "box"))
    for path in there.rglob("*"):
        if path.is_file():
            assert (here / path.relative_to(there)).read_bytes() == path.read_bytes()
    checkpoint = said.strip().splitlines()[-1].partition("checkpoint ")[2]
    assert here in Path(checkpoint).parents
    state = torch.load(Path(checkpoint, "state.pt"), weights_only=True)
    assert state["epoch"] == 1
    key = box.key_file.read_text().splitlines()[1].encode()
    for place in (folder / "box", cluster.folder):
        for path in place.rglob("*"):
            if path.is_file():
                assert key not in path.read_bytes(), path  # C18
    assert cluster.alive() == nodes  # C19


def test_the_same_project_trains_on_a_stack(folder, train, cluster, tmp_path):  # C5 C6 C22
    project, [[*command, _]] = folder / "here/project", ON_A_STACK.of("python")
    with pip_index.served(tmp_path / "index", "127.0.0.1") as index:
        pip_index.write_project(project, index)  # packages of an index and of the project
        file = cluster.env["TRAINYARD_OUTPUTS"]
        said = output(train(*command, cluster.outputs["stack"], TRAINYARD_OUTPUTS=file))
    (job,) = [job for job in cluster.jobs().values() if job["metadata"].get("run") == "first"]
    installed = "".join(job["runtime_env"]["pip"])
    assert (job["status"], "box-one[more]==1.0" in installed) == ("SUCCEEDED", True)
    assert "/mine" in installed
    checkpoint = Path(said.strip().splitlines()[-1].partition("checkpoint ")[2])
    assert folder / "here/ray-results/first" in checkpoint.parents
    assert torch.load(checkpoint / "state.pt", weights_only=True)["epoch"] == 1
    stored = {f"first/{checkpoint.name}/state.pt", "first/output/trainyard_fit.json"}
    assert stored <= {*cluster.keys("first/")}
