"""The set-up that Ray runs first in each worker of a session's run."""

import importlib
import json
import os
from typing import Any

from . import messages, patches, trees

SESSION_VARIABLE = "TRAINYARD_DEV_SESSION"
NEXT_VARIABLE = "TRAINYARD_DEV_NEXT_HOOK"
HOOK = "worker_process_setup_hook"
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # of Ray: the job's own runtime environment


def set_up() -> None:
    """Brings this node's copy of the code up to date and imports from it."""
    session = os.environ[SESSION_VARIABLE]
    tree = trees.of_node(session)
    tree.place()
    if (overlay := messages.all_changes(session)) is not None:
        tree.update(patches.unpack(overlay)[1])
    tree.enter()
    if following := os.environ.get(NEXT_VARIABLE):
        module, _, function = following.rpartition(".")
        getattr(importlib.import_module(module), function)()


def job_configuration(text: str, session: str) -> str:
    """Return Ray's JSON of a job, with this hook before the user's."""
    from ray._private import ray_constants  # noqa: PLC0415 - slow

    job: dict[str, Any] = json.loads(text)
    env = job.setdefault("runtime_env", {})
    variables = env.setdefault("env_vars", {})
    variables.pop(ray_constants.WORKER_PROCESS_SETUP_HOOK_ENV_VAR, None)
    variables |= {SESSION_VARIABLE: session, NEXT_VARIABLE: env.get(HOOK) or ""}
    env[HOOK] = f"{__name__}.{set_up.__name__}"
    return json.dumps(job)
