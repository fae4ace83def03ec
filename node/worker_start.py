"""How a node starts the processes of jobs: as forks of one that has loaded PyTorch.

    python worker_start.py WORKER ARGUMENTS        what Ray runs for each process of a job
    python worker_start.py serve SOCKET RAYLET     the process that forks, one for each node

Ray starts each process with two Pythons, one after the other, which load Ray, Ray Train and
PyTorch, for some seconds of a processor. A fork has loaded what these need, and shares its memory
with all others of the node. Ray itself is not loaded before: a process that loads it reads the
number of its job. The first process of a node starts as Ray starts it, and starts the one that
forks, which ends with its raylet, or some minutes after its last fork.

A process is forked only if it would have loaded the same: it uses the node's Python, no file of its
job has the name of a loaded module, and no variable has changed that was read meanwhile. All others
start as Ray starts them.

Ray ends a process with its group, so a fork joins the group of the process that asked for it.

This module is a file of every node and needs only Python.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import re
import runpy
import select
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

FILE = "worker_start.py"
SERVE = "serve"
SOCKET = "forks.sock"  # in the node's --temp-dir: a shorter path than those of Ray's own sockets
RAYLET = "RAY_RAYLET_PID"
MODULES = "PYTHONPATH"
OF_PROCESS = (MODULES, "RAY_JOB_ID")  # what Ray gives a process; all else is the node's
# What Ray Train and the jobs here import, where it is installed.
LOADED = ("torch", "torchvision", "pandas", "pyarrow.dataset", "pydantic", "requests", "jsonschema")
# Names of variables that libraries in C read while they are loaded, and Python at its start. Those
# that Python code reads are noted while it loads.
NATIVE = re.compile("(ARROW|BLIS|GLIBC|GOMP|GRPC|KMP|LD|MALLOC|MKL|OMP|OPENBLAS|PYTHON|TORCH_CPP)")
THREADS = "OMP_NUM_THREADS"
BLAS = re.compile(r"/\S*openblas\S*\.so\S*")
BLAS_THREADS = [f"{a}openblas_set_num_threads{b}" for a in ("", "scipy_") for b in ("", "64_")]
LOWEST = 19  # niceness
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 5.0  # between two looks at whether it is idle
IDLE_SECONDS = 600.0
LENGTH = 8  # bytes, before a request
FORKED, HEARD = b"f", b"h"

Request = dict[str, Any]


def main(words: list[str]) -> None:
    """Start a process of a job, or serve those that do."""
    if words[:1] == [SERVE]:
        serve(Path(words[1]), int(words[2]))
        return
    options = dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)
    context = json.loads(options.get("--serialized-runtime-env-context") or "{}")
    match context.get("command_prefix") or []:
        case []:
            folder = "."
        case ["cd", quoted, "&&"]:
            folder = shlex.split(quoted)[0]
        case _:  # an environment or a container of its own
            _as_ray_does()
    other = context.get("override_worker_entrypoint") or words[0].startswith("-")
    other = other or context.get("py_executable", sys.executable) != sys.executable
    if other or options.get("--language") != "PYTHON":
        _as_ray_does()
    os.chdir(folder)
    of_node = {name: value for name, value in os.environ.items() if name not in OF_PROCESS}
    _set(context.get("env_vars") or {})
    worker = [w for w in words if not w.startswith(("--serialized-runtime-env", "--language="))]
    request = {
        "worker": worker,
        "variables": dict(os.environ),
        "folder": str(Path.cwd()),
        "group": os.getpgrp(),
    }
    if not _forked(Path(options["--temp-dir"], SOCKET), of_node, request):
        # In place of this process.
        os.execv(sys.executable, [sys.executable, *worker])  # noqa: S606


def _as_ray_does() -> NoReturn:
    from ray._private.workers import setup_worker  # noqa: PLC0415

    runpy.run_path(setup_worker.__file__, run_name="__main__")
    sys.exit()


def _set(variables: Mapping[str, str]) -> None:
    """Set a job's variables, with those of the node in them, as Ray does."""
    for name, value in variables.items():
        os.environ[name] = re.sub(r"\$\{[A-Z0-9_]+\}", "", os.path.expandvars(value))


def _forked(place: Path, of_node: Mapping[str, str], request: Request) -> bool:
    """Ask for a fork, and tell it to go on; return whether there is one."""
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(ANSWER_SECONDS)
        try:
            server.connect(str(place))
        except OSError:
            _start_server(place, of_node)
            return False
        words = json.dumps(request).encode()
        with contextlib.suppress(OSError):
            socket.send_fds(server, [len(words).to_bytes(LENGTH, "big")], [0, 1, 2])
            server.sendall(words)
            if server.recv(1):
                server.sendall(HEARD)
                return True
    return False


def _start_server(place: Path, of_node: Mapping[str, str]) -> None:
    """Start the process that forks; nobody waits for its end."""
    if os.fork():
        os.wait()
        return
    if os.fork() == 0:
        os.setpgid(0, 0)  # Ray ends this process with its group
        nothing = os.open(os.devnull, os.O_RDWR)
        # Who reads this process's streams would otherwise wait until the server has ended, too.
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        words = [sys.executable, __file__, SERVE, str(place), of_node[RAYLET]]
        os.execve(sys.executable, words, of_node)  # noqa: S606
    os._exit(0)


