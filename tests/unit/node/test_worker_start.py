"""How a node starts the processes of jobs: here with a small worker, as Ray's raylet starts it."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from node import source_text, worker_start
from tests.waiting import wait_for

FILE = worker_start.FILE
MODULE = "loaded_before"
# A library that takes its time to load, by a variable; it knows which process has loaded it.
LIBRARY = "import os\nLOADED_BY = os.getpid()\nHOW = os.environ.get('LIBRARY_HOW')\n"
# In place of Ray's: says what it is, and waits where it shall.
WORKER = f"""\
import json, os, random, signal, sys
import numpy
loaded = sys.modules.get("{MODULE}")
print(json.dumps({{
    "pid": os.getpid(), "group": os.getpgrp(), "folder": os.getcwd(), "argv": sys.argv[1:],
    "forked": loaded is not None and loaded.LOADED_BY != os.getpid(), "path": sys.path,
    "variables": dict(os.environ), "niceness": os.nice(0), "numbers": [random.random(),
    numpy.random.random()], "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
}}), flush=True)
print("an error", file=sys.stderr, flush=True)
if "WAITS" in os.environ:
    signal.pause()
"""
Said = dict[str, object]


class Node:
    """A node's folder with a quick copy of the file, and a process that stands for its raylet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text = re.sub(r"(?m)^LOADED = .*", f'LOADED = ("{MODULE}", "gone")', self._quick())
        (folder / FILE).write_text(self.text)
        (folder / f"{MODULE}.py").write_text(LIBRARY)
        (folder / "worker.py").write_text(WORKER)
        self.raylet = subprocess.Popen(["sleep", "60"])
        self.socket = folder / worker_start.SOCKET

    @staticmethod
    def _quick() -> str:
        return source_text(FILE).replace("LOOK_SECONDS = 5.0", "LOOK_SECONDS = 0.1")

    def begin(self, *more: str, **variables: str) -> subprocess.Popen[str]:
        words = [self.folder / FILE, self.folder / "worker.py", "--worker-id=7"]
        words += [f"--temp-dir={self.folder}", "--language=PYTHON", *more]
        known = {worker_start.RAYLET: str(self.raylet.pid), "RAY_JOB_ID": "1"}
        return subprocess.Popen(
            [sys.executable, *words],
            env=os.environ | known | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # as Ray does
        )

    def start(self, *more: str, **variables: str) -> Said:
        """Start a process that ends; return what it says about itself."""
        process = self.begin(*more, **variables)
        said, error = process.communicate(timeout=20)[0].splitlines()  # to the same streams
        assert error == "an error"
        return {**json.loads(said), "asked": process.pid}

    def warm(self) -> None:
        """Start the first process, and wait until others are forked."""
        assert not self.start()["forked"]
        wait_for("the process that forks", self.socket.exists)

    def servers(self) -> list[psutil.Process]:
        found = list[psutil.Process]()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_one = process.cmdline()[1:3] == [str(self.folder / FILE), worker_start.SERVE]
                found += [process] if is_one else []
        return found

    def end(self) -> None:
        self.raylet.kill()
        self.raylet.wait()


def context(**fields: object) -> str:
    return f"--serialized-runtime-env-context={json.dumps(fields)}"


@pytest.fixture
def node(tmp_path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.end()
    wait_for("the end of the process that forks", lambda: not made.servers())


def test_a_fork_is_what_a_python_would_be(node, tmp_path):
    node.warm()
    job = tmp_path / "a job"
    job.mkdir()
    env = {"MINE": "${HOME}/x${NOT_THERE}", worker_start.MODULES: str(job)}
    moved = ["cd", shlex.quote(str(job)), "&&"]
    found = node.start(context(env_vars=env, command_prefix=moved), RAY_JOB_ID="2")
    assert found["forked"]
    assert found["pid"] != found["asked"] == found["group"]  # Ray ends it with this group
    assert found["folder"] == str(job)
    assert found["argv"] == ["--worker-id=7", f"--temp-dir={tmp_path}"]
    ours = [str(tmp_path), str(job)]
    assert [each for each in found["path"] if each in ours] == ours
    variables = found["variables"]
    assert variables["MINE"] == f"{os.environ['HOME']}/x"
    assert variables["RAY_JOB_ID"] == "2"
    assert found["niceness"] == os.nice(0)
    assert found["child"]
    assert found["numbers"] != node.start()["numbers"]


@pytest.mark.parametrize(
    "why",
    ["a variable that was read", "one that C reads", "a file of a module's name", "another Python"],
)
def test_what_would_load_something_else_starts_as_ray_starts_it(node, tmp_path, why):
    node.warm()
    (tmp_path / "job").mkdir()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o700)
    fields = {
        "a variable that was read": {"env_vars": {"LIBRARY_HOW": "slowly"}},
        "one that C reads": {"env_vars": {"MALLOC_ARENA_MAX": "3"}},
        "a file of a module's name": {"env_vars": {worker_start.MODULES: str(tmp_path / "job")}},
        "another Python": {"py_executable": f"env A=1 {python}"},
    }[why]
    if why == "a file of a module's name":
        assert node.start(context(**fields))["forked"]
        (tmp_path / "job" / f"{MODULE}.py").touch()
    found = node.start(context(**fields))
    assert not found["forked"]
    assert found["pid"] == found["asked"]
    assert node.start()["forked"]


