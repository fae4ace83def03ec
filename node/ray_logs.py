"""One folder of logs for all Ray nodes of a machine; runs inside `ray start` of a worker.

A process that joins a cluster joins the head's node if its machine has one: Ray 2.60 looks for any
node's process and prefers the head's. So does a worker's agent, which then looks for the log of a
job in the head's session, while the job that runs on the worker writes it into the worker's own.
Ray has no setting for that. The other folders of a session stay apart: two nodes would race for
names of sockets, and remove each other's packages.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from node import ray_start

THIS = f"{__name__}.share"
HEAD_VARIABLE = "TRAINYARD_HEAD_SESSIONS"
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.2


def environment(head_sessions: str) -> dict[str, str]:
    """Return the variables that make a worker's `ray start` share the head's `--temp-dir`."""
    return {ray_start.HOOK: THIS, HEAD_VARIABLE: head_sessions}


def share(parameters: Any, head: bool) -> None:
    """Link this node's folder of logs to the head's, and do what every node does."""
    ray_start.begin(parameters, head)
    # Not for the node's own processes.
    sessions = Path(os.environ.pop(HEAD_VARIABLE))
    session, deadline = "", time.monotonic() + WAIT_SECONDS
    while not (head or session) and time.monotonic() < deadline:
        if not (session := ray_start.session(ray_start.head_address(sys.argv))):
            time.sleep(POLL_SECONDS)
    if not session:
        return  # `ray start` itself reports a missing head
    logs = Path(parameters.temp_dir) / session / "logs"
    logs.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not logs.exists():
        logs.symlink_to(sessions / session / "logs")
    # The head's reads the folder for all: otherwise each line would be shown once per node.
    parameters.include_log_monitor = False
