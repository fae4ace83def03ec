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
from pathlib import Path

import pytest
from ray._private.runtime_env import _clonevirtualenv

from cluster import autoscaling
from cluster.autoscaling import RayNodeProvider
from cluster.ray_node import Growth, NodeResources
from node import owned_processes, ray_start, source_text
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
given = sys.argv[1] if len(sys.argv) > 1 else None
parameters = types.SimpleNamespace(temp_dir=given, autoscaling_config=config)
getattr(importlib.import_module(module), name)(parameters, "HEAD" in os.environ)
print(sys.executable, shutil.which("python"), sep="\\n", flush=True)
print(os.environ.get("TRAINYARD_NODES"), flush=True)
os._exit(0)
"""
LARGEST_COPY = 2**20  # bytes


Start = Callable[..., subprocess.Popen[str]]


def _hook(folder: Path, more: str = "") -> dict[str, str]:
    """Write the module with quick waits, and more at its end; return the node's variables."""
    fixed = source_text(ray_start.FILE)
    quick, waits = re.subn(r"(?m)^(\w+_SECONDS) = .*", rf"\1 = {QUICK_SECONDS}", fixed)
    assert waits == 5
    (folder / ray_start.FILE).write_text(quick + more)
    return ray_start.environment(str(folder / ray_start.FILE))


@pytest.fixture
def start(tmp_path) -> Iterator[Start]:
    """Starts a node; `word` says whether it collects its raylet, `more` is added to the hook."""
    processes = []

    def run(word: str, more: str = "", **variables: str) -> subprocess.Popen[str]:
        hook = _hook(tmp_path, more)
        raylet = tmp_path / ray_start.RAYLET
        shutil.copy(shutil.which("sleep") or "sleep", raylet)
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
def test_a_node_ends_with_its_raylet(start, word, tmp_path):  # F25
    node = start(word)
    assert node.stdout is not None
    pid, left = node.stdout.readline().split(maxsplit=1)
    assert left.strip() == "[]"  # jobs have neither variable
    wait_for("the watch", (tmp_path / ray_start.JOINED).exists, 30)
    with pytest.raises(subprocess.TimeoutExpired):
        node.wait(2 * QUICK_SECONDS)
    os.kill(int(pid), signal.SIGTERM)
    assert node.wait(30) == 1
    assert node.stderr is not None
    assert f"The raylet (process {pid}) has ended" in node.stderr.read()


# A node whose machine comes and goes, by a head whose session a file names.
COMES = """
def session(_address):
    return open({session!r}).read()
"""
ANSWERS = """
def _answers(_address):
    with open({looks!r}, "a") as file:
        file.write(".")
    return os.path.exists({head!r})
"""


def _join(folder: Path) -> None:
    """As Ray does for a node: a folder of the head's session, and a link to it."""
    (folder / "session_1").mkdir()
    (folder / ray_start.LATEST).symlink_to("session_1")


def test_a_node_ends_when_another_head_has_the_address_of_its_own(tmp_path, start):  # P31
    session, head, looks = tmp_path / "session", tmp_path / "head", tmp_path / "looks"
    more = COMES.format(session=str(session)) + ANSWERS.format(looks=str(looks), head=str(head))

    def look() -> None:
        """Wait until the node has begun a look after this moment, and ended it."""
        first = looks.stat().st_size if looks.exists() else 0
        wait_for("looks", lambda: looks.exists() and looks.stat().st_size > first + 1, 20)

    session.write_text("session_1")
    head.touch()
    _join(tmp_path)
    node = start("--address=127.0.0.1:6379", more)
    look()
    head.unlink()  # a network that is away for a while
    look()
    head.touch()
    look()
    assert node.poll() is None
    head.unlink()
    look()
    session.write_text("session_2")
    head.touch()
    assert node.wait(30) == 1
    assert node.stderr is not None
    assert "Another head has taken the place" in node.stderr.readline()  # the raylet has it, too


def test_a_node_that_its_head_let_go_waits_for_another_head(tmp_path, start):
    session = tmp_path / "session"
    comes = partial(start, "collects", COMES.format(session=str(session)), **ray_start.JOINS_ONCE)

    session.write_text("session_1")
    _join(tmp_path)
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
    address = ray_start.head_address(["ray", "start", f"--address=127.0.0.1:{port}"])
    assert address == ("127.0.0.1", port)
    assert ray_start.session(address) == ""
    assert ray_start.session(ray_start.head_address(["ray"])) == ""


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


def test_a_node_that_starts_again_ends_what_its_last_start_left(tmp_path):  # P31
    mine = {owned_processes.URL: "unix://a.sock", owned_processes.NAME: "ray-head"}
    others = [mine | {owned_processes.NAME: "web"}, mine | {owned_processes.URL: "unix://b.sock"}]
    foreign = [] if os.getuid() else [(mine, 65534)]
    hook = _hook(tmp_path)
    with contextlib.ExitStack() as started:
        left, *kept = [
            started.enter_context(
                subprocess.Popen(["sleep", "60"], env=os.environ | each, user=user)
            )
            for each, user in [(mine, None), *((each, None) for each in (*others, {})), *foreign]
        ]
        for each in (left, *kept):
            started.callback(each.kill)
        current = tmp_path / "ray/ray_current_cluster"
        current.parent.mkdir()
        current.touch()
        for program, code in (({}, None), (mine, -signal.SIGKILL)):
            command = [sys.executable, "-c", STARTED, current.parent]
            environment = os.environ | hook | program
            subprocess.run(command, env=environment, capture_output=True, check=True)
            assert (left.poll(), {each.poll() for each in kept}) == (code, {None})
        assert current.exists()
        environment |= {"HEAD": "1", "RAY_TMPDIR": str(tmp_path)}
        for words in (command, command[:-1]):  # a pod's node has Ray's own folder
            current.touch()
            subprocess.run(words, env=environment, capture_output=True, check=True)
            assert not current.exists(), "Ray starts no head while nodes of the last one run here"
