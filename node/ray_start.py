"""Code of a Ray node inside `ray start`: before its processes start, and while they run.

A node ends with its raylet, for any reason. When a process of the node crashes,
`ray start --block` ends, and its supervisor restarts the node. It ignores a raylet that ended in
order, because `ray stop` ends it like that. But a raylet also ends like that when one of its agents
is gone, and when the head took it for dead. Ray has no setting for that; such a node would never
come back.

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
JOINS_ONCE = {"TRAINYARD_JOINS_ONCE": "1"}  # of a node whose machine comes and goes
JOINED = "joined"  # file in the node's --temp-dir, with the session of the head that it joined
LATEST = "session_latest"  # link there that Ray makes
NODES = "TRAINYARD_NODES"  # for jobs: JSON of what each node offers, started or not
ENVIRONMENT = "python"  # folder of the empty environment, in the node's --temp-dir
RAYLET = "raylet"
POLL_SECONDS = 1.0
AGAIN_SECONDS = 30.0
CONNECT_SECONDS = 3.0
# For Ray, which reports more about a crash, and then ends.
GRACE_SECONDS = 3.0


def environment(path: str) -> dict[str, str]:
    """Return the variables that make `ray start` call `begin`.

    Args:
        path: of this module's text on the node.
    """
    return {HOOK: f"{Path(path).stem}.{begin.__name__}", MODULES: str(Path(path).parent)}


def source_text() -> str:
    """Return the content of this module's file."""
    return Path(__file__).read_text()


def begin(parameters: Any, _head: bool) -> None:
    """Prepare the node and watch its raylet; Ray's hook calls it."""
    # Not for the node's children.
    for name in (HOOK, MODULES):
        os.environ.pop(name, None)
    if sys.prefix != sys.base_prefix:  # otherwise jobs' environments use the system's
        _use_empty_environment(Path(parameters.temp_dir) / ENVIRONMENT)
    if parameters.autoscaling_config:
        _declare(Path(parameters.autoscaling_config))
    joined = None
    if all(os.environ.pop(name, "") == value for name, value in JOINS_ONCE.items()):
        joined = Path(parameters.temp_dir, JOINED)
        while joined.exists() and joined.read_text() == _session(sys.argv):
            sys.stderr.write("The head has let this node go: it waits for its machine to end.\n")
            time.sleep(AGAIN_SECONDS)
    threading.Thread(target=_follow, args=[joined], name="ray-watch", daemon=True).start()


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


def _session(words: list[str]) -> str:
    """Return the session of the head that a command line names, "" where it does not answer."""
    address = next((w.partition("=")[2] for w in words if w.startswith("--address=")), "")
    host, _, port = address.rpartition(":")
    try:
        # Ray's client would wait 40 s for a head that is gone.
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        # Not at the top: a head does not need it.
        from ray import _raylet  # noqa: PLC0415

        client: Any = getattr(_raylet, "GcsClient")  # noqa: B009 (types do not know it)
        name = client(address=address).internal_kv_get(b"session_name", b"session")
    except Exception:  # any error of Ray's: `ray start` reports it better
        return ""
    return (name or b"").decode()


def _follow(joined: Path | None) -> None:
    while (raylet := _raylet()) is None:
        time.sleep(POLL_SECONDS)
    if joined is not None:
        joined.write_text(joined.with_name(LATEST).resolve().name)
    while _runs(raylet):
        time.sleep(POLL_SECONDS)
    time.sleep(GRACE_SECONDS)
    sys.stderr.write(
        f"The raylet (process {raylet.pid}) has ended, so this node ends, to be restarted.\n"
    )
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
