"""Checks with a small job that the head has conda for a runtime environment that needs it.

Ray would find out on the node, minutes later, and say so in a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainyard.client.console import say
from trainyard.client.errors import ClientError
from trainyard.client.job_server import JobServer, Status
from trainyard.client.outputs import StackOutputs

# As Ray looks for it. It never calls mamba; Miniforge's conda uses mamba's solver.
PROBE = 'test -n "$RAY_CONDA_HOME$CONDA_EXE" || command -v conda'


def check(
    runtime_env: Mapping[str, Any],
    server: JobServer,
    outputs: StackOutputs,
    send: Callable[..., str],
) -> None:
    """Refuses a runtime environment with conda for a cluster without conda.

    Args:
        runtime_env: of the job.
        server: the stack's.
        outputs: of the stack.
        send: submits a job.

    Raises:
        ClientError: saying what to install.
    """
    if "conda" not in runtime_env:
        return
    say("the runtime environment needs conda: asking the head for it, which takes some seconds")
    from trainyard.client import jobs  # noqa: PLC0415 - slow

    job_id = send(outputs, entrypoint=PROBE, metadata={"job": "conda"})
    job = jobs.follow(server, job_id, lambda _: None)
    if job.status is not Status.SUCCEEDED:
        raise ClientError(
            f"the head of stack {outputs.stack!r} has no conda, which the runtime environment "
            "asks for: install Miniforge on every node, with conda on the PATH of Ray or its "
            "folder in RAY_CONDA_HOME, then `make up`; or list the packages under `pip`"
        )
