"""The Food-11 course on a real cluster, with two nodes that count one GPU and 8 CPUs each."""

import json
import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.models import mobilenet_v2

from tests import pages
from tests.waiting import wait_for
from trainyard.search import state as search_state

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).resolve().parents[3]
TRAIN = REPOSITORY / "train"
PLAIN, SUBMITS, HALVES, LOST, SEARCHES = pages.read_by(__file__)
WHOLE, TWO = SUBMITS.of("train")
(HALF,) = HALVES.of("train")
(TOLERANT,) = LOST.of("train")
TUNE, SHOW = SEARCHES.of("train")
HALVED = HALF[HALF.index("--") + 1 :]
GENERATOR = REPOSITORY / "docker/dataset/generated.py"
WAITING = Path(__file__).with_name("food11_waiting.py")
CUT = Path(__file__).with_name("food11_cut.py")
SEARCH = Path(__file__).with_name("food11_search.py")
DEADLINE_S = 400
EPOCHS = 3  # one with the base frozen, two with all of it
EPOCH = re.compile(r"Epoch: (\d{3})/\d{3} \| Valid\. Acc\.: \d+\.\d{3}% \| Loss: \d\.\d{4}(.*)")


@dataclass
class Course:
    """The cluster with the course's nodes, and its jobs' settings."""

    cluster: Any
    outputs: Path
    environment: Path  # of the jobs
    small: list[str]  # options that make a job short

    def told(self, folder: Path, **variables: str) -> "Course":
        """The same for scripts of the tests, which get these variables."""
        environment = json.loads(self.environment.read_text())
        environment["env_vars"] |= variables
        changed = folder / "runtime.json"
        changed.write_text(json.dumps(environment))
        return replace(self, environment=changed)

    def submit(self, run: str, *arguments: str, job: str) -> Any:
        """Starts `train submit`; its log is this process's stdout."""
        options = ["--name", run, "--outputs", str(self.outputs)]
        options += ["--runtime-env", str(self.environment)]
        return self.cluster.popen("submit", job, *options, "--", *arguments)

    def typed(self, command: list[str], *arguments: str, job: str = "", run: str = "") -> Any:
        """Starts a command of the page, with more arguments; also another job under its name."""
        _, script, _, name, *rest = command
        behind = rest[rest.index("--") + 1 :] if "--" in rest else []
        return self.submit(run or name, *behind, *arguments, job=job or script)

    def metrics(self, run: str) -> list[dict[str, Any]]:
        """Records of a run in the bucket, without their times."""
        if f"{run}/metrics.jsonl" not in self.cluster.keys(f"{run}/metrics"):
            return []
        lines = self.cluster.read(f"{run}/metrics.jsonl").splitlines()
        return [{k: v for k, v in json.loads(line).items() if k != "minutes"} for line in lines]

    def used(self) -> tuple[float, float]:
        """GPUs and CPUs in use, as the dashboard's Resource Status has them."""
        status = self.cluster.api("/api/cluster_status")["data"]["clusterStatus"]
        usage = status["loadMetricsReport"]["usage"]
        return usage.get("GPU", [0])[0], usage.get("CPU", [0])[0]

    def workers(self) -> list[str]:
        """Nodes of Ray Train's workers that are there."""
        actors = self.cluster.api("/api/v0/actors?detail=1&limit=1000")["data"]["result"]["result"]
        return [
            actor["node_id"]
            for actor in actors
            if (actor["class_name"], actor["state"]) == ("RayTrainWorker", "ALIVE")
        ]