def test_other_languages_and_containers_go_to_rays_own_script(node):
    for more in ("--language=CPP", context(command_prefix=["podman", "run"])):
        process = node.begin(more)
        said = process.communicate(timeout=20)[0]
        # Ray's script has a shell run this file as a C++ program, or podman: both fail.
        assert process.returncode, said
        assert "worker.py" in said or "podman" in said


def test_a_module_that_fails_to_load_is_in_no_fork(node, tmp_path):
    (tmp_path / f"{MODULE}.py").write_text("raise RuntimeError('half of it is loaded')\n")
    node.warm()
    assert not node.start()["forked"]


def test_a_process_that_has_gone_gets_no_fork(node, tmp_path):
    node.warm()
    (tmp_path / "worker.py").write_text("open('is-there', 'w')\n")
    request = {"worker": [str(tmp_path / "worker.py")], "variables": dict(os.environ)}
    request |= {"folder": str(tmp_path), "group": os.getpgrp()}
    words = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(node.socket))
        length = len(words).to_bytes(worker_start.LENGTH, "big")
        socket.send_fds(client, [length], [0, 1, 2])
        client.sendall(words)
        assert client.recv(1) == worker_start.FORKED
        server = next(each for each in node.servers() if each.children())
    wait_for("its end", lambda: not server.children())
    assert not (tmp_path / "is-there").exists()
    (tmp_path / "worker.py").write_text(WORKER)
    assert node.start()["forked"]


def test_there_is_one_server_and_it_ends_with_the_raylet(node):
    several = [node.begin() for _ in range(3)]
    assert all(each.communicate(timeout=20)[0] for each in several)
    wait_for("the process that forks", node.socket.exists)
    wait_for("only one", lambda: len(node.servers()) == 1)
    assert node.socket.stat().st_mode & 0o077 == 0
    killed = node.servers()[0]
    killed.kill()
    node.warm()  # another takes its place
    (server,) = node.servers()
    assert server.pid != killed.pid
    node.raylet.send_signal(signal.SIGKILL)
    node.raylet.wait()
    wait_for("its end", lambda: not node.servers())
    assert not node.socket.exists()


def test_an_idle_server_ends_but_not_while_a_fork_runs(node, tmp_path):
    file = tmp_path / FILE
    file.write_text(node.text.replace("IDLE_SECONDS = 600.0", "IDLE_SECONDS = 0.5"))
    variables = {"WAITS": "1"}
    assert not node.start()["forked"]
    forked: Callable[[], bool] = node.socket.exists
    wait_for("the process that forks", forked)
    process = node.begin(context(env_vars=variables))
    assert process.stdout
    pid = json.loads(process.stdout.readline())["pid"]
    assert pid != process.pid
    server = psutil.Process(pid).parent()
    with pytest.raises(psutil.TimeoutExpired):
        server.wait(1.5)  # three times what it may be idle
    os.kill(pid, signal.SIGKILL)
    server.wait(30)
    process.communicate()


def test_threads_of_a_task_are_those_of_what_was_loaded_before():
    told = """
import os, numpy, torch
from node import worker_start
def as_ray_does():
    os.environ["OMP_NUM_THREADS"] = "1"
    return True
assert worker_start._set_threads(lambda: False) is False
before = torch.get_num_threads(), threads()
assert worker_start._set_threads(as_ray_does) is True
print(before, (torch.get_num_threads(), threads()))
"""
    known = """
import ctypes
from pathlib import Path
def threads():
    from node import worker_start
    path = worker_start.BLAS.search(Path("/proc/self/maps").read_text())[0]
    library = ctypes.CDLL(path)
    name = next(n for n in worker_start.BLAS_THREADS if hasattr(library, n))
    return getattr(library, name.replace("set", "get"))()
"""
    free = {name: value for name, value in os.environ.items() if name != worker_start.THREADS}
    run = subprocess.run(
        [sys.executable, "-c", known + told], env=free, capture_output=True, text=True, check=True
    )
    cores = len(os.sched_getaffinity(0))
    assert run.stdout.strip() == f"{(cores, cores)} {(1, 1)}"
