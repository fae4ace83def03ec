"""From a command line to a submitted job: its content, and the checks before it is sent."""

from __future__ import annotations

import json
import re
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from trainyard import options
from trainyard.access import parallel, repository, user
from trainyard.client import feasibility, listing, package, preflight, runtimes, scripts
from trainyard.client.console import say
from trainyard.client.dashboard import (
    Dashboard,
    DashboardError,
    RefusedError,
    UnreachableError,
    UnreadableError,
)
from trainyard.client.errors import ClientError, UnreachedError
from trainyard.client.job_server import Status
from trainyard.client.listing import NEVER_UPLOADED
from trainyard.client.outputs import StackOutputs
from trainyard.client.package import Packed
from trainyard.client.pull.meter import Meter
from trainyard.client.state import ClusterState
from trainyard.packing import Bundle, describe
from trainyard.tracking import run_folder

if TYPE_CHECKING:
    from trainyard.client.job_server import JobServer

SERVER_ERROR = re.compile(r"^\w*(?:Error|Exception): (.+)$", re.MULTILINE)
JOBS = "/api/jobs/"
SCRIPT = "script"  # metadata: the script's path, to find it again
NO_NODE_YET = "No available agent"  # after 10 s of waiting for one, as in a cluster just started
MOST_DIFF = 256 * 1024  # bytes
TIME = "-20260101-0300"  # that a queue adds to the names of jobs that repeat
NAME_LENGTH = 30  # of a script's name in a run's, before the time and a point's number
# Ray writes it into the name of a log file, and keeps a job that it then cannot start as PENDING.
SUBMISSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
TRIES = 3
RETRIES = 3  # after the loss of a head, of jobs that resume
RECORDER = ("python", "-m", "trainyard.recorder")
# As Ray looks for conda. It never calls mamba; Miniforge's conda uses mamba's solver.
CONDA_PROBE = 'test -n "$RAY_CONDA_HOME$CONDA_EXE" || command -v conda'
NODE_ID = "ray.io/node-id"  # label that Ray gives each node
# Names of Ray's options by the names in a bundle.
ENTRYPOINT = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """The user's request.

    `config` has the values of the arguments, from which the bundles of its workers follow; none
    where the script does not say.

    Raises:
        ClientError: the submission id cannot be a file's name.
    """

    script: scripts.Script
    arguments: Sequence[str]  # of the script; `scripts.config` has checked them
    config: options.Config = field(default_factory=dict)
    run_name: str
    runtime_env: dict[str, Any]
    submission_id: str | None = None  # for the job; None for a new one from Ray
    entrypoint: Bundle = field(default_factory=dict)  # its own, which may be empty
    is_plain: bool = False  # it computes: what its bundle does not say is `feasibility.plain`
    own: bool = False  # whether the run must be this user's, as far as the cluster knows
    order: Mapping[str, str] = field(default_factory=dict)  # what is asked of a queue, as metadata

    def __post_init__(self) -> None:
        if self.submission_id is not None and not SUBMISSION_ID.fullmatch(self.submission_id):
            raise ClientError(
                f"submission id {self.submission_id[:80]!r} is not 1 to 128 letters, digits, '.', "
                "'_' or '-' beginning with a letter or digit: give another --submission-id"
            )


def default_run_name(script: scripts.Script) -> str:
    """Return a new run's name: the script's as far as it fits, the time and six digits."""
    own = re.sub(r"[^a-z0-9]+", "-", script.name.lower())[:NAME_LENGTH].strip("-") or "job"
    return f"{own}-{datetime.now().astimezone():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def runtime_env(
    file: Path | None,
    script: scripts.Script,
    run_name: str,
    *,
    progress: bool,
    packages: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> dict[str, Any]:
    """The runtime environment of a job: the user's file, the code, the run's variables.

    The file is YAML or JSON of Ray's keys, and `progress` tells whether somebody watches. Packages
    are pip's, besides those of the file and of the script's first comment; variables `KEY=VALUE`.

    Raises:
        ClientError: the file is not a runtime environment, it names another working folder, or the
            script is left out.
    """
    own = [] if script.working_dir is None else runtimes.inline(script.path)
    env = {} if file is None else runtimes.read(file)
    env = runtimes.with_more(env, [*own, *packages], variables)
    named, ours = env.get("working_dir"), script.working_dir
    if named and ours and Path(named).resolve() != Path(ours).resolve():
        raise ClientError(
            f"runtime environment {file} has the working_dir {named[:80]!r}, and the job's is "
            f"{ours}: name the folder with --working-dir, and leave it out of the file"
        )
    if script.working_dir is not None:
        env["working_dir"] = script.working_dir
    if script.module is not None:
        env["py_modules"] = [*env.get("py_modules", []), str(script.module)]
    # Ray would install it on each new node for the job, and also for the first actor: one of these
    # removes the code while the other looks for it, and the job fails (Ray 2.60).
    env["config"] = {"eager_install": False} | env.get("config", {})
    env["excludes"] = [*env.get("excludes", []), *NEVER_UPLOADED]
    _check_script_goes(script, env["excludes"])
    env["env_vars"] = env.get("env_vars", {}) | {
        run_folder.RUN_VARIABLE: run_name,
        run_folder.COMMIT_VARIABLE: commit(script.path.parent),
        run_folder.PROGRESS_VARIABLE: "1" if progress else "0",
    }
    return env