def finished(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    return out


def wait(probe: Callable[[], Any], what: str) -> Any:
    return wait_for(what, probe, DEADLINE_S)


@pytest.fixture(scope="module")
def course(cluster, tmp_path_factory) -> Iterator[Course]:
    folder = tmp_path_factory.mktemp("course")
    generate = runpy.run_path(str(GENERATOR))["generate"]
    images = {"training": 44, "validation": 22, "evaluation": 22}
    generate(folder / "Food-11", images, side=32, seed=1)
    torch.manual_seed(0)
    torch.save(mobilenet_v2().state_dict(), folder / "base.pt")
    environment = folder / "runtime.json"
    variables = {"FOOD11_DATA_DIR": str(folder / "Food-11"), "OMP_NUM_THREADS": "1"}
    environment.write_text(json.dumps({"env_vars": variables}))
    node = {"cpus": 8, "gpus": 1, "memoryMib": 4096, "objectStoreMib": 512, "resources": {}}
    nodes = [*cluster.outputs["nodes"], {"name": "a"} | node, {"name": "b"} | node]
    small = ["--weights", str(folder / "base.pt"), "--lr", "0.01", "--fine-tune-lr", "0.001"]
    small += ["--image-side", "32", "--loader-processes", "0", "--initial-epochs", "1"]
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(cluster.add_node("--num-cpus=8", "--num-gpus=1"))
        outputs = cluster.write_outputs("course.json", nodes=nodes)
        found = Course(cluster, outputs, environment, small)
        wait(
            lambda: (
                cluster.api("/api/cluster_status")["data"]["clusterStatus"]["loadMetricsReport"][
                    "usage"
                ].get("GPU", [0, 0])[1]
                == 2
            ),
            "two nodes with a GPU",
        )
        yield found


def test_an_unmodified_script(course, tmp_path):  # D25, D28, D29, D31, D32
    runtime = json.loads((TRAIN / "runtime.json").read_text())
    assert runtime == {
        "pip": "requirements.txt",
        "env_vars": {"FOOD11_DATA_DIR": "/mnt/Food-11"},
    }
    # Nodes have all of requirements.txt, and the data elsewhere.
    variables = json.loads(course.environment.read_text())["env_vars"]
    runtime["env_vars"] |= variables | {"PIP_NO_INDEX": "1"}
    file = tmp_path / "runtime.json"
    file.write_text(json.dumps(runtime))
    ray_env = {k: v for k, v in course.cluster.ray_env.items() if k.startswith(("RAY_", "PATH"))}
    (_, folder), (_, job, submit, *words) = PLAIN.commands
    words[words.index("runtime.json")] = str(file)
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", job, submit),
        *("--address", course.cluster.outputs["dashboardUrl"], "--submission-id", "plain-food11"),
        *(*words, *course.small, "--total-epochs", "2"),
    ]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY / folder,
        env=os.environ | ray_env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait(lambda: course.used() == (1, 8), "the entrypoint's 1 GPU and 8 CPUs in use")  # D32
        out = finished(process)
    finally:
        process.kill()
    assert "Job 'plain-food11' succeeded" in out  # D31
    assert not (TRAIN / "checkpoints").exists()  # it ran from a copy
    assert [(epoch, mark) for epoch, mark in EPOCH.findall(out)] == [  # D34
        (f"{epoch:03d}", " | generated data") for epoch in (1, 2)
    ]
    assert re.search(r"^Test ACC: \d+\.\d\d% \| generated data$", out, re.MULTILINE)


@pytest.fixture(scope="module")
def whole(course) -> str:
    """Log of a run on one whole GPU."""
    return finished(course.typed(WHOLE, *course.small, "--total-epochs", str(EPOCHS)))


def test_ray_train_on_one_worker(course, whole):  # D39 to D42
    assert [mark for _, mark in EPOCH.findall(whole)] == [" | generated data"] * EPOCHS
    assert len(re.findall(r"Test ACC: \d+\.\d\d% \| generated data", whole)) == 1
    records = course.metrics("whole")
    assert [record["epoch"] for record in records] == list(range(EPOCHS))
    assert {record["data"] for record in records} == {"generated"}
    keys = course.cluster.keys("whole/")
    of_ray = re.compile(r"whole/checkpoint_\d{4}-\d\d-[^/]+/checkpoint\.ckpt")
    assert len([*filter(of_ray.fullmatch, keys)]) == EPOCHS  # D40
    assert "whole/curves.png" in keys
    [manifest] = [key for key in keys if key.endswith("manifest.json")]
    described = json.loads(course.cluster.read(manifest))["model"]  # enough for `train serve`
    assert (described["architecture"], described["file"]) == ("mobilenet_v2", "checkpoint.ckpt")


