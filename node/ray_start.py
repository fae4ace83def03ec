"""Code of a Ray node inside `ray start`: before its processes start, and while they run.

A node ends with its raylet, for any reason, and when another head answers in place of its own: the
raylet would wait 20 s for that, as for a network that is away. When a process of the node crashes,
`ray start --block` ends, and its supervisor restarts the node. It ignores a raylet that ended in
order, because `ray stop` ends it like that. But a raylet also ends like that when one of its agents
is gone, and when the head took it for dead. Ray has no setting for that; such a node would never
come back.

A node that is started again first ends what its last start has left: without its raylet and head,
an agent goes on for 20 s, in which it holds the node's ports, and a process of a job may write on.

Its processes run in a virtual environment that contains only the path of the real one's packages.
For a job with a `pip` list Ray copies the environment that the node runs in: with PyTorch 6 GB. A
copy of the empty one has some KB, and pip finds the real one's packages there.

A node whose machine comes and goes joins a head once. When it ends, drained or crashed, Ray's
autoscaler stops requesting its machine, which takes a while to end: until then the node must not
come back, or jobs would go to it. Only another head accepts it again.

This module is a file of every node, wherever that runs, and needs only Ray.
"""

import contextlib
import json
import os
import shutil
import socket
import sys
import sysconfig
import threading
import time
import venv
from pathlib import Path
from typing import Any

import psutil  # Ray brings its own

HOOK = "RAY_START_HOOK"  # Ray calls what this variable names before it starts a node
FILE = "ray_start.py"
MODULES = "PYTHONPATH"
NODE_PROVIDER = "node_provider.py"  # next to this file
WORKER_START = "worker_start.py"  # next to this file
PRELOAD = "TRAINYARD_PRELOAD"  # whether processes of jobs start by it
JOINS_ONCE = {"TRAINYARD_JOINS_ONCE": "1"}  # of a node whose machine comes and goes
JOINED = "joined"  # file in the node's --temp-dir, with the session of the head that it joined
LATEST = "session_latest"  # link there that Ray makes
NODES = "TRAINYARD_NODES"  # for jobs: JSON of what each node offers, started or not
ENVIRONMENT = "python"  # folder of the empty environment, in the node's --temp-dir
RAYLET = "raylet"
PROGRAM = ("SUPERVISOR_SERVER_URL", "SUPERVISOR_PROCESS_NAME")  # supervisord's names of a node
POLL_SECONDS = 1.0
AGAIN_SECONDS = 30.0
CONNECT_SECONDS = 3.0
KILL_SECONDS = 5.0
# For Ray, which reports more about a crash, and then ends.
GRACE_SECONDS = 3.0


def environment(path: str) -> dict[str, str]:
    """Return the variables that make `ray start` call `begin` of this file on the node."""
    return {HOOK: f"{Path(path).stem}.{begin.__name__}", MODULES: str(Path(path).parent)}


def begin(parameters: Any, head: bool) -> None:
    """Prepare the node and watch its raylet; Ray's hook calls it."""
    # Not at the top: a stack's program reads this module without Ray.
    from ray._common import utils  # noqa: PLC0415

    current = Path(utils.get_ray_address_file(parameters.temp_dir))  # pods' nodes have no folder
    folder = current.parent
    _end_leftovers()
    if head:  # it would wait 20 s for the end of nodes of this machine, which wait for a head
        current.unlink(missing_ok=True)
    # Not for the node's children.
    for name in (HOOK, MODULES):
        os.environ.pop(name, None)
    if sys.prefix != sys.base_prefix:  # otherwise jobs' environments use the system's
        _use_empty_environment(folder / ENVIRONMENT)
    if os.environ.pop(PRELOAD, ""):
        parameters.setup_worker_path = str(Path(__file__).with_name(WORKER_START))
    if parameters.autoscaling_config:
        _declare(Path(parameters.autoscaling_config))
    joined, address = folder / JOINED, head_address(sys.argv)
    if all(os.environ.pop(name, "") == value for name, value in JOINS_ONCE.items()):
        while joined.exists() and joined.read_text() == session(address):
            sys.stderr.write("The head has let this node go: it waits for its machine to end.\n")
            time.sleep(AGAIN_SECONDS)
    threading.Thread(target=_follow, args=[joined, address], name="ray-watch", daemon=True).start()