def _check_script_goes(script: scripts.Script, excludes: Sequence[str]) -> None:
    """Refuses a script that its own upload leaves out."""
    if script.module is not None and script.module in script.path.parents:
        return  # one of this package
    folder = Path(script.working_dir or script.path.parent)
    found = listing.of_folder(folder, excludes).files
    if not any(folder.absolute() / entry.name == script.path for entry in found):
        raise ClientError(
            f"{script.path} is left out of the upload of {folder} by .gitignore, .rayignore or "
            "`excludes`, and the job would have no script: let it in there"
        )


def commit(folder: Path) -> str:
    """The git commit of a folder, with `-dirty` at its end when files differ; "" without git."""
    found = _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    return found.decode().strip()


def _keep_diff(folder: Path, run: str, job: str, outputs: StackOutputs) -> dict[str, str]:
    """Stores how tracked files differ from the commit, if that is small and has no secret.

    Returns the number of files, and the name of the stored diff, for the job's record.
    """
    from trainyard.client.store import open_store  # noqa: PLC0415 - slow

    changed = {"changed": str(len(_git(folder, "diff", "--name-only", "HEAD").splitlines()))}
    secret = [f"**/{each}**" if each.endswith("/") else f"**/{each}" for each in listing.SECRETS]
    safe = (":/", *(f":(top,exclude,glob){each}" for each in secret))
    diff = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "HEAD", "--", *safe)
    if not diff or len(diff) > MOST_DIFF or any(each.encode() in diff for each in outputs.secrets):
        return changed
    name = f"{run_folder.CODE}/{job}.diff"
    try:
        open_store(outputs).write(f"{run}/{name}", diff)
    except ClientError:  # out of reach from here
        return changed
    return changed | {"diff": name}


def _git(folder: Path, *arguments: str) -> bytes:
    """Return what git prints about a folder; nothing without git."""
    command, env = ["git", "-C", str(folder), *arguments], repository.environment()
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, env=env, capture_output=True, timeout=5, check=False).stdout
    return b""


def submit(request: Request, outputs: StackOutputs, *, force: bool) -> tuple[JobServer, str]:
    """Checks a request and sends it; `force` sends a job that no declared node can hold.

    Returns:
        The job server, and the job's submission id.

    Raises:
        ClientError: a check failed, or the server refused the job.
    """
    given = request.entrypoint
    asked = feasibility.plain(outputs.nodes, given) if request.is_plain else given
    entrypoint = {name: amount for name, amount in asked.items() if amount}
    nodes = [feasibility.capacity(node) for node in outputs.nodes]
    bundles = options.request(request.config, nodes)
    if entrypoint:
        bundles = [entrypoint, *bundles]
    if not force:
        feasibility.check_fits(bundles, outputs)
    env, name = request.runtime_env, request.run_name
    if with_gpus := [node for node in nodes if node["GPU"]]:
        env["env_vars"][run_folder.NODES_VARIABLE] = json.dumps(with_gpus)
    server, packed = preflight.run(env, name, outputs, outputs.user if request.own else "")
    order = _for_queue(request, server, outputs)
    if "conda" in env:
        check_conda(server, outputs)
    from trainyard.client import claims  # noqa: PLC0415 - slow

    say(f"Job submission server address: {outputs.dashboard_url}")
    off_head = {}
    if request.is_plain:
        off_head = _off_head(entrypoint, outputs)
        what = f"with {describe(entrypoint)}" if entrypoint else "on the head"
        say(
            f"{request.script.job} runs {what}: change that with --entrypoint-num-cpus, "
            "--entrypoint-num-gpus or --on-head"
        )
    elif outputs.queue and not bundles and scripts.is_driver(request.script):
        say(
            f"no argument of {request.script.job} says what its workers need (docs/jobs.md), so "
            "the queue starts it at once: to have it wait for room, add --entrypoint-num-cpus"
        )
    job_id = request.submission_id or new_job_id()
    of_code = env["env_vars"][run_folder.COMMIT_VARIABLE]
    facts = metadata(request.script, name, of_code, bundles) | order | {"force": str(int(force))}
    _upload(packed.packages, Dashboard(outputs))  # now: a claim waits for no upload
    with claims.held(name, job_id, outputs, server, force=force):
        if of_code.endswith(run_folder.DIRTY) and "every" not in order:  # its runs have other names
            facts |= _keep_diff(request.script.path.parent, name, job_id, outputs)
        submission_id = send(
            outputs,
            packed,
            entrypoint=entrypoint_of(request.script, request.arguments),
            submission_id=job_id,
            metadata=facts,
            **entrypoint_options(entrypoint),
            **off_head,
        )
    return server, submission_id


