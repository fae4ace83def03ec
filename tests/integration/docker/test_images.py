"""Our images on a real Docker Engine: their content, their users, and that they work."""

import importlib.metadata
import json
import re
import runpy
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from cluster import minio_store, versitygw_store
from cluster.dataset import FOLDER
from cluster.dataset import VOLUME as FOOD11
from cluster.grafana import DASHBOARDS
from cluster.notebook import WORKSPACE
from cluster.tracking import DATA as TRACKED
from infra.service.images import VOLUMES
from infra.settings import versions
from tests import pages

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OURS = (
    "ray_image",
    "minio_image",
    "versitygw_image",
    "jupyter_image",
    "dataset_image",
    "mlflow_image",
)
PINNED = ("ray", "torch", "torchvision", "boto3", "matplotlib", "scikit-learn", "pyarrow")
ASK_VERSIONS = f"""
import ctypes, importlib.metadata, json
ctypes.CDLL("libgomp.so.1")  # that of Debian, before PyTorch brings its own: LightGBM needs one
import boto3, filelock, matplotlib, pyarrow.fs, ray, sklearn, torch, torchvision
from ray.train.torch import TorchTrainer
print(json.dumps({{name: importlib.metadata.version(name) for name in {PINNED}}}))
"""
(TUNE,) = pages.read_by(__file__)
GENERATOR = Path(__file__).resolve().parents[3] / "docker/dataset/generated.py"
TOKEN = secrets.token_hex(16)
RAY_TOKEN = secrets.token_hex(32)
ROOT_PASSWORD = secrets.token_hex(16)
BUCKET = "ray"


@pytest.fixture
def image(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def cluster(shared_containers, ray_image, minio_image, jupyter_image, tmp_path_factory):
    """A head, an object store and a notebook on a network; gives the notebook's container."""
    engine = shared_containers
    network = engine.new("network")
    store = engine.start(
        minio_image,
        *("server", "/var/lib/trainyard/data"),
        options=[
            *("--network", network, "--network-alias", "minio", "--publish", "127.0.0.1::9000"),
            *("--volume", f"{engine.new('volume')}:/var/lib/trainyard/data"),
            *("--env", "MINIO_ROOT_USER_FILE=/etc/trainyard/root-user"),
            *("--env", "MINIO_ROOT_PASSWORD_FILE=/etc/trainyard/root-password"),
        ],
        files={"root-user": b"root-user", "root-password": ROOT_PASSWORD.encode()},
    )
    ray_client = [
        *("--network", network, "--env", "RAY_AUTH_MODE=token"),
        *("--env", "RAY_AUTH_TOKEN_PATH=/etc/trainyard/ray-token"),
    ]
    credentials = f"[default]\naws_access_key_id=root-user\naws_secret_access_key={ROOT_PASSWORD}\n"
    head = engine.start(
        ray_image,
        *("start", "--head", "--block", "--port=6379", "--num-cpus=2", "--num-gpus=1"),
        *("--dashboard-host=0.0.0.0", "--object-store-memory=100000000"),
        options=[
            *(*ray_client, "--network-alias", "ray-head", "--shm-size", "256m"),
            *("--env", "AWS_SHARED_CREDENTIALS_FILE=/etc/trainyard/aws-credentials"),
            *("--env", "AWS_ENDPOINT_URL=http://minio:9000", "--env", "AWS_REGION=us-east-1"),
            *("--env", f"TRAINYARD_STORAGE_URL=s3://{BUCKET}"),
        ],
        files={"ray-token": RAY_TOKEN.encode(), "aws-credentials": credentials.encode()},
    )
    notebook = engine.start(
        jupyter_image,
        *("lab", "--port=8888"),
        options=[
            *(*ray_client, "--env", "RAY_API_SERVER_ADDRESS=http://ray-head:8265"),
            *("--volume", f"{engine.new('volume')}:/var/lib/trainyard/workspace"),
        ],
        files={"ray-token": RAY_TOKEN.encode(), "jupyter-token": TOKEN.encode()},
    )
    engine.wait_for(store, "http://127.0.0.1:9000/minio/health/ready")
    port = engine.docker("port", store, "9000/tcp").stdout.splitlines()[0]
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{port}",
        aws_access_key_id="root-user",
        aws_secret_access_key=ROOT_PASSWORD,
        region_name="us-east-1",
        config=Config(retries={"max_attempts": 1}),
    )
    client.create_bucket(Bucket=BUCKET)
    engine.wait_for(head, "http://127.0.0.1:8265/api/gcs_healthz")
    engine.wait_for(head, "http://127.0.0.1:52365/api/local_raylet_healthz")
    data = tmp_path_factory.mktemp("food11") / FOLDER
    images = {"training": 44, "validation": 22, "evaluation": 22}
    runpy.run_path(str(GENERATOR))["generate"](data, images, side=32, seed=1)
    engine.docker("cp", str(data), f"{head}:{FOOD11.mount}/")
    return notebook, client


