"""Why a job waits, from the actors, reservations and nodes that a head knows."""

import json
from dataclasses import replace
from datetime import datetime
from unittest.mock import Mock

from tests import client
from trainyard.client import waiting
from trainyard.client.dashboard import UnreachableError
from trainyard.client.state import Actor, RayNode, Reservation


class State:
    """A head that knows what a test tells it; without nodes it does not answer."""

    def __init__(self, *known, nodes=3):
        self.known, self.count = known, nodes

    def actors(self):
        if not self.count:
            raise UnreachableError("ReadTimeoutError")
        return [each for each in self.known if isinstance(each, Actor)]

    def reservations(self):
        return [each for each in self.known if isinstance(each, Reservation)]

    def nodes(self):
        return [RayNode(id=str(i), address="", is_head=not i) for i in range(self.count)]


def job(status, name="a", **metadata):
    times = {"job_id": f"ray-{name}", "start_time": 1_800_000_000_000}
    return client.job(name, status, metadata=metadata, **times)


def actor(name, state, bundle, ray_job="01"):
    return Actor(
        id=name, kind="", name=name, job=ray_job, pid=1, node="", state=state, bundle=bundle
    )


def entrypoint(name, state, bundle):
    return actor(f"_ray_internal_job_actor_{name}", state, bundle)


def group(ray_job, state, *bundles):
    return Reservation(job=ray_job, state=state, bundles=bundles, nodes=("",) * len(bundles))


def explain(job_, state, stack, *others):
    return waiting.Reasons([job_, *others], stack, state).of(job_)


def test_a_pending_entrypoint_that_no_node_holds(stack):  # D36 D37 F29
    state = State(
        entrypoint("a", "PENDING_CREATION", {"GPU": 2.0}),
        entrypoint("b", "PENDING_CREATION", {"CPU": 1.0}),
    )
    wait = explain(job("PENDING"), state, stack)  # no metadata: one of `ray job submit`
    assert wait.demand == "GPU 2"
    assert "the largest, worker-1, has CPU 4, GPU 1" in wait.reason
    assert "set worker.gpus to 2" in wait.reason
    assert "a host that has GPU 2 and run `make up`, or stop it (`train stop a`)" in wait.reason
    at = datetime.fromtimestamp(1_800_000_900)  # noqa: DTZ006 - in the zone of this machine
    assert wait.ends.startswith(f"Ray fails it at {at:%H:%M:%S} unless")
    assert wait.ends.endswith("(900 s, setting jobStartTimeoutSeconds)")
    attached = explain(job("PENDING"), state, replace(stack, project=""))
    assert "to run it add nodes to the cluster that hold it, or stop it" in attached.reason
    forever = explain(job("PENDING"), state, replace(stack, job_start_timeout=None))
    assert (forever.demand, forever.ends) == (wait.demand, "")


def test_workers_that_wait_for_those_of_another_job(stack):  # F25
    state = State(
        group("ray-a", "PENDING", {"GPU": 1.0, "CPU": 4.0}, {"GPU": 1.0, "CPU": 4.0}),
        group("ray-b", "CREATED", {"GPU": 1.0, "CPU": 2.0}, {"CPU": 1.0}),
        actor("x", "ALIVE", {"CPU": 1.0}, "elsewhere"),
        nodes=2,
    )
    fits = [{"GPU": 1.0, "CPU": 4.0}]
    two = explain(job("RUNNING"), state, stack, job("RUNNING", "b", run="beta"))
    assert two.demand == "2 times GPU 1, CPU 4"
    assert "2 bundles at the same time" in two.reason  # never: there is one GPU

    state.known = (group("ray-a", "PENDING", *fits), *state.known[1:])
    wait = explain(job("RUNNING"), state, stack, job("RUNNING", "b", run="beta"))
    assert wait.reason.startswith("waits for GPU 1, CPU 4: only 2 of 3 nodes")
    assert "only 2 of 3 nodes are alive" in wait.reason
    used = "1 of 1 GPUs are in use by run beta; 4 of 6 CPUs are in use by run beta, another program"
    assert wait.reason.endswith(used)
    assert wait.ends == ""


def test_a_free_cpu_is_waited_for_by_name(stack):
    running = [job("RUNNING", name, run=f"run-{name}") for name in "bcdef"]
    held = [entrypoint(each.submission_id, "ALIVE", {"CPU": 1.0}) for each in running]
    state = State(entrypoint("a", "PENDING_CREATION", {"CPU": 1.0}), *held)
    assert explain(job("PENDING"), state, stack, *running).reason == (
        "waits for a free CPU: 5 of 6 CPUs are in use by run run-b, run run-c, run run-d and 2 more"
    )
    state.known = state.known[:1]
    assert explain(job("PENDING"), state, stack).reason == (
        "waits for a free CPU: Ray lists no job that has it; tasks may"
    )


def test_nothing_waits(stack):
    placed = State(entrypoint("a", "ALIVE", {"GPU": 1.0}), group("ray-a", "CREATED", {"CPU": 1.0}))
    assert explain(job("RUNNING"), placed, stack) is None
    assert explain(job("PENDING"), State(), stack) is None  # its environment is being made
    ended = State(entrypoint("a", "PENDING_CREATION", {"GPU": 2.0}))
    assert explain(job("FAILED"), ended, stack) is None


def test_a_head_that_does_not_answer_leaves_what_the_client_asked_for(stack):
    silent = State(nodes=0)
    asked = json.dumps([{"GPU": 2.0}])
    wait = explain(job("PENDING", demand=asked), silent, stack)
    assert wait.demand == ""
    assert "asks for GPU 2 on one node" in wait.reason
    fits = json.dumps([{"GPU": 1.0}])
    assert explain(job("PENDING", demand=fits), silent, stack) is None


def test_a_cluster_is_asked_once_for_all_of_its_jobs(stack):
    state = Mock(wraps=State(entrypoint("a", "PENDING_CREATION", {"CPU": 1.0})))
    reasons = waiting.Reasons([job("PENDING")] * 2, stack, state)
    assert reasons.of(job("PENDING")) == reasons.of(job("PENDING"))
    for asked in (state.actors, state.reservations, state.nodes):
        asked.assert_called_once_with()
    silent = Mock(wraps=State(nodes=0))
    reasons = waiting.Reasons([], stack, silent)
    assert reasons.of(job("PENDING")) is reasons.of(job("PENDING")) is None
    silent.actors.assert_called_once_with()  # nor does each job wait for the same silence
