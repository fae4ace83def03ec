"""Jobs that leave their GPUs unused are named, then stopped with a checkpoint.

node_of_ray_2.60.json is an answer of a real head to /nodes/ID, without fields that the queue does
not read. Its agent asked a library of NVIDIA's interface that says 80 % of GPU 0, and 0 % of GPU 1.
Ray had given GPU 0 to two actors of job 02000000 and to the entrypoint of `entry`, and GPU 1 to an
actor in a placement group of 03000000.
"""

import copy
import json
from pathlib import Path

import pytest

from trainyard.queue import low_use
from trainyard.queue.head import HeadAwayError
from trainyard.queue.low_use import Bounds, LowUse

RECORDED = json.loads(Path(__file__).with_name("node_of_ray_2.60.json").read_text())
NODE = {"CPU": 8.0, "GPU": 2.0}
NAMED_S, STOPPED_S = 1800.0, 3600.0
BOUNDS = Bounds(percent=5, minutes=30, stop_minutes=60)
STOPS = {"nodes": (NODE,), "low": BOUNDS}
NAMES = {"nodes": (NODE,), "low": Bounds(percent=5, minutes=30)}
JOBS = {"entry": ("None", 0.3), "frac": ("02000000", 0.6), "pg": ("03000000", 1.0)}
ASKED = {"entry": 0.3, "frac": 0.6, "pg": 1.0}
OF_FIRST, OF_SECOND = {"entry", "frac"}, {"pg"}


def node(*percents, **more):
    """The recorded answer with another use of its GPUs, or with other fields."""
    found = copy.deepcopy(RECORDED["data"]["detail"])
    for gpu, percent in zip(found["gpus"], percents, strict=False):
        gpu["utilizationGpu"] = percent
    return found | more


def low(*nodes, jobs=JOBS, now=RECORDED["data"]["detail"]["now"]):
    """The jobs that leave their GPUs unused, of nodes with two GPUs each."""
    found = LowUse(BOUNDS)
    found.look([(str(index), 2.0, each) for index, each in enumerate(nodes)], jobs, now)
    return {*found._since}


@pytest.mark.parametrize(
    ("percents", "expected"),
    [
        ((80, 0), OF_SECOND),
        ((4, 5), OF_FIRST),
        ((0, 0), OF_FIRST | OF_SECOND),
        ((5, 99), set()),
        ((None, 0), OF_SECOND),  # a GPU that does not say its use
        ((0, -1), OF_FIRST),
    ],
)
def test_each_job_has_the_use_of_its_gpus_and_shares_that_of_a_gpu(percents, expected):
    assert low(node(*percents)) == expected


@pytest.mark.parametrize(
    "odd",
    [
        {},
        node(0, 0, gpus=[]),
        node(0, 0, gpus=None),
        node(0, 0, workers=[{}]),
        node(0, 0, now=RECORDED["data"]["detail"]["now"] - 1.1 * low_use.STALE_S),
        node(0, 0, gpus=[*node(0, 0)["gpus"], node(80)["gpus"][0] | {"index": 2}]),
    ],
    ids=["silent", "no GPUs", "null", "workers", "stale", "a third GPU of the machine"],
)
def test_what_cannot_be_told_counts_as_in_use(odd):
    assert low(odd) == set()


def test_a_silent_node_matters_to_jobs_that_may_be_there():
    assert low(node(0, 0), {}) == OF_FIRST | OF_SECOND
    assert low(node(0, 0), {}, jobs=JOBS | {"pg": ("03000000", 2.0)}) == OF_FIRST


def test_a_job_without_gpus_of_its_own_may_use_any():
    jobs = {"unseen": ("09000000", 1.0)}
    assert low(node(0, 0), node(0, 80), jobs=jobs) == low(jobs=jobs) == set()
    assert low(node(0, 0), node(0, 0), jobs=jobs) == {"unseen"}


