"""P16: from demand to a node of a group that grows, next to the plain start of such a node.

Both on the same head and by the same clock: a task waits for a node, and says when it runs. In the
one case Ray's autoscaler starts the node; in the other it is started by hand, with the same command
and a resource that only it has. The time from the end of a node's idle time to its end is bounded.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.form import Form
from bench.measure import FailedError, Ratio
from bench.scratch import ScratchStack
from node.ray_start import PROGRAM

ROUNDS = 5
IDLE_SECONDS = 6.0
GONE_SECONDS = 10.0  # at most, after these
GROUP = {"name": "cpu", "max": 1, "cpus": 1, "idleMinutes": IDLE_SECONDS / 60}
DEADLINE_SECONDS = 300
KNOWN_TO_THE_AUTOSCALER = ("RAY_CLOUD_INSTANCE_ID", "RAY_NODE_TYPE_NAME")

JOB = """
import json, os, signal, subprocess, time
import ray

IDLE, ROUNDS = %r, %r

ray.init(log_to_driver=False)

@ray.remote(num_cpus=1)
def demanded():
    return time.time()

@ray.remote(num_cpus=0, resources={"plain": 1})
def plain():
    return time.time()

def until_alone():
    begun = time.time()
    while sum(node["Alive"] for node in ray.nodes()) > 1:
        time.sleep(0.1)
    return time.time() - begun

took, by_hand, gone = [], [], []
for _ in range(ROUNDS + 1):
    begun = time.time()
    started = ray.get(demanded.remote()) - begun
    idle = until_alone() - IDLE
    begun = time.time()
    waits = plain.remote()
    node = subprocess.Popen(["/bin/sh", "node"], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, start_new_session=True)
    plainly = ray.get(waits) - begun
    os.killpg(node.pid, signal.SIGKILL)
    node.wait()
    until_alone()
    took.append(started)
    by_hand.append(plainly)
    gone.append(idle)
counted = [each[1:] or each for each in (took, by_hand, gone)]
print("figures", json.dumps(counted), flush=True)
"""


def run(form: Form) -> list[Ratio]:
    """Return both ratios."""
    with form.stack(nodeGroups=[GROUP]) as stack, tempfile.TemporaryDirectory() as name:
        took, by_hand, gone = _figures(stack, Path(name), form.rounds(ROUNDS))
    return [
        Ratio(
            name="P16 demand to node",
            ours=took,
            plain=by_hand,
            unit="s",
            goal=1.3,
            note="the autoscaler looks once a second",
        ),
        Ratio(
            name="P16 idle to gone",
            ours=gone,
            plain=[GONE_SECONDS] * len(gone),
            unit="s",
            goal=1.0,
            note=f"beyond {IDLE_SECONDS:g} s of idle time",
        ),
    ]


def _figures(stack: ScratchStack, folder: Path, rounds: int) -> list[list[float]]:
    """Return seconds from demand to node, by the autoscaler and by hand, and from idle to gone."""
    from ray.job_submission import JobSubmissionClient

    outputs: dict[str, Any] = stack.outputs()
    command = (stack.project.parent / "s" / "ray-worker-0" / "run").read_text()
    # A job has the head's variables.
    command = "".join(
        line
        if not line.startswith(tuple(f"export {name}=" for name in KNOWN_TO_THE_AUTOSCALER))
        else f"unset {line.removeprefix('export ').partition('=')[0]}\n"
        for line in command.splitlines(keepends=True)
    )
    # With the head's own, the node would end the head's processes as its leftovers.
    command = "".join(f"unset {name}\n" for name in PROGRAM) + command
    (folder / "node").write_text(command.replace("--resources={}", '--resources={"plain": 1}'))
    (folder / "job.py").write_text(JOB % (IDLE_SECONDS, rounds))
    headers = {"Authorization": f"Bearer {outputs['rayToken']}"}
    jobs = JobSubmissionClient(outputs["dashboardUrl"], headers=headers)
    environment = {"working_dir": str(folder)}
    job = jobs.submit_job(entrypoint="python job.py", runtime_env=environment)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not jobs.get_job_status(job).is_terminal() and time.monotonic() < deadline:
        time.sleep(0.5)
    log = jobs.get_job_logs(job)
    for line in log.splitlines():
        if line.startswith("figures "):
            figures: list[list[float]] = json.loads(line.removeprefix("figures "))
            return figures
    raise FailedError(f"the job gave no figures:\n{log}")
