"""Submits a job again: the same script and arguments, for the same run or another.

The facts about a job come from anyone who controls the cluster. They choose among the jobs of
this package, but never a file or folder of this machine, which is read, executed and uploaded here.
"""

import shlex
from typing import Any

from trainyard.client import scripts, submission
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job
from trainyard.client.submission import RECORDER
from trainyard.packing import Bundle

# Of a job's runtime environment, with the types that Ray keeps them in: given a text, Ray's client
# takes the last three for files of this machine, and sends their lines.
TAKEN: dict[str, tuple[type, ...]] = {
    "config": (dict,),
    "env_vars": (dict,),
    "pip": (dict, list),
    "uv": (dict, list),
    "conda": (dict,),
}
# From the client, which uploads them again, or useless to another job.
LEFT_OUT = ("working_dir", "py_modules", "excludes", "_ray_commit", "_inject_current_ray")
MODULE = ("python", "-m")
JOBS_PACKAGE = "trainyard.jobs."


def request(
    job: Job, entrypoint: Bundle, run: str, own: scripts.Script | None = None
) -> submission.Request:
    """The request that a job came from.

    Args:
        job: was submitted by this client.
        entrypoint: the request of its entrypoint.
        run: the name of the run to train.
        own: the script, as the user named it; None if it is one of this package.

    Raises:
        ClientError: the job did not come from that script.
    """
    script, arguments = script_of(job, own)
    earlier = job.runtime_env
    env: dict[str, Any] = {}
    for key, value in earlier.items():
        if key not in LEFT_OUT:
            if not isinstance(value, TAKEN.get(key, ())):
                raise ClientError(
                    f"job {job.submission_id} has {key} in its runtime environment, which is not "
                    "taken from a cluster: submit a run without it, then drill that"
                )
            env[key] = value
    env |= submission.runtime_env(None, script, run, progress=True)
    env["env_vars"] = earlier.get("env_vars", {}) | env["env_vars"]
    return submission.Request(
        script=script,
        arguments=arguments,
        config=scripts.config(script, arguments),
        run_name=run,
        runtime_env=env,
        entrypoint=entrypoint,
    )


def script_of(job: Job, own: scripts.Script | None) -> tuple[scripts.Script, list[str]]:
    """Return a job's script and arguments; ClientError if the job did not come from that script."""
    try:
        words = shlex.split(job.entrypoint)
    except ValueError:
        words = []
    words = words[len(RECORDER) :] if tuple(words[: len(RECORDER)]) == RECORDER else words
    module = words[2] if tuple(words[:2]) == MODULE and len(words) > 2 else ""
    name = module.removeprefix(JOBS_PACKAGE).replace(".", "/")
    if own is None and module.startswith(JOBS_PACKAGE) and name in scripts.names():
        own = scripts.find(name)
    if own is None:
        path = str(job.metadata.get(submission.SCRIPT, ""))[:200]
        raise ClientError(
            f"job {job.submission_id} runs {job.entrypoint[:200]!r}, a script of your own, which "
            "the drill submits again; no cluster says which of your files that is. Name it with "
            f"--script, and with --working-dir if you gave that (the job says {path!r})"
        )
    if tuple(words[: len(own.command)]) != own.command:
        raise ClientError(
            f"job {job.submission_id} runs {job.entrypoint[:200]!r}, and {own.path} would be "
            f"{' '.join(own.command)!r}: give --script and --working-dir as it was submitted"
        )
    return own, words[len(own.command) :]
