"""Submits again what a job ran: the same script and arguments, for the same run or another."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ray.dashboard.modules.job.pydantic_models import JobDetails

from training.client import scripts, submission
from training.client.feasibility import Bundle

UPLOADED = ("working_dir", "py_modules", "excludes")  # from the client, which uploads it anew


def request(job: JobDetails, entrypoint: Bundle, run: str) -> submission.Request:
    """The request that a job came from.

    Args:
        job: was submitted by this client.
        entrypoint: what its entrypoint asked for.
        run: the name of the run to train.

    Raises:
        ClientError: its script is not on this machine.
    """
    known = job.metadata or {}
    words = shlex.split(job.entrypoint)
    path = known.get(submission.SCRIPT, "")
    # `python a/b.py` was sent with the folder above a; a job of training/jobs runs as a module.
    above = None if words[1] == "-m" else Path(path).parents[len(Path(words[1]).parts) - 1]
    script = scripts.find(path, None if above is None else str(above))
    earlier = job.runtime_env or {}
    env: dict[str, Any] = {k: v for k, v in earlier.items() if k not in UPLOADED}
    env |= submission.runtime_env(None, script, run, progress=True)
    env["env_vars"] = earlier.get("env_vars", {}) | env["env_vars"]
    custom = {k: v for k, v in entrypoint.items() if k not in ("CPU", "GPU", "memory")}
    memory = entrypoint.get("memory")
    return submission.Request(
        script=script,
        arguments=words[len(script.command) :],
        run_name=run,
        runtime_env=env,
        submission_id=None,
        num_cpus=entrypoint.get("CPU"),
        num_gpus=entrypoint.get("GPU"),
        memory=None if memory is None else int(memory),
        resources=custom or None,
    )