def _for_queue(request: Request, server: JobServer, outputs: StackOutputs) -> dict[str, str]:
    """Return the metadata that a queue reads; jobs to come after are named by their ids."""
    order = {"retries": str(RETRIES if scripts.resumes(request.script) else 0), **request.order}
    if not request.order:
        return order
    from trainyard.client import jobs  # noqa: PLC0415 - slow

    if not dict(server.version(jobs.SERVER_TIMEOUT_S)).get("queue"):
        raise ClientError(
            f"stack {outputs.stack!r} has no queue, and --{', --'.join(request.order)} asks for "
            "one: set queue to true in its settings and run `make up`, or leave that out"
        )
    if "after" in order:
        found = [jobs.resolve(server, each) for each in order["after"].split(",")]
        order["after"] = ",".join(job.submission_id for job in found)
    return order


def entrypoint_of(script: scripts.Script, arguments: Sequence[str]) -> str:
    """Return a job's command line: what records it runs its script, where it is uploaded too."""
    recorded = RECORDER if script.module is not None else ()
    return join([*recorded, *script.command, *arguments])


def new_job_id() -> str:
    """Return an id like Ray's own; known before the job is sent, so that it can be noted."""
    return f"raysubmit_{secrets.token_hex(8)}"


def _off_head(bundle: Bundle, outputs: StackOutputs) -> dict[str, Any]:
    """Return Ray's option that keeps a plain script on workers, if the head has room for it too."""
    if not bundle or any(
        feasibility.shortfall([bundle], nodes) for nodes in (outputs.nodes[:1], outputs.nodes[1:])
    ):
        return {}
    with suppress(DashboardError):  # a queue takes jobs while its head is away
        for head in ClusterState(outputs).nodes()[:1]:
            return {"entrypoint_label_selector": {NODE_ID: f"!{head.id}"}}
    return {}


def check_conda(server: JobServer, outputs: StackOutputs) -> None:
    """Refuses a cluster without conda, for a runtime environment that needs it.

    A small job asks the head. Ray would find out on the node, minutes later, and say so in a
    traceback.

    Raises:
        ClientError: saying what to install.
    """
    say("the runtime environment needs conda: asking the head for it, which takes some seconds")
    from trainyard.client import job_log  # noqa: PLC0415 - slow

    job_id = send(outputs, entrypoint=CONDA_PROBE, metadata={"job": "conda"})
    if job_log.follow(server, job_id, lambda _: None).status is not Status.SUCCEEDED:
        raise ClientError(
            f"the head of stack {outputs.stack!r} has no conda, which the runtime environment "
            "asks for: install Miniforge on every node, with conda on the PATH of Ray or its "
            "folder in RAY_CONDA_HOME, and restart Ray (a stack's: `make up`); or list the "
            "packages under `pip`"
        )


def entrypoint_options(bundle: Bundle) -> dict[str, Any]:
    """Return Ray's options of a submission for the bundle of its entrypoint."""
    chosen: dict[str, Any] = {
        f"entrypoint_{name}": bundle[key] for key, name in ENTRYPOINT.items() if key in bundle
    }
    if "memory" in bundle:
        chosen["entrypoint_memory"] = int(bundle["memory"])
    if custom := {k: v for k, v in bundle.items() if k not in ENTRYPOINT}:
        chosen["entrypoint_resources"] = custom
    return chosen


