"""One cluster for all tests of this folder, gone after the last of them, and stacks in it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cluster import services
from tests.fakes.kubernetes import Node, NoKubernetesError
from tests.fakes.kubernetes import kuberay as operators
from tests.fakes.kubernetes.process import Process

T = TypeVar("T")
IMAGES = ("dataset", "grafana", "jupyter", "mlflow", "prometheus", "ray", "versitygw")
ROOT = Path(__file__).resolve().parents[4]
GROUP_OF_FILES = 1000  # kubernetes.group
COMMAND_SECONDS = 300
# A worker of the group that grows: two of them, and the head, fit into 8 GiB.
SIZE = {"cpus": 1, "memoryMib": 2048, "min": 0, "idleMinutes": 0.2}
GROUP = {"name": "cpu", "max": 2, "gpus": 0, **SIZE}
PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
GPU_GROUP = {"name": "h100", "max": 1, "gpus": 1, **SIZE, "nodeSelector": PRODUCT}


def shown(config: pytest.Config, make: Callable[[], T]) -> T:
    """Make something that may take minutes to build, and show its progress; or skip the test."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            return make()
    except NoKubernetesError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="package")
def kubernetes(pytestconfig) -> Iterator[Node]:
    """A cluster of one real node, Ready."""
    with shown(pytestconfig, Node) as node:
        yield node


@pytest.fixture(scope="package")
def kuberay(pytestconfig, kubernetes) -> Iterator[Process]:
    """KubeRay's operator and its definitions; a test that stops it starts it again."""
    with shown(pytestconfig, lambda: operators.operator(kubernetes)) as operator:
        yield operator


@pytest.fixture
def namespace(kubernetes) -> Iterator[str]:
    """A namespace of a test's own, gone afterwards with everything in it."""
    with made(kubernetes) as name:
        yield name


class made:  # noqa: N801 - used as a function
    """A namespace for as long as the block runs."""

    def __init__(self, node: Node) -> None:
        self.node, self.name = node, f"test-{uuid.uuid4().hex[:8]}"

    def __enter__(self) -> str:
        self.node.kubectl("create", "namespace", self.name)
        return self.name

    def __exit__(self, *_error: object) -> None:
        self.node.kubectl("delete", "namespace", self.name, "--timeout=100s")


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A stack on Kubernetes.

    Attributes:
        stack: for work on it.
        node: the cluster's.
        namespace: of the stack alone.
    """

    stack: Any
    node: Node
    namespace: str

    def kubectl(self, *arguments: str, text: str | None = None, check: bool = True) -> str:
        where = f"--namespace={self.namespace}"
        return self.node.kubectl(where, *arguments, text=text, check=check)

    def get(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return found

    def pods(self, kind: str = "") -> dict[str, Any]:
        """Pods that are not about to end, by name; of Ray's nodes of a kind, or all."""
        chosen = [f"--selector=ray.io/node-type={kind}"] if kind else []
        return {
            pod["metadata"]["name"]: pod
            for pod in self.get("pods", *chosen)["items"]
            if "deletionTimestamp" not in pod["metadata"]
        }


@pytest.fixture(scope="package")
def make_lab(declare, kubernetes, kuberay) -> Iterator[Callable[..., Lab]]:
    """Declare a stack in an existing namespace; its folder is removed at the end."""
    folders: list[Path] = []

    def make(namespace: str, **changes: Any) -> Lab:
        base = Path(tempfile.mkdtemp(prefix="ty", dir="/tmp"))
        folders.append(base)
        where = {
            "context": "admin",
            "kubeconfig": str(kubernetes.kubeconfig),
            "namespace": namespace,
            # Tests share the processors of one machine: pods promise more than it has.
            "cpuShare": 0.1,
            "podTimeoutSeconds": 60,
            **changes.pop("kubernetes", {}),
        }
        settings: dict[str, Any] = {
            "runtime": "kubernetes",
            "kubernetes": where,
            "images": {name: f"trainyard-test/{name}:latest" for name in IMAGES},
            "accelerator": "nvidia",
            "nodeGroups": [GROUP, GPU_GROUP],
            "grafana": False,
        }
        stack = declare(base, **{**settings, **changes})
        stack.environment["PATH"] = f"{kubernetes.programs}:{stack.environment['PATH']}"
        # Each pod has its own, and ports that are free here may be Ray's in a pod.
        stack.change(*(services.PORTS.keys() & stack.settings))
        return Lab(stack=stack, node=kubernetes, namespace=namespace)

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def give_to_pods(folder: Path) -> None:
    """Make a folder of the node one that pods may write to, as the pages say."""
    os.chown(folder, -1, GROUP_OF_FILES)
    folder.chmod(0o2775)


def start_train(lab: Lab, outputs: Path, *arguments: str) -> subprocess.Popen[str]:
    """Begin a command of `train`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "AWS_", "TRAIN"))}
    path = f"{lab.node.programs}:{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, "-m", "trainyard.client", *arguments],
        cwd=ROOT,
        env={**kept, "PATH": path, "TRAINYARD_OUTPUTS": str(outputs), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def train(lab: Lab, outputs: Path, *arguments: str) -> str:
    """The output of a `train` command that succeeds."""
    done = start_train(lab, outputs, *arguments)
    said, _ = done.communicate(timeout=COMMAND_SECONDS)
    assert done.returncode == 0, said[-4000:]
    return said