def _end_leftovers() -> None:
    """Kill the processes of the node's last start; containers and pods have none."""
    program = {name: os.environ.get(name) for name in PROGRAM}
    if None in program.values():
        return
    ours = {os.getpid(), *(process.pid for process in psutil.Process().parents())}
    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found = process.environ()
            is_left = process.pid not in ours and process.uids().real == os.getuid()
            if is_left and {name: found.get(name) for name in PROGRAM} == program:
                process.kill()
                left.append(process)
    psutil.wait_procs(left, timeout=KILL_SECONDS)  # until then it holds its ports


def _use_empty_environment(folder: Path) -> None:
    """Make the environment, and let all children use it, jobs' drivers too."""
    venv.create(folder, symlinks=True)
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    packages = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    Path(own, "packages.pth").write_text("\n".join([*packages, ""]))
    # On a head with an autoscaler, which imports it.
    if (provider := Path(__file__).with_name(NODE_PROVIDER)).exists():
        shutil.copy(provider, own)
    programs = folder / "bin"
    sys.executable = str(programs / "python")  # Ray starts its processes with it
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


def _declare(autoscaling: Path) -> None:
    """Tell jobs what nodes the head's autoscaler may start; Ray itself tells them nothing."""
    types = json.loads(autoscaling.read_text())["available_node_types"].values()
    nodes = [kind["resources"] for kind in types for _ in range(kind["max_workers"])]
    os.environ[NODES] = json.dumps(nodes)


def head_address(words: list[str]) -> tuple[str, int] | None:
    """Return the address of the head that a command line names, None for a head's own."""
    address = next((w.partition("=")[2] for w in words if w.startswith("--address=")), "")
    host, _, port = address.rpartition(":")
    return (host, int(port)) if host else None


def _answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def session(address: tuple[str, int] | None) -> str:
    """Return the session of the head at an address, "" where it does not answer."""
    # Ray's client would wait 40 s for a head that is gone.
    if address is None or not _answers(address):
        return ""
    try:
        # Not at the top: a head does not need it.
        from ray import _raylet  # noqa: PLC0415

        client: Any = getattr(_raylet, "GcsClient")  # noqa: B009 (types do not know it)
        name = client(address="{}:{}".format(*address)).internal_kv_get(b"session_name", b"session")
    except Exception:  # any error of Ray's: `ray start` reports it better
        return ""
    return (name or b"").decode()


def _follow(joined: Path, address: tuple[str, int] | None) -> None:
    while (raylet := _raylet()) is None:
        time.sleep(POLL_SECONDS)
    own = joined.with_name(LATEST).resolve().name
    with contextlib.suppress(OSError):  # the watch goes on
        joined.write_text(own)
    away, why = False, f"The raylet (process {raylet.pid}) has ended"
    while _runs(raylet):
        time.sleep(POLL_SECONDS)
        if address and not _answers(address):
            away = True
        elif away and (now := session(address)):
            away = False
            if now != own:
                why = "Another head has taken the place of this node's"
                break
    else:
        time.sleep(GRACE_SECONDS)
    sys.stderr.write(f"{why}, so this node ends, to be restarted.\n")
    sys.stderr.flush()
    # As Ray does after a crash: its reaper kills the remaining processes.
    os._exit(1)


def _raylet() -> psutil.Process | None:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name() == RAYLET:
                return child
    return None


def _runs(process: psutil.Process) -> bool:
    # Its exit status is Ray's to collect; until then it is a zombie.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
