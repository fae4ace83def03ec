"""What happens inside `ray start`: here in a program that calls the hook as Ray does."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
from ray._private.runtime_env import _clonevirtualenv

from cluster import autoscaling
from cluster.autoscaling import RayNodeProvider
from cluster.ray_node import Growth, NodeResources
from node import ray_start
from tests.ports import free_ports
from tests.waiting import wait_for

QUICK_SECONDS = 0.1  # instead of a node's waits
# Like `ray start --block`: it goes on when the raylet has ended in order, and collects its status.
START = """\
import importlib, os, subprocess, sys, time, types
module, name = os.environ["RAY_START_HOOK"].split(".")
parameters = types.SimpleNamespace(temp_dir=os.path.dirname(sys.argv[1]), autoscaling_config=None)
getattr(importlib.import_module(module), name)(parameters, False)
raylet = subprocess.Popen([sys.argv[1], "60"])
left = [name for name in ("RAY_START_HOOK", "PYTHONPATH") if name in os.environ]
print(raylet.pid, left, flush=True)
while True:
    time.sleep(0.1)
    raylet.poll() if "collects" in sys.argv else None
"""
# A node without a raylet: the Python of its processes, and a job's `python`.
STARTED = """\
import importlib, os, shutil, sys, types
module, name = os.environ["RAY_START_HOOK"].split(".")
config = os.environ.get("CONFIG")
parameters = types.SimpleNamespace(temp_dir=sys.argv[1], autoscaling_config=config)
getattr(importlib.import_module(module), name)(parameters, False)
print(sys.executable, shutil.which("python"), sep="\\n", flush=True)
print(os.environ.get("TRAINYARD_NODES"), flush=True)
os._exit(0)
"""
LARGEST_COPY = 2**20  # bytes


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path) -> Iterator[Start]:
    """Starts a node; `word` says whether it collects its raylet, `more` is added to the hook."""
    processes = []

    def run(word: str, more: str = "", **variables: str) -> subprocess.Popen[str]:
        fixed = ray_start.source_text()
        quick, waits = re.subn(r"(?m)^(\w+_SECONDS) = .*", rf"\1 = {QUICK_SECONDS}", fixed)
        assert waits == 4
        (tmp_path / ray_start.FILE).write_text(quick + more)
        raylet = tmp_path / ray_start.RAYLET
        shutil.copy(shutil.which("sleep") or "sleep", raylet)
        hook = ray_start.environment(str(tmp_path / ray_start.FILE))
        process = subprocess.Popen(
            [sys.executable, "-c", START, raylet, word],
            env=os.environ | hook | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # it has ended, and all that it started
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("word", ["collects", "is busy"])
def test_a_node_ends_with_its_raylet(start, word):  # F25
    node = start(word)
    assert node.stdout is not None
    pid, left = node.stdout.readline().split(maxsplit=1)
    assert left.strip() == "[]"  # jobs have neither variable
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(2 * QUICK_SECONDS)
    os.kill(int(pid), signal.SIGTERM)
    assert node.wait(30) == 1
    assert node.stderr is not None
    assert f"The raylet (process {pid}) has ended" in node.stderr.read()


# A node whose machine comes and goes, by a head whose session a file names.
COMES = """
def _session(_words):
    return open({session!r}).read()
"""


def test_a_node_that_its_head_let_go_waits_for_another_head(tmp_path, start):
    session = tmp_path / "session"
    comes = partial(start, "collects", COMES.format(session=str(session)), **ray_start.JOINS_ONCE)

    def join(name: str) -> None:
        """As Ray does for a node: a folder of the head's session, and a link to it."""
        (tmp_path / name).mkdir()
        (tmp_path / ray_start.LATEST).unlink(missing_ok=True)
        (tmp_path / ray_start.LATEST).symlink_to(name)

    session.write_text("session_1")
    join("session_1")
    first = comes()
    assert first.stdout is not None
    pid = int(first.stdout.readline().split()[0])
    joined = tmp_path / ray_start.JOINED
    wait_for("a note", lambda: joined.exists() and joined.read_text() == "session_1", 20)
    os.kill(pid, signal.SIGTERM)  # drained, or crashed
    assert first.wait(30) == 1
    second = comes()
    assert second.stderr is not None
    assert "The head has let this node go" in second.stderr.readline()
    assert second.poll() is None
    session.write_text("session_2")  # the head was restarted
    assert second.stdout is not None
    assert second.stdout.readline().strip().endswith("[]")


def test_a_head_that_does_not_answer_has_no_session():
    port = free_ports(1)[0]
    assert ray_start._session(["ray", "start", f"--address=127.0.0.1:{port}"]) == ""
    assert ray_start._session(["ray"]) == ""


def test_a_jobs_environment_is_a_copy_of_an_empty_one_with_all_packages(tmp_path):  # A31, D28
    hook = ray_start.environment(ray_start.__file__)
    gpu = NodeResources(cpus=8, gpus=1, memory_mib=1024, object_store_mib=128, group="gpu")
    gpu = replace(gpu, growth=Growth(least=0, idle_seconds=60))
    provider = RayNodeProvider(text="", settings={})
    head = replace(gpu, cpus=0, gpus=0)
    (tmp_path / "config").write_text(autoscaling.config(head, {"a": gpu, "b": gpu}, provider))
    hook["CONFIG"] = str(tmp_path / "config")
    for _ in range(2):  # a node that ended is started again
        command = [sys.executable, "-c", STARTED, tmp_path]
        done = subprocess.run(
            command, env=os.environ | hook, capture_output=True, text=True, check=True
        )
    node, found, declared = done.stdout.splitlines()
    assert found == node  # a job's driver is found on the PATH
    assert node == str(tmp_path / ray_start.ENVIRONMENT / "bin/python")
    # Jobs count the nodes that the head's autoscaler may start.
    assert [each["GPU"] for each in json.loads(declared)] == [1, 1]
    # As Ray does for a job with a `pip` list.
    copy = tmp_path / "copy"
    clone = [node, _clonevirtualenv.__file__, tmp_path / ray_start.ENVIRONMENT, copy]
    subprocess.run(clone, env={}, check=True)
    assert sum(path.lstat().st_size for path in copy.rglob("*")) < LARGEST_COPY
    asked = "import os, pip, ray, sys; print(sys.prefix, os.path.dirname(ray.__path__[0]))"
    shown = subprocess.run(
        [copy / "bin/python", "-c", asked], env={}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == [str(copy), sysconfig.get_path("purelib")]
