"""The ledger: its parts add up to what the machines cost, whatever was killed and told again."""

import asyncio
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.ray_head import TOKEN
from tests.unit.trainyard.queue.conftest import PRICE
from trainyard.queue import dispatcher, records
from trainyard.queue.ledger import DAY_S, HOUR_S, IDLE, JobUse, MachineUse, billed, month, shares
from trainyard.tracking import cost

DAY = 20_700 * DAY_S  # 2026-09-04
UNTIL = DAY + 3 * DAY_S
MOMENTS = st.integers(0, 72).map(lambda hour: DAY + hour * HOUR_S)


@st.composite
def uses(draw, kind, names, *more):
    """Return intervals of each name that follow each other."""
    found = []
    for name in names:
        marks = sorted(draw(st.lists(MOMENTS, max_size=6, unique=True)))
        values = [draw(each) for each in more]
        found += [kind(name, *pair, *values) for pair in list(pairwise(marks))[::2]]
    return found


UNITS = st.sampled_from([0.0, 1.0, 8.0])
MACHINES = uses(MachineUse, ["a", "b"], st.sampled_from([0.0, 2.5]), UNITS)
JOBS = uses(JobUse, ["x", "y", "z"], st.sampled_from([0.125, 1.0, 4.0]))


@given(machines=MACHINES, jobs=JOBS)
def test_the_parts_are_the_whole(machines, jobs):
    found = shares(machines, jobs, DAY, UNTIL)
    price = sum(each.price * (each.ended - each.began) / HOUR_S for each in machines)
    # A machine without units, or a job without a machine, cannot be shared.
    assert sum(each.cost for each in found) == pytest.approx(price)
    for job in "xyz":
        own = sum(each.units * (each.ended - each.began) for each in jobs if each.job == job)
        told = sum(each.unit_seconds for each in found if each.job == job)
        assert told == pytest.approx(own)


@given(machines=MACHINES, jobs=JOBS, cut=MOMENTS)
def test_an_interval_that_is_told_twice_or_in_two_parts_counts_once(machines, jobs, cut):
    whole = shares(machines, jobs, DAY, UNTIL)
    assert shares(machines * 2, jobs * 2, DAY, UNTIL) == whole
    first = shares(machines, jobs, DAY, cut)
    parts = first + shares(machines, jobs, cut, UNTIL)
    assert sum(each.cost for each in parts) == pytest.approx(sum(each.cost for each in whole))
    assert billed(machines, DAY, cut) == pytest.approx(sum(each.cost for each in first))


def test_a_job_pays_for_its_share_and_the_rest_is_idle():
    half = HOUR_S / 2
    machine = MachineUse("a", DAY - HOUR_S, DAY + 2 * HOUR_S, price=4.0, units=4.0)
    # The second interval of x begins before the first one ends: x is there until the later end.
    jobs = [JobUse("x", DAY - HOUR_S, DAY + half, 1.0), JobUse("x", DAY - half, DAY + HOUR_S, 1.0)]
    jobs.append(JobUse("y", DAY + half, DAY + HOUR_S, 3.0))
    found = shares([machine], jobs, DAY - HOUR_S, DAY + 2 * HOUR_S)
    assert [(each.day[-2:], each.job, each.cost) for each in found] == [
        ("03", IDLE, 3.0),
        ("03", "x", 1.0),
        ("04", IDLE, 5.5),
        ("04", "x", 1.0),
        ("04", "y", 1.5),
    ]


class Killed(BaseException):
    """The process ends here."""


STEPS = ("start", "starting", "post", "posted", "running", "end", "ended")


async def test_a_month_with_a_kill_at_each_step(clock, monkeypatch, queue):
    killed_at = ""

    def reach(point):
        if point == f"queue.{killed_at}":
            raise Killed

    for module in (dispatcher, records):
        monkeypatch.setattr(module, "reach", reach)

    queue.head.began = DAY
    kills, hours = 0, {}
    for day in range(30):
        name, step = f"job-{day}", STEPS[day % len(STEPS)]
        clock.now = DAY + day * DAY_S
        await queue.submit(name, cpus=2, user=f"user-{day % 3}")
        for hour in range(24):
            clock.now = DAY + day * DAY_S + hour * HOUR_S
            if hour == 20:
                queue.head.end(name)
            killed_at = step if hour in {0, 20} else ""
            try:
                await queue.step()
            except Killed:
                killed_at, kills = "", kills + 1
                queue.dispatcher = queue.new_dispatcher()
        # What is not on disk before a kill begins, or ends, with the next look.
        hours[name] = (21 if step == "end" else 20) - (1 if step == "start" else 0)
    assert kills == 30
    assert queue.head.started == [*hours]
    _, found = await queue.ask("GET", f"/api/queue/cost?since={DAY}")
    billed = PRICE * (clock.now - DAY) / HOUR_S
    assert found["month"] == pytest.approx(PRICE * (clock.now - month(clock.now)) / HOUR_S)
    shares = found["shares"]
    assert sum(each["cost"] for each in shares) == pytest.approx(billed)
    used = {each["job"]: each["cpuHours"] for each in shares if each["job"]}
    assert used == {name: 2 * each for name, each in hours.items()}
    assert {each["user"] for each in shares} == {"", "user-0", "user-1", "user-2"}


async def test_a_job_is_told_where_to_ask_what_its_start_costs(clock, monkeypatch, tmp_path, queue):
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    queue.head.began, queue.dispatcher = DAY, queue.new_dispatcher()
    await queue.submit("a", cpus=1, run="first run")
    for name in ("a", "a-2"):  # the second start does not pay for the first one
        await queue.step()
        facts = queue.head.jobs[name]["metadata"]
        clock.now += 3 * HOUR_S
        await queue.step()
        known = await asyncio.to_thread(cost.so_far, facts, "first run")
        assert known == pytest.approx(3 * PRICE / 2)
        assert await asyncio.to_thread(cost.so_far, facts, "another run") is None
        queue.records.ask_to_yield(queue.records.get("a"), clock.now)
        queue.head.end(name, "FAILED")
        await queue.step()
    _, found = await queue.ask("GET", "/api/queue/cost?run=first%20run")
    assert sum(each["cost"] for each in found["shares"]) == pytest.approx(3 * PRICE)
    assert {each["run"] for each in found["shares"]} == {"first run"}
    assert queue.records.get("a").request.count("cost") == 0
    monkeypatch.setattr(cost, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(queue.records, "machines", lambda *_: time.sleep(1))
    assert await asyncio.to_thread(cost.so_far, facts, "first run") is None
    assert cost.so_far({"cost": "127.0.0.1:1/"}, "a") is cost.so_far({}, "a") is None


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("queue", [{"budget": 100}], indirect=True)
async def test_a_month_s_budget_stops_submissions_and_no_training(queue):
    queue.head.began = DAY - 60 * HOUR_S
    await queue.submit("a")
    await queue.step()
    status, said = await queue.submit("b")
    assert status == 400
    assert "have cost 120.00 $ this month, of 100 $ (queueRules.monthlyBudget): raise it" in said
    assert queue.head.running() == ["a"]
    assert (await queue.ask("GET", "/api/queue/cost"))[1]["budget"] == 100
