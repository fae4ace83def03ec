"""Groups of nodes that grow and shrink: real Ray nodes come with the queue and go with it."""

import os
import signal
import textwrap
import time
import xmlrpc.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.job_submission import JobSubmissionClient
from supervisor.xmlrpc import SupervisorTransport

from tests.killing import kill
from tests.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

IDLE_SECONDS = 6
GROUPS = [
    {"name": "cpu", "max": 2, "cpus": 3, "idleMinutes": IDLE_SECONDS / 60},
    {"name": "tpu", "max": 1, "cpus": 1, "resources": {"TPU": 4}, "idleMinutes": 0.1},
]
HELD_SECONDS = 60  # longer than any test waits for a node
SECONDS = 60
# What the autoscaler may take beyond the idle time: Ray measures it from the raylets' reports.
PATIENCE_SECONDS = 10
CPUS = ["ray-worker-0", "ray-worker-1"]
TPU = ["ray-worker-2"]


class Cluster:
    """A stack with groups that grow, and its supervisord's view of them."""

    def __init__(self, stack: Any, folder: Path) -> None:
        self.stack = stack
        self.outputs = stack.outputs()
        self._folder = folder
        self._socket = f"unix://{stack.folder}/supervisor.sock"
        headers = {"Authorization": f"Bearer {self.outputs['rayToken']}"}
        self.jobs = JobSubmissionClient(self.outputs["dashboardUrl"], headers=headers)

    def states(self) -> dict[str, dict[str, Any]]:
        transport = SupervisorTransport(None, None, self._socket)
        try:
            supervisor = xmlrpc.client.ServerProxy("http://localhost", transport=transport)
            found: Any = supervisor.supervisor.getAllProcessInfo()
        finally:
            transport.close()
        return {each["name"]: each for each in found}

    def running(self) -> list[str]:
        states = self.states()
        return [name for name in (*CPUS, *TPU) if states[name]["pid"]]

    def pid(self, name: str) -> int:
        return int(self.states()[name]["pid"])

    def submit(self, body: str) -> str:
        text = "import os, ray, time\nray.init()\n" + textwrap.dedent(body)
        (self._folder / "job.py").write_text(text)
        environment = {"working_dir": str(self._folder)}
        return self.jobs.submit_job(entrypoint="python job.py", runtime_env=environment)

    def ended(self, job: str) -> str:
        wait_for("the job's end", lambda: self.jobs.get_job_status(job).is_terminal(), SECONDS)
        return self.jobs.get_job_logs(job)

    def rest(self) -> None:
        """End all jobs, and wait until all nodes are gone."""
        for job in self.jobs.list_jobs():
            if job.submission_id and not job.status.is_terminal():
                self.jobs.stop_job(job.submission_id)
        wait_for("idle nodes to go", lambda: not self.running(), SECONDS)


@pytest.fixture(scope="module")
def cluster(bring_up, store_program, tmp_path_factory) -> Iterator[Cluster]:
    with bring_up(nodeGroups=GROUPS) as stack:
        yield Cluster(stack, tmp_path_factory.mktemp("jobs"))


TASKS = """
@ray.remote(num_cpus=3)
def work():
    time.sleep({seconds})
    return ray.get_runtime_context().get_node_id()
print("on", len(set(ray.get([work.remote() for _ in range(2)]))), "nodes")
"""


def test_nodes_come_with_the_queue_and_go_with_it(cluster):  # B1
    assert cluster.running() == []  # declared, and none started
    assert [node["onDemand"] for node in cluster.outputs["nodes"]] == [False, True, True, True]
    job = cluster.submit(TASKS.format(seconds=2))
    wait_for("both nodes", lambda: cluster.running() == CPUS, SECONDS)
    # Nodes that the autoscaler has started are not drift, and give an `up` nothing to do.
    cluster.stack.engine("up", "--yes", "--refresh", "--expect-no-changes")
    assert cluster.running() == CPUS
    assert "on 2 nodes" in cluster.ended(job)
    begun = time.monotonic()
    wait_for("idle nodes to go", lambda: not cluster.running(), SECONDS)
    assert time.monotonic() - begun < IDLE_SECONDS + PATIENCE_SECONDS
    left = [p for p in psutil.process_iter() if _is_raylet_of(p, cluster.stack.folder)]
    assert len(left) == 1  # the head's


def _is_raylet_of(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.name() == "raylet" and str(folder) in " ".join(process.cmdline())
    except psutil.Error:
        return False


def test_a_job_starts_the_group_that_it_asks_for_and_no_other(cluster):  # B1 B24
    for options in ('resources={"TPU": 4}', 'label_selector={"group": "tpu"}'):
        # The job itself reports the nodes: an idle node may be gone when it has ended.
        job = cluster.submit(f"""
            @ray.remote(num_cpus=0, {options})
            def groups():
                nodes = [node["Labels"] for node in ray.nodes() if node["Alive"]]
                return [labels["group"] for labels in nodes if "group" in labels]
            print("groups", ray.get(groups.remote()))
            """)
        assert "groups ['tpu']" in cluster.ended(job)
    cluster.rest()


def test_a_node_that_dies_during_a_job_is_replaced(cluster):  # F1
    job = cluster.submit("""
        @ray.remote(num_cpus=3, max_retries=3)
        def work():
            time.sleep(6)
            return "done"
        print(ray.get(work.remote()))
        """)
    wait_for("a node", cluster.running, SECONDS)
    [name] = cluster.running()
    wait_for("its raylet", lambda: _raylets(cluster.pid(name)), SECONDS)
    for process in _raylets(cluster.pid(name)):
        process.send_signal(signal.SIGKILL)
    assert "done" in cluster.ended(job)
    assert len(cluster.running()) <= len(CPUS)
    cluster.rest()


def _raylets(pid: int) -> list[psutil.Process]:
    try:
        family = psutil.Process(pid).children(recursive=True)
        return [process for process in family if process.name() == "raylet"]
    except psutil.Error:
        return []


def test_a_killed_monitor_takes_the_head_along_and_loses_and_doubles_no_node(cluster):  # F2
    cluster.submit(TASKS.format(seconds=HELD_SECONDS))
    wait_for("a node", cluster.running, SECONDS)
    head = cluster.pid("ray-head")
    os.kill(_monitor(head), signal.SIGKILL)
    wait_for("another head", lambda: cluster.pid("ray-head") not in (0, head), SECONDS)
    wait_for("its dashboard", lambda: _answers(cluster), SECONDS)
    # Nodes of the dead head end, and its jobs' requests are dropped.
    wait_for("no node", lambda: not cluster.running(), SECONDS)
    assert "nodes" in cluster.ended(cluster.submit(TASKS.format(seconds=0)))
    assert len(cluster.running()) <= len(CPUS)


def _monitor(head: int) -> int:
    for process in psutil.Process(head).children(recursive=True):
        if any("monitor.py" in word for word in process.cmdline()):
            return process.pid
    raise AssertionError("the head has no monitor")


def _answers(cluster: Cluster) -> bool:
    try:
        cluster.jobs.list_jobs()
    except Exception:
        return False
    return True


def test_destroy_ends_nodes_whose_head_is_gone(cluster):
    cluster.submit(TASKS.format(seconds=HELD_SECONDS))
    wait_for("nodes", lambda: cluster.running() == CPUS, SECONDS)
    kill(lambda: cluster.pid("ray-head"))
    cluster.stack.engine("destroy", "--yes")
    assert not cluster.stack.folder.exists()
    left = [p for p in psutil.process_iter() if _is_raylet_of(p, cluster.stack.folder)]
    assert left == []