def test_nodes_have_the_clients_versions(containers, ray_image):
    status, output = containers.run(
        ray_image, "-c", ASK_VERSIONS, options=["--entrypoint", "python"]
    )
    assert status == 0, output
    inside = json.loads(output.splitlines()[-1])
    assert inside == {name: importlib.metadata.version(name) for name in PINNED}
    assert inside["ray"] == versions.RAY


@pytest.mark.parametrize(
    ("image", "folder"),
    [
        ("ray_image", f"{VOLUMES}/{DASHBOARDS.name}"),
        ("minio_image", f"{VOLUMES}/{minio_store.DATA.name}"),
        ("versitygw_image", f"{VOLUMES}/{versitygw_store.DATA.name}"),
        ("versitygw_image", f"{VOLUMES}/{versitygw_store.META.name}"),
        ("jupyter_image", f"{VOLUMES}/{WORKSPACE.name}"),
        ("mlflow_image", f"{VOLUMES}/{TRACKED.name}"),
        ("dataset_image", FOOD11.mount),
    ],
    indirect=["image"],
)
def test_a_fresh_volume_belongs_to_the_user_of_its_image(containers, image, folder):
    status, output = containers.run(
        image,
        *("-c", f"id --user; touch {folder}/mine && ! touch /usr/mine"),
        options=["--entrypoint", "sh", "--volume", f"{containers.new('volume')}:{folder}"],
    )
    assert output.splitlines()[0] == "1000"
    assert status == 0, output


@pytest.mark.parametrize("image", OURS, indirect=True)
def test_no_layer_of_ours_shows_a_secret_or_a_certificate(containers, image):  # F35
    history = containers.docker(
        "history", "--no-trunc", "--format={{.CreatedBy}}", image
    ).stdout.splitlines()
    base = containers.docker(
        "history", "--no-trunc", "--format={{.CreatedBy}}", "trainyard-test/base"
    ).stdout.splitlines()
    ours = [line for line in history if line not in base]
    assert len(ours) > 5
    shown = "\n".join(ours).replace("ca-certificates", "a package")
    assert re.findall(r"://|certificate|\.crt|(?i:token|secret|password)=?", shown) == []
    config = containers.inspect(image)["Config"]
    named = [line for line in config["Env"] if re.search(r"TOKEN|SECRET|PASSWORD|KEY", line)]
    assert named == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "error: no token in /etc/trainyard/jupyter-token (No such file or directory)"),
        ({"jupyter-token": b" \n"}, "error: the token in /etc/trainyard/jupyter-token is empty"),
    ],
)
def test_the_notebook_does_not_start_without_a_token(containers, jupyter_image, files, message):
    status, output = containers.run(jupyter_image, "lab", files=files)
    assert status == 1
    assert output.startswith(message)
    assert len(output.splitlines()) == 1


def test_the_example_notebooks_run_on_a_cluster(shared_containers, cluster):  # D14, D20, D22
    notebook, store = cluster
    examples = {
        "examples/cluster.ipynb": "squares: (0, 1, 4, 9, 16, 25, 36, 49)",
        "examples/object-store.ipynb": "read back {'loss': 0.25, 'epoch': 3}",
    }

    # `jupyter execute` drops the output of a cell that comes 4 s late, as it may on a busy machine.
    late = ("iopub_timeout=120", "raise_on_iopub_timeout=True")
    command = ["jupyter", "nbconvert", "--execute", "--to=notebook", "--inplace"]
    command += [f"--ExecutePreprocessor.{each}" for each in late]

    def execute(path):
        shared_containers.exec(notebook, *command, path)
        return shared_containers.exec(notebook, "cat", path).stdout

    with ThreadPoolExecutor() as pool:
        executed = dict(zip(examples, pool.map(execute, examples), strict=True))
    for path, shown in examples.items():
        assert shown in executed[path]
    stored = store.get_object(Bucket=BUCKET, Key="examples/metrics.json")["Body"].read()
    assert json.loads(stored) == {"loss": 0.25, "epoch": 3}
    environment = shared_containers.exec(notebook, "env").stdout
    assert "RAY_API_SERVER_ADDRESS=http://ray-head:8265" in environment
    assert RAY_TOKEN not in environment


def test_a_script_of_the_course_from_the_notebooks_terminal(  # D27, D28, D29
    shared_containers, cluster
):
    """train_tune, which imports everything that the three others import; the lab has these."""
    notebook, _ = cluster
    small = "--weights none --image-side 32 --loader-processes 0 --total-epochs 1"
    (command,) = TUNE.commands
    small += " --cpus-per-trial 2 --num-samples 1"
    terminal = ("exec", "--workdir", f"{VOLUMES}/{WORKSPACE.name}/train", notebook)
    done = shared_containers.docker(*terminal, *command, *small.split())
    assert "Search completed after 1 trials" in done.stdout, done.stdout + done.stderr


def test_a_job_brings_packages_of_its_own(shared_containers, cluster):  # A31
    notebook, _ = cluster
    shared_containers.exec(
        notebook,
        *("ray", "job", "submit", "--runtime-env-json", '{"pip": ["colorama"]}', "--"),
        *("python", "-c", "import colorama, ray, sys; assert sys.prefix != sys.base_prefix"),
    )