async def _started(queue):
    """Have three jobs started, whose GPUs are those of the recorded answer."""
    for name, gpus in ASKED.items():
        await queue.submit(name, demand=json.dumps([{"GPU": gpus}]), retries="3")
        await queue.step()
    assert queue.head.started == [*ASKED]


async def _looks(queue, clock, seconds, *percents):
    """Let time pass, with a look of the queue each minute."""
    end = clock.now + seconds
    while clock.now < end:
        clock.now += 60
        queue.head.details["0"] = node(*percents, now=clock.now)
        await queue.step()


async def _reasons(queue):
    _, found = await queue.ask("GET", "/api/queue")
    return {each["job"]: each["reason"] for each in found["jobs"]}


@pytest.mark.parametrize("queue", [STOPS], indirect=True)
async def test_a_job_is_named_then_stopped_with_a_checkpoint_and_not_started_again(clock, queue):
    await _started(queue)
    await _looks(queue, clock, NAMED_S, 80, 0)
    assert {*(await _reasons(queue)).values()} == {""}
    await _looks(queue, clock, 60, 80, 0)
    said = "its GPUs have been below 5 % for 30 min; after 60 min it is stopped"
    assert await _reasons(queue) == {"entry": "", "frac": "", "pg": said}
    shown = await queue.job("pg")
    assert (shown["status"], shown["message"]) == ("RUNNING", said)
    assert (await queue.job("frac"))["message"] == "it runs"
    assert queue.head.packages == {}
    await _looks(queue, clock, STOPPED_S - NAMED_S, 80, 0)
    why = "its GPUs were below 5 % for 60 min (queueRules.lowUse)"
    await queue.step()
    (notice,) = queue.head.packages.items()
    assert notice[0] == "trainyard_yield_pg.zip"
    assert why in notice[1].decode()
    assert (await queue.job("pg"))["message"] == why
    # The queue is killed, then the job ends as it was asked to.
    queue.dispatcher = queue.new_dispatcher("this machine")
    queue.head.end("pg", "FAILED", message="exit 1")
    await queue.step()
    ended = await queue.job("pg")
    assert (ended["status"], ended["message"]) == ("STOPPED", why)
    await _looks(queue, clock, 60, 80, 0)
    assert queue.head.started == ["entry", "frac", "pg"]
    assert (queue.records.get("frac").state, queue.head.stopped) == ("RUNNING", [])


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("queue", [STOPS], indirect=True)
async def test_one_that_does_not_end_by_the_notice_is_stopped_and_a_lost_one_has_ended(
    lost, clock, queue
):
    await _started(queue)
    await _looks(queue, clock, STOPPED_S + 60, 80, 0)
    if lost:
        queue.head.restart()
    await _looks(queue, clock, 240, 80, 0)
    found = queue.records.get("pg")
    assert (found.state, found.retries, queue.head.stopped) == ("STOPPED", 3, ["pg"][lost:])
    assert found.reason.startswith("its GPUs were below 5 % for 60 min")


@pytest.mark.parametrize("queue", [NAMES], indirect=True)
async def test_use_or_a_time_without_a_look_begins_anew_and_nobody_is_stopped_without_the_setting(
    clock, monkeypatch, queue
):
    await _started(queue)
    await _looks(queue, clock, NAMED_S, 0, 0)
    await _looks(queue, clock, 60, 80, 0)
    assert [name for name, said in (await _reasons(queue)).items() if said] == ["pg"]
    looked = queue.client.gpus

    async def away():
        raise HeadAwayError

    monkeypatch.setattr(queue.client, "gpus", away)
    await _looks(queue, clock, 180, 0, 0)
    monkeypatch.setattr(queue.client, "gpus", looked)
    await _looks(queue, clock, NAMED_S, 0, 0)
    assert {*(await _reasons(queue)).values()} == {""}
    await _looks(queue, clock, 2 * STOPPED_S, 0, 0)
    assert {*(await _reasons(queue)).values()} == {"its GPUs have been below 5 % for 149 min"}
    assert {*queue.head.running()} == {"entry", "frac", "pg"}
    assert queue.head.packages == {}
