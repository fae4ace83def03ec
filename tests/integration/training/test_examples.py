"""The two examples end to end: as jobs, as a notebook, and their memory against the data's size."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from cluster.object_store import STORES
from infra.machines import tools
from tests import pages, ran, stores
from trainyard.client import runtimes

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

MINE, BIRDS, SHIRTS, END_TO_END, FRAMEWORKS, SHORT = pages.read_by(__file__)
PYTORCH, LIGHTNING, *OTHERS = FRAMEWORKS.of("train")
JOB_DEADLINE_S = 300
REPOSITORY = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("few_digits.py")
NOTEBOOK = REPOSITORY / "docker/jupyter/examples/pytorch-distributed-training.ipynb"
MODELS = {
    "digits-transformers": "checkpoint/model.safetensors",
    "digits-accelerate": "manifest.json",
    "digits-xgboost": "model.ubj",
    "digits-lightgbm": "model.txt",
}
DIGITS = 320  # that example 1 learns from
IMAGES = (300, 1500)  # of the data that the reader reads
# Runs a notebook's cells as a kernel would, and prints what they print.
KERNEL = """
import ast, asyncio, inspect, json, sys
from pathlib import Path

names = {"__name__": "__main__"}

async def execute(cells):
    for cell in cells:
        if cell.startswith("%%writefile "):
            first, _, text = cell.partition("\\n")
            Path(first.split()[1]).write_text(text)
            continue
        code = compile(cell, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.iscoroutine(result):
            await result

asyncio.run(execute(json.loads(sys.stdin.read())))
"""
# Reads a data set of some size to its end, in an actor as training does.
READER = """
import json, sys

import ray

from trainyard.data import streaming
from trainyard.data.synthetic_images import Recipe, ensure
from trainyard.memory import PeakMemory

ray.init()

@ray.remote
class Reader:
    def read(self, url, shards):
        dataset = streaming.stream(url, shards)
        dataset.context.execution_options = streaming.limits(cpus=1)
        rows = 0
        for batch in dataset.iter_torch_batches(batch_size=64):
            rows += len(batch["label"])
        return rows

for images in map(int, sys.argv[2:]):
    made = ensure(sys.argv[1], Recipe(images=images, side=224, per_shard=100))
    with PeakMemory(["Reader", streaming.TASK]) as peak:
        reader = Reader.remote()
        rows = ray.get(reader.read.remote(made.url, made.shards))
    print(json.dumps([rows, made.bytes, peak.largest_mb, peak.object_store_mb]))
"""


def losses(output: str) -> list[float]:
    """Records of the epochs, in order, as one worker printed them."""
    found = re.findall(r"pid=\d+\)\S* \{'loss': (\d+\.\d+), 'epoch': (\d+)", output)
    assert [int(epoch) for _, epoch in found] == list(range(len(found)))
    return [float(loss) for loss, _ in found]


def train(cluster: Any, *arguments: str) -> str:
    """Output of a command of `train`."""
    return str(cluster.done(*arguments, timeout=JOB_DEADLINE_S))


@pytest.fixture(scope="module")
def script(cluster) -> str:
    """Output of its first epoch, with few digits."""
    env = cluster.folder / "few_digits.json"
    env.write_text(json.dumps({"env_vars": {"DIGITS": str(DIGITS)}}))
    submit = ("submit", str(SCRIPT), "--name", "shirts", "--runtime-env", str(env), "--")
    return train(cluster, *submit, "--data", "digits", "--epochs", "1")


def test_two_workers_train_and_each_line_says_what_stood_in(script, cluster):  # E6
    assert len(losses(script)) == 1
    assert script.count("scikit-learn's digits stand in for FashionMNIST") == 2
    assert "Training completed after 1 epochs: s3://ray/shirts" in script
    lines = cluster.read("shirts/metrics.jsonl").splitlines()
    assert [json.loads(line)["data"] for line in lines] == ["digits"]
    newest = max(key for key in cluster.keys("shirts/checkpoint_") if key.endswith("manifest.json"))
    model = json.loads(cluster.read(newest))["model"]
    assert (model["architecture"], model["image_side"]) == ("resnet18", 28)


def test_the_run_goes_on(script, cluster):  # E6
    # The job itself, with all digits; on as many workers as there is room for by now.
    (command,) = SHIRTS.of("train")
    assert command == PYTORCH
    out = train(cluster, *command, "--", "--epochs", "2", "--workers", "1")
    assert re.search(r"Restored from checkpoint s3://ray/shirts/\S+: 1 epochs are", out)
    [(loss, epoch)] = re.findall(r"\{'loss': (\S+), 'epoch': (\d+)", out)
    assert epoch == "1"
    assert float(loss) < losses(script)[0]


def test_a_folder_of_images_is_learned_and_names_the_classes(cluster, tmp_path):
    for number in range(30):
        for name, colour in (("red", (255, 9 * (number % 9), 0)), ("blue", (0, number, 255))):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.new("RGB", (40, 30), colour).save(tmp_path / name / f"{number}.png")
    (command,) = MINE.of("train")
    *typed, folder = command
    assert (folder, typed[3]) == ("~/pictures", "mine")
    out = train(cluster, *typed, str(tmp_path), "--epochs", "2", "--batch-size", "8")
    said = f"{tmp_path}: 2 classes, 48 images to learn from, 6 to validate, 6 to test"
    assert out.count(said) == 1
    records = map(json.loads, cluster.read("mine/metrics.jsonl").splitlines())
    assert [record["data"] for record in records] == [str(tmp_path)] * 2
    newest = max(key for key in cluster.keys("mine/checkpoint_") if key.endswith("manifest.json"))
    model = json.loads(cluster.read(newest))["model"]
    assert (model["classes"], model["image_side"]) == (["blue", "red"], 64)
    for file in (tmp_path / "red").iterdir():
        file.write_bytes(b"no picture")
    asked = [*typed, str(tmp_path), "--epochs", "3", "--batch-size", "8"]
    failed = cluster.train(*asked, timeout=JOB_DEADLINE_S)
    assert failed.returncode == 1
    assert re.search(rf"error: {tmp_path}/red/\d+\.png is not a readable", failed.stdout)
    assert "Traceback" not in failed.stdout


def test_a_folder_of_a_bucket_is_copied_to_each_node_once(cluster, store_program, tmp_path):
    copy, script = tmp_path / "birds", tmp_path / "birds.py"
    copying, training = BIRDS.of("train")
    (block,) = (each for each in pages.blocks() if each.text.startswith(f"# {script.name}:"))
    assert f'Path("{training[-1]}")' in block.text
    folder = tmp_path / "store"
    folder.mkdir()
    with stores.bare(STORES[tools.DEFAULT], store_program, folder) as store:
        for name in ("cat/1.jpg", "dog/2.jpg"):
            store.s3.put_object(Bucket=stores.BUCKET, Key=f"birds/{name}", Body=name.encode())
        text = block.text.replace(training[-1], str(copy)).replace("photos/birds", "ray/birds")
        script.write_text(text.replace("https://s3.example.com", store.endpoint))
        left = Path(f"{copy}.part/cat/0.jpg")  # of a killed job
        left.parent.mkdir(parents=True)
        left.touch()
        keys = {"PHOTOS_KEY=…": store.root.access, "PHOTOS_SECRET=…": store.root.secret}
        words = [f"{word[:-1]}{keys[word]}" if word in keys else word for word in copying]
        words[words.index(script.name)] = str(script)
        # Two nodes of one machine copy at once: one waits for the other.
        assert f"{copy} {copy}" in train(cluster, *words)
    assert {str(path.relative_to(copy)): path.read_text() for path in copy.rglob("*.*")} == {
        name: name for name in ("cat/1.jpg", "dog/2.jpg")
    }
    assert Path(f"{copy}.lock").exists()
    # A worker of a later training finds it, without keys and without the store, which is gone.
    later = [sys.executable, "-c", "import birds; print(birds.local())"]
    assert ran.output(later, cwd=tmp_path).strip() == str(copy)


def test_the_notebook_learns_the_same(script, cluster, tmp_path):  # E6
    cells = [
        "".join(cell["source"])
        for cell in json.loads(NOTEBOOK.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    changed = json.dumps(cells)
    for theirs, ours in (
        ('data = \\"fashion-mnist\\"', 'data = \\"digits --epochs 1\\"'),
        ("pixels[:1500]", f"pixels[:{DIGITS}]"),
    ):
        assert changed.count(theirs) == 1
        changed = changed.replace(theirs, ours)
    # The notebook's container has these, and only the address of the cluster.
    environment = {k: v for k, v in cluster.ray_env.items() if not k.startswith(("AWS_", "TRAIN"))}
    out = ran.output(
        [sys.executable, "-c", KERNEL],
        input=changed,
        env=environment | {"RAY_API_SERVER_ADDRESS": cluster.outputs["dashboardUrl"]},
        cwd=tmp_path,
        timeout=JOB_DEADLINE_S,
    )
    assert losses(out) == pytest.approx(losses(script), rel=1e-5)
    assert "scikit-learn's digits stand in for FashionMNIST" in out
    [where] = re.findall(r"^checkpoint: ray/(examples/\S+)$", out, re.MULTILINE)
    assert f"{where}/model.pt" in cluster.keys(where)


def test_lightning_on_one_node(cluster):
    out = train(cluster, *LIGHTNING, "--", "data.limit=32", "train.epochs=1")
    assert "parameters on 1 x cpu" in out


@pytest.mark.parametrize("command", OTHERS, ids=lambda words: words[1])
def test_a_framework_trains(command, cluster):  # E1
    # The nodes' environment has the packages that the option is for elsewhere.
    *submit, option, environment = command
    assert option == "--runtime-env"
    assert runtimes.find(environment).is_file()
    name = command[1].replace("_", "-")
    epochs = "--epochs" if name == "digits-accelerate" else "--total-epochs"
    # Transformers takes ten processor seconds to load, in each process.
    workers = "1" if name == "digits-transformers" else "2"
    out = train(cluster, *submit, "--name", name, "--", epochs, "2", "--workers", workers)
    assert f"Training completed after 2 epochs: s3://ray/{name}" in out
    first, last = map(json.loads, cluster.read(f"{name}/metrics.jsonl").splitlines())
    assert (first["epoch"], last["epoch"]) == (0, 1)
    assert last["valid_loss"] < first["valid_loss"]
    assert last["valid_acc"] > 0.2  # guessed: 0.1
    keys = cluster.keys(f"{name}/checkpoint_")
    for file in (MODELS[name], "manifest.json"):  # Ray's own, and a checkpoint of the run
        assert any(key.endswith(file) for key in keys)


@pytest.mark.parametrize("framework", ["keras", "jax"])  # the others download more
def test_a_job_of_the_page_trains_with_packages_that_the_nodes_lack(
    framework, cluster, tmp_path
):  # E1
    name = f"digits_{framework}.py"
    ((submit, _, *options),) = (words for words in SHORT.of("train") if name in words)
    (script,) = (each for each in pages.blocks() if each.text.startswith(f"# {name}\n"))
    (tmp_path / name).write_text(script.text)
    train(cluster, submit, str(tmp_path / name), "--name", framework, *options)
    (row,) = (r for r in json.loads(cluster.done("runs", "--json")) if r["run"] == framework)
    assert row["figures"]["loss"] < 1.5  # guessed: 2.3


def test_the_end_to_end_example(cluster, tmp_path):  # E7 E8 E11 E12
    results = tmp_path / "results.json"
    env = tmp_path / "env.json"
    env.write_text(json.dumps({"env_vars": {"TEST_OUTPUT_JSON": str(results)}}))
    (submit, job, *line), (*_, smoke) = END_TO_END.of("train")
    options = ("--name", "smoke", "--runtime-env", str(env))
    out = train(cluster, submit, job, *options, *line, smoke)
    assert len(losses(out)) == 2
    assert "1 synthetic images, 0.7 MB" in out
    found = json.loads(results.read_text())
    assert json.loads(cluster.read("smoke/results.json")) == found
    assert json.dumps(found) in out.splitlines()
    assert (found["images"], found["epochs"]) == (1, 2)
    assert found["throughput_MB_s"] == pytest.approx(
        2 * found["data_size_mb"] / found["total_time_s"], abs=0.02
    )
    assert found["peak_memory_mb"] > 100  # a worker with torch
    row = next(r for r in json.loads(cluster.train("runs", "--json").stdout) if r["run"] == "smoke")
    assert row["epochs"] == "2/2"
    nodes = cluster.api("/nodes?view=summary")["data"]["summary"]
    [head] = [node["raylet"]["nodeId"] for node in nodes if node["raylet"]["isHeadNode"]]
    [job] = [job for job in cluster.jobs().values() if job["metadata"].get("run") == "smoke"]
    assert job["driver_node_id"] == head  # E8
    assert job["metadata"]["job_name"].startswith("smoke (")  # in the list of Ray's dashboard


def test_memory_does_not_grow_with_the_data(cluster):  # E7
    out = ran.output(
        [sys.executable, "-c", READER, "s3://ray", *map(str, IMAGES)],
        env=cluster.ray_env | {"RAY_ADDRESS": cluster.gcs},
        cwd=REPOSITORY,
        timeout=JOB_DEADLINE_S,
    )
    small, large = (json.loads(line) for line in out.splitlines()[-2:])
    assert (small[0], large[0]) == IMAGES
    for images, read in zip(IMAGES, (small, large), strict=True):
        assert read[1] == pytest.approx(33e3 * images, rel=0.1)
    # 1,500 decoded images are 226 MB.
    assert large[3] < 150
    assert large[2] < small[2] + 100
    made = "s3://ray/.trainyard/synthetic-images/300-of-224px"
    assert len(cluster.keys(made.removeprefix("s3://ray/"))) == 4  # and their manifest
