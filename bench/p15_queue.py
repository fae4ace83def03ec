"""P15: 500 jobs that wait in a queue, 20 at once, while head and queue are killed.

None may be lost: each has to succeed, although those that ran at the head's end run twice. Beside
the queue's submissions stand those of Ray's own API, and beside the head's memory that of an idle
one.
"""

import collections
import contextlib
import time

import psutil
import requests
import yaml

from bench.form import Form
from bench.measure import FailedError, Ratio
from bench.scratch import ScratchStack
from tests import waiting

SLOTS = 20
DEADLINE_S = 3600
HEAD = ("gcs_server", "raylet", "dashboard.py", "ray-dashboard")


def run(form: Form) -> list[Ratio]:
    """Return the ratios of a submission and of the head's memory."""
    count = form.pick(500, 10)
    worker = {"cpus": SLOTS, "memoryMib": 4096}
    with form.stack(queue=True, workers=1, worker=worker) as stack:
        outputs = stack.outputs()
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {outputs['rayToken']}"
        queue = f"{outputs['dashboardUrl']}/api/jobs/"
        settings = yaml.safe_load((stack.project / "Pulumi.bench.yaml").read_text())["config"]
        head = f"http://127.0.0.1:{settings['trainyard:dashboardPort']}/api/jobs/"
        idle = _memory(stack)
        ours = [_submit(session, queue, f"p15-{number}") for number in range(count)]
        plain = [_submit(session, head, f"plain-{number}", cpus=0.01) for number in range(SLOTS)]
        peak, killed = idle, False

        def states() -> collections.Counter[str]:
            try:
                listed = session.get(queue, timeout=30).json()
            except (OSError, ValueError):
                return collections.Counter()
            return collections.Counter(
                job["status"] for job in listed if job["submission_id"].startswith("p15-")
            )

        def ended() -> bool:
            nonlocal peak, killed
            found = states()
            peak = max(peak, _memory(stack))
            if found["SUCCEEDED"] > count / 3 and not killed:
                killed = True
                for word in ("trainyard_queue", "gcs_server"):
                    stack.kill(word)
            return found.total() == count and not found["PENDING"] + found["RUNNING"]

        waiting.wait_for("the end of all jobs", ended, DEADLINE_S)
        if (found := states())["SUCCEEDED"] != count:
            raise FailedError(f"P15: of {count} jobs ended {dict(found)}")
    return [
        Ratio(name="P15 submit", ours=ours, plain=plain, unit="s", goal=None),
        Ratio(name="P15 head", ours=[peak], plain=[idle], unit="MB", goal=None),
    ]


def _submit(session: requests.Session, url: str, name: str, cpus: float = 1) -> float:
    """Return the seconds of a submission."""
    job = {"submission_id": name, "entrypoint": "sleep 3", "entrypoint_num_cpus": cpus}
    begun = time.perf_counter()
    asked = session.post(url, json=job | {"metadata": {"retries": "3"}}, timeout=60)
    if not asked.ok:
        raise FailedError(f"{name}: {asked.text}")
    return time.perf_counter() - begun


def _memory(stack: ScratchStack) -> float:
    """Return the memory of the head's processes, in MB, each shared page once."""
    found = 0
    for process in stack.processes(*HEAD):
        with contextlib.suppress(psutil.Error):
            found += process.memory_full_info().pss
    return found / 1e6