def metadata(
    script: scripts.Script, run_name: str, commit: str, demand: Sequence[Bundle]
) -> dict[str, str]:
    """Return the facts that the cluster keeps of a job for `train list`, `status` and `drill`."""
    return {
        "run": run_name,
        "job": script.name,
        SCRIPT: str(script.path),
        "commit": commit,
        "user": user.name(),
        "demand": json.dumps(list(demand)),
    }


def send(outputs: StackOutputs, packed: Packed | None = None, **job: Any) -> str:
    """Uploads, and submits by Ray's REST API of jobs.

    `packed` is the runtime environment, and `job` has fields of that API's submission, such as
    `entrypoint`; None is left out. `metadata` has `run`, `job` or both. Returns the job's id.

    Raises:
        UnreachedError: the server was not reached.
        ClientError: it refused the job, or a file of packages cannot be read.
    """
    dashboard = Dashboard(outputs)
    facts = job["metadata"]
    shown = f"{facts.get('run') or facts['job']} ({user.name()})"
    job["metadata"] = facts | {"job_name": shown}  # the name in the job list of Ray's dashboard
    if packed is not None:
        _upload(packed.packages, dashboard)
        job["runtime_env"] = _stored(runtimes.with_files(packed.env), outputs)
    try:
        return _send(dashboard, {name: value for name, value in job.items() if value is not None})
    except UnreachableError as error:
        raise UnreachedError(
            f"the job was not sent, {outputs.dashboard_url} does not answer ({error}): look "
            "whether the stack is up (train info), then run the same command again"
        ) from None
    except DashboardError as error:
        text = error.text if isinstance(error, RefusedError) else ""
        # The server answers with its traceback, whose last error is the reason.
        said = SERVER_ERROR.findall(text) or [text or str(error)]
        raise ClientError(
            f"the job was not taken: {said[-1]}; "
            "mend the runtime environment or the options, then submit again"
        ) from None


def _stored(env: dict[str, Any], outputs: StackOutputs) -> dict[str, Any]:
    """A runtime environment with the store of an attached cluster: nodes of a stack know theirs."""
    if not (outputs.attached and outputs.storage_url):
        return env
    variables = {run_folder.STORAGE_VARIABLE: outputs.storage_url} | env.get("env_vars", {})
    return env | {"env_vars": variables}


def _upload(packages: Mapping[str, bytes], dashboard: Dashboard) -> None:
    """Sends packages that the head lacks."""
    for name, content in packages.items():
        path = f"/api/packages/gcs/{name}"
        try:
            if not dashboard.has(path):  # this also keeps it until the job starts
                say(f"Uploading package gcs://{name} ({len(content) / package.MIB:.1f} MiB).")
                meter = Meter("uploaded", len(content))
                try:
                    dashboard.put(path, content, meter.add)
                finally:
                    meter.close()
        except DashboardError as error:
            kind = UnreachedError if isinstance(error, UnreachableError) else ClientError
            raise kind(
                f"the upload of {len(content) / package.MIB:.1f} MiB to {dashboard.url} "
                f"failed ({error}): look whether the stack is up (train info), then run the same "
                "command again"
            ) from None


def _send(dashboard: Dashboard, job: Mapping[str, Any]) -> str:
    for _ in range(TRIES - 1):
        try:
            return _post(dashboard, job)
        except RefusedError as error:
            if NO_NODE_YET not in error.text:
                raise
            say("no node of the cluster takes jobs yet; asking again")
    return _post(dashboard, job)


def _post(dashboard: Dashboard, job: Mapping[str, Any]) -> str:
    answer = dashboard.post(JOBS, job)
    try:
        return str(answer["submission_id"])
    except (KeyError, TypeError) as error:
        raise UnreadableError(type(error).__name__) from None


def prepare() -> Future[None]:
    """Imports the modules of a submission while the outputs are read.

    Returns:
        Done when they are imported. Wait for it before the checks begin: threads that import the
        same packages at a time can meet them half made, or deadlock.
    """

    def load() -> None:
        with suppress(ModuleNotFoundError):  # a client without Ray
            from ray import runtime_env  # noqa: F401, PLC0415 - slow
        from trainyard.client import job_log  # noqa: F401, PLC0415 - slow
        from trainyard.store import s3_requests  # noqa: F401, PLC0415 - slow

    return parallel.start(load)