class Loaded(NamedTuple):
    """The variables of the process that has loaded the modules."""

    before: dict[str, str]  # all, before the modules were loaded
    read: set[str]  # names that the modules asked for, whether or not they were set
    added: dict[str, str]  # those that the modules set


def serve(place: Path, raylet: int) -> None:
    """Load the modules, then fork until the raylet or all work has ended."""
    with place.with_suffix(".lock").open("a") as only:
        try:
            fcntl.flock(only, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        watched = os.pidfd_open(raylet)
        loaded = _load()
        new = place.with_suffix(".new")
        new.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(new))
            new.chmod(0o600)
            listener.listen(socket.SOMAXCONN)
            new.rename(place)
            # Otherwise one that has ended would still look alive.
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            request = _requested(listener, watched, loaded)
        os.close(watched)
        if request is None:
            place.unlink(missing_ok=True)
            return
    _become(request, loaded.added if loaded else {})


def _load() -> Loaded | None:
    """Import the modules; None if one of them fails, of which a part would stay."""
    read, failed = set[str](), list[Exception]()
    kind: Any = type(os.environ)
    item = kind.__getitem__

    def look(variables: Any, name: str) -> str:
        read.add(name)
        value: str = item(variables, name)
        return value

    def load() -> None:
        # Linux has a niceness for each thread, and only root may lower it again.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
        for name in LOADED:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError:
                continue
            except Exception as error:
                failed.append(error)

    before = dict(os.environ)
    kind.__getitem__ = look
    thread = threading.Thread(target=load)
    thread.start()
    thread.join()
    kind.__getitem__ = item
    gc.collect()
    gc.freeze()  # a look for garbage would copy what forks share
    return None if failed else Loaded(before, read, dict(os.environ.items() - before.items()))


def _requested(listener: socket.socket, raylet: int, loaded: Loaded | None) -> Request | None:
    """Return the request in the fork that it is for, None in the server at its end."""
    until = time.monotonic() + IDLE_SECONDS
    watched: list[Any] = [listener, raylet]
    while raylet not in (ready := select.select(watched, [], [], LOOK_SECONDS)[0]):
        if not ready:
            if _has_children():
                until = time.monotonic() + IDLE_SECONDS
            elif time.monotonic() > until:
                return None
            continue
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError, ValueError):
            client.settimeout(ANSWER_SECONDS)
            if request := _answer(client, loaded):
                return request
    return None


def _answer(client: socket.socket, loaded: Loaded | None) -> Request | None:
    """Fork for a client; return its request in the fork, None in the server."""
    head, files, *_ = socket.recv_fds(client, LENGTH, 3)
    try:
        words = b""
        while len(words) < int.from_bytes(head, "big"):
            if not (more := client.recv(2**20)):
                return None
            words += more
        request: Request = json.loads(words)
        if not loaded or not _would_load_the_same(request["variables"], loaded) or os.fork():
            return None
        try:
            os.setpgid(0, request["group"])
            client.sendall(FORKED)
            heard = client.recv(1) == HEARD
        except OSError:
            heard = False
        if not heard:
            os._exit(1)  # the client starts its process in the other way
        for number, file in enumerate(files):
            os.dup2(file, number)
        return request
    finally:
        for file in files:
            os.close(file)


def _would_load_the_same(variables: Mapping[str, str], loaded: Loaded) -> bool:
    """Whether a process with other variables would have loaded the same modules the same way."""
    changed = {name for name, _ in variables.items() ^ loaded.before.items()} - {*OF_PROCESS}
    if changed & loaded.read or any(map(NATIVE.match, changed)):
        return False
    for folder in _folders(variables):
        with contextlib.suppress(OSError):
            if {each.stem for each in Path(folder).iterdir()} & sys.modules.keys():
                return False
    return True


def _folders(variables: Mapping[str, str]) -> list[str]:
    return [folder for folder in variables.get(MODULES, "").split(os.pathsep) if folder]


def _become(request: Request, added: Mapping[str, str]) -> None:
    """Run Ray's worker in this fork, as a Python with these variables would."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update({**added, **request["variables"]})
    sys.argv[:] = request["worker"]
    sys.path[:1] = [str(Path(sys.argv[0]).parent), *_folders(os.environ)]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # each Python starts with other numbers
    from ray._private import utils  # noqa: PLC0415

    utils.set_omp_num_threads_if_unset = partial(_set_threads, utils.set_omp_num_threads_if_unset)
    runpy.run_path(sys.argv[0], run_name="__main__")


def _set_threads(as_ray_does: Callable[[], bool]) -> bool:
    """Set the variable of a task's threads, and the libraries that have looked for it before."""
    if changed := as_ray_does():
        number = int(os.environ[THREADS])
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(number)
        for path in set(BLAS.findall(Path("/proc/self/maps").read_text())):
            library = ctypes.CDLL(path)
            for name in BLAS_THREADS:
                with contextlib.suppress(AttributeError):
                    getattr(library, name)(number)
    return changed


def _has_children() -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
        return True
    return False


if __name__ == "__main__":
    main(sys.argv[1:])
