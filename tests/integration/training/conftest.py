"""A real object store and a two-node Ray as processes, and the outputs file that names them."""

import functools
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray
import requests
from botocore.loaders import create_loader

from cluster.object_store import STORES
from infra.machines import tools
from node import ray_logs, ray_start
from tests import stores
from tests.integration.training.mlflow_server import Server, tracking_server
from tests.integration.training.services import service
from tests.outputs import of_services
from tests.ports import free_ports
from tests.waiting import wait_for
from trainyard.access.outputs import NOTHING

REPOSITORY = Path(__file__).resolve().parents[3]
NODE_STARTS = 3
SESSIONS = "r"  # the head's --temp-dir
BUCKET = stores.BUCKET
FOREIGN = ("RAY_", "AWS_", "TRAIN")  # the caller's settings of Ray, S3 and stacks


@contextmanager
def ray_node(
    command: list[str], env: dict[str, str], log: Path, there: Callable[[], Any]
) -> Iterator[None]:
    """Runs a Ray node; Ray gives it 30 s to start, even on a busy machine."""
    for _ in range(NODE_STARTS):
        with service(command, env, log) as process:

            def over(process: subprocess.Popen[bytes] = process) -> Any:
                return process.poll() is not None or there()

            wait_for("a Ray node", over)
            if process.poll() is None:
                yield
                return
    raise RuntimeError(f"{NODE_STARTS} starts of a Ray node failed: {log.read_text()[-2000:]}")


class Forks:
    """Runs `train`, one command at a time, in forks of a process that waits for it (forked.py)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, arguments: tuple[str, ...], env: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs `train ARGUMENTS` in the repository to its end.

        Raises:
            subprocess.TimeoutExpired: it took longer, and was killed.
        """
        files = {name: self._folder / f"train.{name}" for name in ("output", "errors")}
        request = {"arguments": arguments, "environment": env, **files}
        with self._lock:
            try:
                code = self._ask(json.dumps(request, default=str), env, timeout)
            except BaseException:
                self.close()  # a late answer would be this command's
                raise
        texts = (file.read_text() for file in files.values())
        return subprocess.CompletedProcess(("train", *arguments), code, *texts)

    def close(self) -> None:
        """Ends the process that waits."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _ask(self, request: str, env: dict[str, str], timeout: float) -> int:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.training.forked"],
                env=env,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        print(request, file=self._process.stdin, flush=True)
        pid = int(self._process.stdout.readline())
        late = threading.Timer(timeout, os.kill, (pid, signal.SIGKILL))
        late.start()
        try:
            code = int(self._process.stdout.readline())
        except BaseException:  # the test is over: it timed out, or somebody ended it
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            late.cancel()
        if code == -signal.SIGKILL:
            raise subprocess.TimeoutExpired(request, timeout)
        return code


@dataclass
class Cluster:
    """The running services, and how tests call the client against them."""

    folder: Path
    gcs: str
    ray_env: dict[str, str]
    outputs: dict[str, Any]
    forks: Forks
    client_port: int  # of Ray's client server on the head
    outputs_file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.outputs_file = self.write_outputs("outputs.json")

    def write_outputs(self, name: str, **changes: Any) -> Path:
        """An outputs file (0600) of this cluster, with some values changed."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(self.outputs | changes))
        return path

    @property
    def env(self) -> dict[str, str]:
        """Environment of a client process: nothing of the caller's Ray, S3 or stack settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
        return kept | {"TRAINYARD_OUTPUTS": str(self.outputs_file), "COLUMNS": "200"}

    def popen(self, *arguments: str, **changes: Any) -> subprocess.Popen[str]:
        """Starts `train ARGUMENTS` in the repository, stdout and stderr as pipes."""
        options: dict[str, Any] = {"env": self.env, "cwd": REPOSITORY} | changes
        return subprocess.Popen(
            [sys.executable, "-m", "trainyard.client", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            **options,
        )

    def train(
        self, *arguments: str, timeout: float = 110, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs `train ARGUMENTS` to its end; with changes of its process in one of its own."""
        if not changes:
            return self.forks.run(arguments, self.env, timeout)
        process = self.popen(*arguments, **changes)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def done(self, *arguments: str, **options: Any) -> str:
        """The output of `train ARGUMENTS`, which has to succeed."""
        result = self.train(*arguments, **options)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def api(self, path: str) -> Any:
        """JSON of the dashboard."""
        bearer = {"Authorization": f"Bearer {self.outputs['rayToken']}"}
        reply = requests.get(self.outputs["dashboardUrl"] + path, headers=bearer, timeout=10)
        reply.raise_for_status()
        return reply.json()

    def post(self, path: str, **content: Any) -> None:
        """Asks the dashboard itself, without the client, which would cost seconds."""
        bearer = {"Authorization": f"Bearer {self.outputs['rayToken']}"}
        url = self.outputs["dashboardUrl"] + path
        requests.post(url, headers=bearer, timeout=30, **content).raise_for_status()

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Submitted jobs by id, as Ray knows them."""
        found = self.api("/api/jobs/")
        return {job["submission_id"]: job for job in found if job["type"] == "SUBMISSION"}

    def alive(self) -> set[str]:
        """Ids of the living nodes."""
        found = self.api("/nodes?view=summary")["data"]["summary"]
        return {n["raylet"]["nodeId"] for n in found if n["raylet"].get("state") == "ALIVE"}

    @contextmanager
    def add_node(self, *arguments: str) -> Iterator[None]:
        """Joins one more Ray node for a while; it is up when this returns."""
        before, log = self.alive(), self.folder / f"added-{secrets.token_hex(4)}.log"
        node = worker_node(self.folder, self.gcs, self.ray_env, *arguments)
        with ray_node(*node, log, lambda: self.alive() - before):
            yield

    def s3(self) -> Any:
        """The client of the object store with the training user's key."""
        return self._s3

    @functools.cached_property
    def _s3(self) -> Any:
        return stores.client_of(self.outputs)

    def keys(self, prefix: str) -> list[str]:
        """Object names under a prefix of the bucket."""
        pages = self.s3().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]

    def read(self, key: str) -> bytes:
        """One object of the bucket."""
        return self.s3().get_object(Bucket=BUCKET, Key=key)["Body"].read()


