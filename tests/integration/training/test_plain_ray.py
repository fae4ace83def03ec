"""Plain Ray tasks as jobs, training on chips that are counted, and Rays that no stack started."""

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import requests

from tests import pages, ran
from tests.fakes import conda
from tests.fakes.machines import uv_cache
from tests.integration.training.conftest import BUCKET, FOREIGN, NODE_STARTS, REPOSITORY
from tests.pages import Terminal
from tests.ports import free_ports

(
    BARE,
    START,
    ATTACH,
    HERE,
    RUNTIME,
    INSPECT,
    OURS,
    SWEEP,
    STOP,
    CHIP,
    CHIPS,
    DETACH,
) = pages.read_by(__file__)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]


def test_tasks_and_totals(cluster):
    (tasks_call, totals_call, tpu_call) = OURS.of("train")
    assert "[0, 1, 2, 3]" in cluster.done(*tasks_call[:-1], "4").splitlines()  # B8
    before = set(cluster.jobs())
    totals = cluster.done(*totals_call)  # B11 B12
    (sent,) = (job for name, job in cluster.jobs().items() if name not in before)
    assert sent["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "1"
    assert {"CPUs       2", "TPU chips  0"} <= set(totals.splitlines())
    none = cluster.train(*tpu_call)
    assert none.returncode == 1
    assert "error: the cluster has 0 TPU chips and a run needs 4 on one node" in none.stdout


def test_chips_are_counted(cluster, tmp_path):
    tpu = {"name": "tpu", "cpus": 1, "gpus": 1, "resources": {"TPU": 4}}
    nodes = [*cluster.outputs["nodes"], cluster.outputs["nodes"][0] | tpu]
    env = cluster.env | {
        "TRAINYARD_OUTPUTS": str(cluster.write_outputs("tpu.json", nodes=nodes)),
        "PATH": os.environ["PATH"],
    }
    with cluster.add_node("--num-cpus=1", "--num-gpus=1", '--resources={"TPU": 4}'):
        script = tmp_path / "plain.py"
        script.write_text("import os\nprint('has GPU', os.environ['CUDA_VISIBLE_DEVICES'])\n")
        # As if the head had room too: Ray takes the selector that keeps the script off it.
        both = [nodes[0] | {"cpus": 1, "gpus": 1}, *nodes[1:]]
        outputs = str(cluster.write_outputs("plain.json", nodes=both))
        out = cluster.train("submit", str(script), "--outputs", outputs).stdout
        assert f"{script} runs with CPU 1, GPU 1: change that" in out
        assert "has GPU 0" in out.splitlines()
        runs = cluster.done("submit", "tpu_example", "--runtime-env", "tpu", "--", "2")  # B13 B14
        found = [line[:5] for line in runs.splitlines() if " sum 2" in line]
        assert found == ["run 0", "run 1"]
        few = ["data.limit=32", "train.epochs=1", f"hydra.sweep.dir={tmp_path}"]
        for block, devices in ((CHIP, 1), (CHIPS, 2)):  # B20 B21
            (command,) = block.of("python")
            command = [sys.executable, *command, *few, f"devices={devices}"]
            out = ran.output(command, cwd=REPOSITORY / "training", env=env)
            assert "this node counts TPUs" in out
            assert "valid_acc" in out


# The file of Ray's launcher. No job asks for a GPU, so its autoscaler starts no node.
GROUPS = """
cluster_name: practical
max_workers: 2
provider: {type: fake_multinode}
head_node_type: head
available_node_types:
  head: {resources: {CPU: 2, TPU: 4}, node_config: {}, max_workers: 0}
  gpu: {resources: {CPU: 1, GPU: 1}, node_config: {}, min_workers: 0, max_workers: 2}
idle_timeout_minutes: 5
upscaling_speed: 1
auth: {}
docker: {}
file_mounts: {}
cluster_synced_files: []
file_mounts_sync_continuously: false
initialization_commands: []
setup_commands: []
head_setup_commands: []
worker_setup_commands: []
head_start_ray_commands: []
worker_start_ray_commands: []
"""


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Open a terminal of a user without stacks; every Ray that it starts is ended afterwards."""
    folder = tempfile.mkdtemp(prefix="ty", dir="/tmp")

    def opened(instead: dict[str, str], **more: str) -> Terminal:
        environment = {k: v for k, v in os.environ.items() if not k.startswith((*FOREIGN, "XDG_"))}
        environment |= {"HOME": folder, "RAY_TMPDIR": folder, "COLUMNS": "200"}
        environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        return Terminal(REPOSITORY, environment | more, instead)

    try:
        yield opened
    finally:
        _end_rays(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _end_rays(folder: str) -> None:
    for process in psutil.process_iter():
        try:
            if process.environ().get("RAY_TMPDIR") == folder:
                process.kill()
        except psutil.Error:
            continue


def _start(user: Terminal) -> None:
    """Starts Ray, which gives its node 30 s, even on a busy machine."""
    for _ in range(NODE_STARTS - 1):
        try:
            user.run(START)
        except AssertionError:
            _end_rays(user.environment["HOME"])
        else:
            return
    user.run(START)


def shell(text: str) -> pages.Block:
    return pages.Block("test", 0, "sh", text)


@pytest.mark.timeout(600)
def test_the_practical_on_a_plain_ray(terminal):  # B5 B6 B9 B11 B16 B19 B25
    gcs, dashboard, client, agent, grpc, metrics = free_ports(6)
    head = [
        *(f"--port={gcs}", f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"),
        *(f"--dashboard-agent-listen-port={agent}", f"--dashboard-agent-grpc-port={grpc}"),
        *(f"--metrics-export-port={metrics}", "--min-worker-port=0", "--max-worker-port=0"),
        *("--num-cpus=2", '--resources={"TPU": 4}', "--disable-usage-stats"),
        "--autoscaling-config=groups.yaml",
    ]
    instead = {
        "ray start --head": f"ray start --head {shlex.join(head)}",
        "8265": str(dashboard),
        **dict.fromkeys(("8", "50", "10"), "2"),  # tasks
        "--multirun": "--multirun data.limit=32 train.epochs=1 hydra.sweep.dir=$HOME/sweep",
    }
    user = terminal(instead, RAY_FAKE_CLUSTER="1")
    user.folder = Path(user.environment["HOME"])
    conda.write(user.folder / "conda")
    user.environment |= {"RAY_CONDA_HOME": str(user.folder / "conda")}
    user.environment |= {"UV_CACHE_DIR": str(uv_cache.folder())}
    (user.folder / "groups.yaml").write_text(GROUPS)
    _start(user)
    _a_sweep_without_a_store(user, dashboard)
    elsewhere = {"RAY_ADDRESS": "http://127.0.0.1:1", "RAY_API_SERVER_ADDRESS": "127.0.0.1:1"}
    user.environment |= elsewhere  # which `train` does not follow
    attached = user.run(ATTACH)
    assert f"attached http://localhost:{dashboard} as 'practical': Ray" in attached
    assert "nodes: 1, and up to 2 on demand" in attached
    file = Path(user.environment["HOME"], ".config/trainyard/attached/practical.json")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    user.folder = REPOSITORY / "training"
    swept = user.run(SWEEP)
    assert "epoch 1: loss" in swept
    assert "valid_acc" in swept
    for name in elsewhere:
        del user.environment[name]
    user.folder = REPOSITORY
    assert "[0, 1]\n" in user.run(HERE)
    assert "[0, 1]\n" in user.run(RUNTIME)
    url = f"http://localhost:{dashboard}/api/jobs/"
    (sent,) = (
        job
        for job in requests.get(url, timeout=10).json()
        if job["entrypoint"] == "python cpu_example.py 2" and job["submission_id"]
    )
    assert sent["runtime_env"]["env_vars"]["OMP_NUM_THREADS"] == "1"
    assert "TPU chips  4\n" in user.run(INSPECT)
    long = {"entrypoint": "sleep 600", "submission_id": "long"}
    requests.post(url, json=long, timeout=30).raise_for_status()
    instead["raysubmit_xxxxx"] = "long"
    user.run(STOP)
    assert requests.get(f"{url}long", timeout=10).json()["status"] == "STOPPED"
    _a_run_with_its_files(user)
    _a_job_with_packages_of_conda(user)
    assert "the cluster keeps running" in user.run(DETACH)
    assert not file.exists()


def _a_sweep_without_a_store(user: Terminal, dashboard: int) -> None:
    """No stack is chosen, nothing is attached, and the environment names the Ray."""
    own = {
        "--multirun": f"{user.instead['--multirun']}-bare",
        "192.0.2.7": f"localhost:{dashboard}",
    }
    said = Terminal(REPOSITORY, user.environment, {**user.instead, **own}).run(BARE)
    assert f"no stack is chosen: points go to http://localhost:{dashboard}" in said
    [log] = Path(user.environment["HOME"], "sweep-bare").glob("*/train_model.log")
    assert "valid_acc" in (log.parents[1] / "results.csv").read_text()


def _a_run_with_its_files(user: Terminal) -> None:
    user.run(shell('mkdir "$HOME/jobs" && train new first --folder "$HOME/jobs"'))
    # The groups' GPUs are declared, and this autoscaler starts no node.
    user.run(shell('train submit "$HOME/jobs/first.py" --name first -- --epochs 1 --cpu'))
    first, point = json.loads(user.run(shell("train runs --json")))
    assert first["run"] == "first"
    assert point["run"].startswith("train-model-")  # the sweep's one job
    user.run(shell('train pull first --to "$HOME/pulled"'))
    assert list(Path(user.environment["HOME"], "pulled", "first").iterdir())


def _a_job_with_packages_of_conda(user: Terminal) -> None:
    """Ray makes the environment on the head, by the tests' conda."""
    home = Path(user.environment["HOME"])
    packages = {"channels": [conda.channel(home / "channel")], "dependencies": ["canary"]}
    (home / "own.json").write_text(json.dumps({"conda": packages}))
    folder = home / "songs"  # of its own: the upload is the script's folder
    folder.mkdir()
    (folder / "sings.py").write_text("import canary, sys\nprint(canary.SONG, 'in', sys.prefix)\n")
    # On the head, like a driver: this autoscaler starts no node.
    own = '--runtime-env "$HOME/own.json" --entrypoint-num-cpus 0 --entrypoint-num-gpus 0'
    said = user.run(shell(f'train submit "$HOME/songs/sings.py" {own}'))
    assert "needs conda: asking the head" in said
    assert re.search(r"^sung in /\S+/runtime_resources/conda/\w+$", said, re.MULTILINE)


def test_an_attached_cluster_may_ask_for_a_token_and_have_a_bucket(cluster, tmp_path):  # B3 B6
    own = {"XDG_CONFIG_HOME": str(tmp_path), "TRAINYARD_STACK": "practical"}
    keys = {k: v for k, v in cluster.ray_env.items() if k.startswith("AWS_")}
    env = {k: v for k, v in cluster.env.items() if k != "TRAINYARD_OUTPUTS"} | own | keys
    more = ("--token-file", str(cluster.folder / "token"), "--storage", f"s3://{BUCKET}")
    attached = cluster.done("attach", cluster.outputs["dashboardUrl"], *more, env=env)
    assert "nodes: 2\n" in attached
    assert cluster.outputs["rayToken"] not in attached
    assert (tmp_path / "trainyard/attached/practical.json").stat().st_mode & 0o777 == 0o600
    cluster.done("runs", "--json", env=env)
