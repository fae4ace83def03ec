"""P27: what a command costs as a stack grows. Beside each stands a quarter of the size.

A ratio of 4 is linear. Half of the jobs have ended: they are records in Ray's own memory. The
others wait in a queue. Runs are stored as jobs store them, with two checkpoints each. Nodes are
only previewed: no machine here has 64 of them.
"""

import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
import yaml

from bench import measure
from bench.form import Form
from bench.measure import FailedError, Ratio
from bench.p18_client import AT_ONCE, store_runs, train
from bench.p23_ui import DEADLINE_S, QUERY, Browser, page
from bench.scratch import ScratchStack, scratch_stack
from trainyard.client import outputs
from trainyard.client.store import open_store
from trainyard.client.ui.stacks import JOBS_S
from trainyard.resume import checkpoint_files
from trainyard.store.objects import Store

ROUNDS = 5
LINEAR = 4.0  # the parts are a quarter each
GROUPS, NODES_EACH = 8, 8
JOBS = 2000
RUNS, CHECKPOINTS_EACH = 5000, 2
# In a process of its own, which has Ray's token from its first line.
ENDED_JOBS = """
import asyncio, sys
from ray._raylet import GcsClient
from ray.dashboard.modules.job.common import JobInfo, JobInfoStorageClient
from ray.job_submission import JobStatus

address, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = JobInfoStorageClient(GcsClient(address=address))
async def put():
    for number in range(first, last):
        job = JobInfo(JobStatus.SUCCEEDED, "python train.py", start_time=1767225600000 + number,
                      end_time=1767225660000 + number, metadata={"run": f"run-{number}"})
        await table.put_info(f"ended-{number:05d}", job)
asyncio.run(put())
"""
Figures = dict[str, list[float]]


def run(form: Form) -> list[Ratio]:
    """Return a ratio for each command."""
    return [
        Ratio(name=f"P27 {name}", ours=large[name], plain=small[name], unit="s", goal=LINEAR)
        for small, large in (_nodes(form), _jobs(form), _runs(form))
        for name in large
    ]


def _sizes(form: Form, count: int) -> tuple[int, int]:
    """Return a quarter of a size, and the size."""
    count = form.pick(count, 8)
    return count // 4, count


def _time(stack: ScratchStack, *arguments: str | Path) -> float:
    command = stack.train(str(arguments[0]), *arguments[1:])
    return measure.run(command, env=stack.environment, cwd=stack.project).seconds


def _rounds(form: Form, ways: Mapping[str, Callable[[], float]]) -> Figures:
    figures = measure.in_turn(form.rounds(ROUNDS), *ways.values())
    return dict(zip(ways, figures, strict=True))


def _nodes(form: Form) -> list[Figures]:
    """Return the figures of a preview and of its review, of groups of nodes."""
    found = []
    for count in (GROUPS // 4, GROUPS):
        groups = [{"name": f"g{each}", "count": NODES_EACH} for each in range(count)]
        with scratch_stack(nodeGroups=groups) as stack, tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            preview = functools.partial(_time, stack, "preview", "--plan", plan)
            preview()
            label = f"{GROUPS * NODES_EACH} workers of {GROUPS} groups"
            ways = {
                f"preview, {label}": preview,
                f"review, {label}": functools.partial(_time, stack, "review", plan),
            }
            found.append(_rounds(form, ways))
    return found


def _jobs(form: Form) -> list[Figures]:
    """Return the figures of lists of jobs, of Ray's and of a queue's, and of the page."""
    found, there = [], 0
    with form.stack(queue=True) as stack:
        for count in _sizes(form, JOBS):
            _end_jobs(stack, there, count)
            _queue_jobs(stack, there, count)
            there = count
            if len(json.loads(train(stack, "list", "--all", "--json"))) < 2 * count:
                raise FailedError(f"`train list` did not list all of {2 * count} jobs")
            with page(stack, "jobs") as ask:
                label = f"{JOBS:,} jobs"
                ways = {
                    f"list, {label}": functools.partial(_time, stack, "list"),
                    f"queue, {label}": functools.partial(_time, stack, "queue"),
                    f"jobs on the page, {label}": functools.partial(_ask_anew, ask),
                }
                found.append(_rounds(form, ways))
    return found


def _ask_anew(ask: Browser) -> float:
    """Return the time of an answer for which the page asks the cluster again."""
    time.sleep(JOBS_S)
    return ask.seconds({})


def _end_jobs(stack: ScratchStack, first: int, last: int) -> None:
    """Write jobs into Ray's memory."""
    settings = yaml.safe_load((stack.project / f"Pulumi.{stack.name}.yaml").read_text())["config"]
    address = f"127.0.0.1:{settings['trainyard:gcsPort']}"
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": stack.outputs()["rayToken"]}
    command = [sys.executable, "-c", ENDED_JOBS, address, str(first), str(last)]
    measure.run(command, env=stack.environment | token)


def _queue_jobs(stack: ScratchStack, first: int, last: int) -> None:
    """Submit jobs of which the first one has the whole node."""
    known = stack.outputs()
    cpus = max(node["cpus"] for node in known["nodes"])
    session = requests.Session()
    session.headers["Authorization"] = f"Bearer {known['rayToken']}"
    for number in range(first, last):
        job = {"submission_id": f"waits-{number:05d}", "entrypoint": "sleep 36000"}
        need = {"entrypoint_num_cpus": cpus}
        url = f"{known['dashboardUrl']}/api/jobs/"
        session.post(url, json=job | need, timeout=DEADLINE_S).raise_for_status()


def _runs(form: Form) -> list[Figures]:
    """Return the figures of lists of runs, each of which has kept checkpoints."""
    found = []
    with form.stack() as stack, tempfile.TemporaryDirectory() as folder:
        store = open_store(outputs.read(None, stack.outputs_file(Path(folder))))
        for count in _sizes(form, RUNS):
            _keep_checkpoints(store, store_runs(store, count))
            label = f"{RUNS * CHECKPOINTS_EACH:,} checkpoints of {RUNS:,} runs"
            with page(stack, "runs") as ask:
                ask.all(count)
                ways = {
                    f"runs, {label}": functools.partial(_time, stack, "runs"),
                    f"show, {label}": functools.partial(_time, stack, "show", "many-00001"),
                    f"runs on the page, {label}": functools.partial(ask.seconds, QUERY),
                }
                found.append(_rounds(form, ways))
    return found


def _keep_checkpoints(store: Store, runs: Sequence[str]) -> None:
    manifest = json.dumps({"version": checkpoint_files.VERSION, "files": {}}).encode()

    def put(name: str) -> None:
        for number in range(CHECKPOINTS_EACH):
            folder = f"{checkpoint_files.PREFIX}{number:06d}"
            store.write(f"{name}/{folder}/{checkpoint_files.MANIFEST}", manifest)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(put, runs))