def ray_command(*arguments: str) -> list[str]:
    """`ray start ARGUMENTS` on this machine only, with ports that no other node has."""
    agent, grpc, metrics = free_ports(3)
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", f"--dashboard-agent-listen-port={agent}"),
        *(f"--dashboard-agent-grpc-port={grpc}", f"--metrics-export-port={metrics}"),
        # The default range is the same for every node, and those of one machine would collide.
        *("--min-worker-port=0", "--max-worker-port=0"),
        *arguments,
    ]


def worker_node(
    folder: Path, gcs: str, env: dict[str, str], *arguments: str
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a node that joins a head of this machine, as a stack has it."""
    # In the head's folder two nodes would take each other's sockets and unpacked packages away.
    own = f"--temp-dir={folder / secrets.token_hex(2)}"
    command = ray_command(f"--address={gcs}", own, *arguments)
    return command, env | ray_logs.environment(str(folder / SESSIONS))


@pytest.fixture(scope="session", autouse=True)
def one_loader() -> Iterator[None]:
    """Reads the description of AWS's services, megabytes of JSON, once for all tests' clients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", functools.cache(create_loader))
        yield


@pytest.fixture(autouse=True)
def own_store_clients() -> Iterator[None]:
    """Keeps tests off each other's stores: a process keeps its clients."""
    stores.forget_clients()
    yield
    stores.forget_clients()


@pytest.fixture(scope="session")
def cluster(store_program) -> Iterator[Cluster]:
    """A store, a Ray head without CPUs and one node with two: the shape of the dev stack."""
    with ExitStack() as stack:
        # Short, because Ray's unix sockets are below it.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ty")))
        (folder / "store").mkdir()
        bare = stores.bare(STORES[tools.DEFAULT], store_program, folder / "store")
        store = stack.enter_context(bare)
        token = secrets.token_hex(32)
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(token)
        serve_token = secrets.token_hex(32)
        (folder / "serve-token").touch(mode=0o600)
        (folder / "serve-token").write_text(serve_token)
        (folder / "aws").touch(mode=0o600)
        (folder / "aws").write_text(
            f"[default]\naws_access_key_id = {store.root.access}\n"
            f"aws_secret_access_key = {store.root.secret}\n"
        )
        (folder / "tmp").mkdir()
        gcs, dashboard, client, serve = free_ports(4)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_"))} | {
            # A job's `python` is found on its node's PATH: it must be the one with Ray.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(folder / "tmp"),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            # Workers would yield to everything else, which is the other part of the tests.
            "RAY_worker_niceness": "0",
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "aws"),
            "AWS_ENDPOINT_URL": store.endpoint,
            "AWS_REGION": "us-east-1",
            "TRAINYARD_STORAGE_URL": f"s3://{BUCKET}",
            "TRAINYARD_DASHBOARD": f"127.0.0.1:{dashboard}",
            "TRAINYARD_SERVE_HOST": "127.0.0.1",
            "TRAINYARD_SERVE_PORT": str(serve),
            "TRAINYARD_SERVE_TOKEN_FILE": str(folder / "serve-token"),
        }
        head = ray_command(
            *("--head", "--num-cpus=0", f"--port={gcs}", f"--temp-dir={folder / SESSIONS}"),
            *(f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"),
        )
        url = f"http://127.0.0.1:{dashboard}"
        bearer = {"Authorization": f"Bearer {token}"}

        def alive(count: int) -> bool:
            reply = requests.get(f"{url}/nodes?view=summary", headers=bearer, timeout=2).json()
            states = [node["raylet"].get("state") for node in reply["data"].get("summary", [])]
            return states.count("ALIVE") == count

        started = env | {ray_start.HOOK: f"{ray_start.__name__}.{ray_start.begin.__name__}"}
        stack.enter_context(ray_node(head, started, folder / "head.log", lambda: alive(1)))
        worker = worker_node(folder, f"127.0.0.1:{gcs}", env, "--num-cpus=2")
        stack.enter_context(ray_node(*worker, folder / "worker.log", lambda: alive(2)))
        node = {"gpus": 0, "memoryMib": 4096, "objectStoreMib": 512, "resources": {}}
        forks = Forks(folder)
        stack.callback(forks.close)
        yield Cluster(
            folder,
            f"127.0.0.1:{gcs}",
            env,
            {
                **NOTHING,
                **of_services(),
                "project": "trainyard",
                "stack": "dev",
                "dashboardUrl": url,
                "rayToken": token,
                "storageUrl": f"s3://{BUCKET}",
                "objectStoreEndpoint": store.endpoint,
                "bucket": BUCKET,
                "accessKey": store.root.access,
                "secretKey": store.root.secret,
                "serveUrl": f"http://127.0.0.1:{serve}",
                "serveToken": serve_token,
                "rayVersion": ray.__version__,
                "pythonVersion": f"{sys.version_info.major}.{sys.version_info.minor}",
                "nodes": [
                    {"name": "head", "cpus": 0} | node,
                    {"name": "worker-0", "cpus": 2} | node,
                ],
                "owner": "ada",
                "jobStartTimeoutSeconds": 900,
            },
            forks,
            client,
        )


@pytest.fixture
def stopping(cluster) -> Iterator[None]:
    """Stops every job that a test leaves behind."""
    yield
    for job_id, job in cluster.jobs().items():
        if job["status"] in {"PENDING", "RUNNING"}:
            cluster.post(f"/api/jobs/{job_id}/stop")


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory) -> Iterator[Server]:
    """A tracking server that is up."""
    with tracking_server(tmp_path_factory.mktemp("mlflow")) as server:
        yield server