def test_two_workers(course):  # D43
    process = course.typed(TWO, *course.small, "--total-epochs", "1")
    try:
        wait(lambda: course.used() == (2, 16), "2 GPUs and 16 CPUs in use")
        wait(lambda: len(set(course.workers())) == 2, "a worker on each of two nodes")
        finished(process)
    finally:
        process.kill()
    assert len(course.metrics("two")) == 1


@pytest.mark.usefixtures("whole")
def test_three_jobs_share_two_gpus(course, tmp_path):  # D44
    go = tmp_path / "go"
    waiting = course.told(tmp_path, GO=str(go))
    runs = [HALF[3].replace("$i", n) for n in "012"]
    processes = [waiting.typed(HALF, job=str(WAITING), run=run) for run in runs]
    try:
        wait(lambda: course.used() == (1.5, 12), "1.5 GPUs and 12 CPUs in use")
        wait(lambda: len(course.workers()) == 3, "three workers at once")
        assert sorted(Counter(course.workers()).values()) == [1, 2]
        go.touch()
        for process in processes:
            finished(process)
    finally:
        for process in processes:
            process.kill()
    compare = ("compare", "half-", "whole", "--json", "--outputs", str(course.outputs))
    half, whole = json.loads(course.cluster.done(*compare))
    assert half["jobs"] == 3
    assert half["placement"].endswith(": half-0, half-1, half-2")
    assert (whole["jobs"], whole["epochs"]) == (1, EPOCHS)
    # Seconds are shown to a tenth, the rate to a hundredth.
    slow, fast = (EPOCHS * 60 / (whole["seconds"] + rest) for rest in (0.05, -0.05))
    assert slow - 0.005 <= whole["epochs/min"] <= fast + 0.005


@pytest.mark.usefixtures("whole")
def test_a_lost_worker_and_a_stopped_job(course, tmp_path):  # D46, D48, F21
    faults = [tmp_path / "kill-0", tmp_path / "hang-1"]
    for fault in faults:
        fault.touch()
    cut = course.told(tmp_path, FAULTS=str(tmp_path))
    options = [*HALVED, "--total-epochs", str(EPOCHS)]
    process = cut.typed(TOLERANT, *course.small, *options, job=str(CUT))
    try:
        wait(lambda: not any(fault.exists() for fault in faults), "a kill, and then a hang")
        course.cluster.train("stop", "tolerant", "--outputs", str(course.outputs))
        out, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert len(restored(out)) == 1, out
    lost = r"Worker 0 on [\d.]+ has failed; restart 1 of 2, from the last checkpoint\. \w.+"
    assert len(re.findall(lost, out)) == 1, out
    assert len(course.metrics("tolerant")) == 2
    # It goes on with the arguments of the first time.
    out += finished(course.typed(TOLERANT, *course.small))
    assert len(restored(out)) == 2, out
    # The cuts change neither the learned weights nor a worker's requests.
    assert course.metrics("tolerant") == course.metrics("whole")
    # The count goes on, and no epoch is repeated whose checkpoint is stored.
    printed = sorted(epoch for epoch, _ in EPOCH.findall(out))
    assert printed == [f"{epoch + 1:03d}" for epoch in range(EPOCHS)]


def restored(log: str) -> list[str]:
    """Checkpoints that a log says were restored."""
    pattern = r"Restored on [\d.]+ from checkpoint: s3://ray/tolerant/(checkpoint_\d{6}-\w+)"
    return re.findall(pattern, log)


def test_a_search_with_failures_that_is_cut_off(course, tmp_path):  # D51 to D55, F32
    shaky = course.told(tmp_path, FOLDER=str(tmp_path))
    options = [*course.small, "--num-samples", "4", "--total-epochs", "4", "--seed", "3"]
    process = shaky.typed(TUNE, *options, job=str(SEARCH))
    try:
        state = wait(lambda: state_to_go_on_from(course.cluster, "search"), "a trial at its end")
        course.cluster.train("stop", "search", "--outputs", str(course.outputs))
        out, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    sampled = re.findall(
        r"^trial 0000\d: batch_size (\d+), dropout_probability (\S+)$", out, re.MULTILINE
    )
    assert len(sampled) == 4
    assert {size for size, _ in sampled} <= {"32", "64"}
    assert all(0.1 <= float(dropout) <= 0.8 for _, dropout in sampled)
    assert out.index("trial 00003: batch_size") < out.index("| Epoch: 001/004")
    before = read(tmp_path / "journal")
    (tmp_path / "go").touch()
    out = finished(shaky.typed(TUNE, job=str(SEARCH)))
    assert "Search completed after 4 trials, 1 failed" in out
    after = read(tmp_path / "journal")[len(before) :]
    again = {trial: int(what) for trial, what in reversed(after) if what != "failed"}
    assert again.keys() == {"00002", "00003"}
    assert not again.keys() & ended(state)  # what was done is not run again
    reached = {trial: int(what) for trial, what in before if what != "failed"}
    stored = {trial[-5:]: number for trial, number in search_state.newest(state).items()}
    for trial, epoch in again.items():  # from its checkpoint, and without a gap
        assert stored.get(trial, 0) < epoch <= reached.get(trial, 0) + 1
    names = ("/epoch", "/checkpoint.ckpt")
    stored_files = course.cluster.keys("search/")
    # The best trial's is the search's own too, once.  C6
    [best] = [
        key for key in stored_files if re.fullmatch(r"search/checkpoint_[^/]*/manifest.json", key)
    ]
    model = json.loads(course.cluster.read(best))["model"]
    assert re.search(r"_00002_[^/]*/checkpoint_000003$", model["trial"])
    trials = [key for key in stored_files if not key.startswith("search/checkpoint_")]
    files = [key for key in trials if key.endswith(names)]
    kept = Counter(key.split("/")[1] for key in files)
    assert len(kept) == 3  # trials that did not fail
    # The others also have the checkpoints that the state before the last one needs.
    assert [kept[name] for name in kept if "_00001_" in name] == [search_state.KEPT]
    epochs = [int(row) for row in re.findall(r"^0000\d +\S+ +\S+ +(\d+) ", out, re.MULTILINE)]
    # ASHA ended the weak one, by the first one's results before the search was cut off.
    assert epochs == [0, 4, 4, 1]
    assert len(re.findall(r"^0000\d .* \| generated data$", out, re.MULTILINE)) == 3
    assert re.search(
        r"^Best trial: 00002 \(.*\), Valid\. Acc\.: .* \| generated data$", out, re.MULTILINE
    )
    assert course.cluster.read("search/curves.png").startswith(b"\x89PNG")
    assert {record["data"] for record in course.metrics("search")} == {"generated"}
    *show, drawn = SHOW
    course.cluster.done(*show, str(tmp_path / drawn), "--outputs", str(course.outputs))
    assert (tmp_path / drawn).read_bytes().startswith(b"\x89PNG")


def state_to_go_on_from(cluster: Any, run: str) -> bytes | None:
    """The search's state as it is stored, once the first trial has ended and the second has not."""
    folder = cluster.keys(f"{run}/experiment_state-")
    states = [key for key in folder if key.endswith(".json")]  # next to each is the one before
    if not states:
        return None
    _, _, state = cluster.read(max(states)).partition(b"\n")  # behind its signature
    halfway = any(trial.endswith("00002") for trial in search_state.newest(state))
    return state if halfway and "00001" in ended(state) else None


def ended(state: bytes) -> set[str]:
    """Trials that a stored state knows to have ended."""
    trials = [json.loads(trial) for trial, _ in json.loads(state)["trial_data"]]
    return {
        trial["trial_id"][-5:] for trial in trials if trial["status"] in ("TERMINATED", "ERROR")
    }


def read(journal: Path) -> list[tuple[str, str]]:
    """Trial and what it did, in their order."""
    if not journal.exists():
        return []
    return [tuple(line.split()) for line in journal.read_text().splitlines()]
