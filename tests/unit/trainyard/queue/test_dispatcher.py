"""Each job is started once and none is lost, also when a process is killed between two steps."""

import asyncio
import itertools
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.fakes.ray_head import TOKEN
from tests.ports import free_ports
from trainyard import failpoints, yielding
from trainyard import queue as package
from trainyard.queue import dispatcher as module
from trainyard.queue.dispatcher import Declared
from trainyard.queue.records import Records, decayed

FOLDER = Path(package.__file__).parent
POINTS = sorted(
    {
        point
        for path in FOLDER.glob("*.py")
        for point in re.findall(r'reach\("(.+?)"\)', path.read_text())
    }
)


async def through(queue, restart_at="", steps=60):
    """Step until all jobs have ended. A job that runs ends in the next step, or is lost once."""
    lost = False
    for _ in range(steps):
        if not queue.records.active():
            return
        try:
            await queue.step()
        except OSError:  # as if it was killed: another process goes on
            queue.records.close()
            queue.records = Records(queue.records._engine.url.render_as_string(False))
            queue.dispatcher = queue.new_dispatcher("this machine")
        for name in queue.head.running():
            if name == restart_at and not lost:
                lost = True
                queue.head.restart()
            elif queue.records.get(name.split("-")[0]).state == "RUNNING":
                queue.head.end(name)
    raise AssertionError([vars(job) for job in queue.records.active()])


@pytest.mark.parametrize("point", POINTS)
async def test_no_step_loses_a_job_or_starts_it_twice(monkeypatch, point, queue):
    monkeypatch.setenv(failpoints.VARIABLE, f"{point} EIO 1")
    monkeypatch.setattr(failpoints, "_reached", itertools.count(1))
    for name in ("a", "b", "c"):
        status, _ = await queue.submit(name, cpus=2, retries="3")
        if status == 500:  # the client asks again, with its id
            assert (await queue.submit(name, cpus=2, retries="3"))[0] in (200, 400)
    await through(queue, restart_at="b")
    assert queue.head.started == ["a", "b", "b-2", "c"]
    assert {job.state for job in queue.records.listed()} == {"SUCCEEDED"}
    assert next(failpoints._reached) > 1


@pytest.mark.parametrize("point", ["queue.starting", "queue.posted"])
async def test_a_killed_service_goes_on_in_the_next(tmp_path, point, queue):
    (port,) = free_ports(1)
    settings = {"listen": "127.0.0.1", "port": port, "head": queue.client.url, "token": TOKEN}
    settings |= {"data": str(tmp_path), "database": "", "nodes": [], "quotas": {}, "groups": {}}
    settings |= {"address": f"127.0.0.1:{port}"}
    file = tmp_path / "settings.json"
    file.write_text(
        json.dumps(
            settings
            | {
                "halfLifeDays": 7,
                "backfill": True,
                "preempt": True,
                "hourlyCost": 0,
                "monthlyBudget": 0,
                "store": {"url": "file:///nowhere"},
                "lowUse": {"percent": 5, "minutes": 30, "stop_minutes": 0},
            }
        )
    )

    async def service(fail_at):
        env = os.environ | {failpoints.VARIABLE: fail_at}
        command = (sys.executable, "-m", "trainyard.queue", str(file))
        return await asyncio.create_subprocess_exec(*command, env=env)

    await queue.submit("a")
    first = await service(f"{point} kill 1")
    assert await first.wait() == -signal.SIGKILL
    assert queue.records.get("a").state == "STARTING"
    second = await service("")
    while queue.records.get("a").state != "SUCCEEDED":
        for name in queue.head.running():
            queue.head.end(name)
        await asyncio.sleep(0.05)
    second.terminate()
    assert await second.wait() == 0
    assert queue.head.started == ["a"]
    assert (tmp_path / "queue.lock").stat().st_mode & 0o077 == 0


async def test_of_two_dispatchers_one_starts_jobs_and_the_other_goes_on_without_it(
    monkeypatch, queue
):
    for name in ("a", "b"):
        await queue.submit(name, cpus=2)
    other = queue.new_dispatcher()
    assert await asyncio.gather(queue.step(), other.step()) in ([True, False], [False, True])
    await asyncio.gather(other.step(), queue.step())
    assert queue.head.started == ["a"]
    # One is stopped for an hour between its commit and its request.
    queue.head.end("a")
    late = queue.dispatcher if await queue.dispatcher._hold() else other
    fresh = other if late is queue.dispatcher else queue.dispatcher
    monkeypatch.setattr(module, "LEASE_S", 1e-6)

    async def stopped(job, asked):
        counts = (0.0, 0.0)
        assert queue.records.begin(job, time.time(), *counts)
        await asyncio.sleep(0.01)
        assert await fresh._hold()
        monkeypatch.setattr(module, "LEASE_S", 15.0)
        assert await fresh._hold()
        late._leased -= 3600
        await late._post(job)

    monkeypatch.setattr(late, "_begin", stopped)
    await late.step()
    assert queue.head.started == ["a"]
    await fresh.step()
    assert queue.head.started == ["a", "b"]


async def test_what_has_changed_meanwhile_is_not_changed_and_a_head_starts_one_id_once(queue):
    await queue.submit("a")
    await queue.submit("b")
    (one, stopped), (same, _) = queue.records.active(), queue.records.active()
    assert queue.records.begin(one, 1.0, 0.0, 0.0)
    assert not queue.records.begin(same, 1.0, 0.0, 0.0)
    queue.records.ask_stop("b", 1.0)
    assert not queue.records.begin(stopped, 1.0, 0.0, 0.0)
    await queue.dispatcher._hold()
    late = queue.records.get("a")
    for job in (one, late):  # as two do that are both in doubt
        await queue.dispatcher._post(job)
    assert (queue.head.started, queue.records.get("a").state) == (["a"], "RUNNING")


async def test_a_head_that_does_not_answer_changes_nothing(queue):
    await queue.submit("a", retries="3")
    await queue.step()
    queue.head.away = True
    with pytest.raises(module.HeadAwayError):
        await queue.step()
    assert queue.records.get("a").state == "RUNNING"
    assert await queue.status("a") == "RUNNING"
    # A list without the job does not prove that it is lost.
    queue.head.away, found = False, queue.client.jobs

    async def none():
        return {}

    queue.client.jobs = none
    await queue.step()
    assert queue.records.get("a").state == "RUNNING"
    queue.client.jobs = found
    queue.head.end("a")
    await queue.step()
    assert queue.records.get("a").state == "SUCCEEDED"


@pytest.mark.parametrize(
    ("retries", "end", "started", "state", "reason"),
    [
        ("0", None, ["a"], "FAILED", "the head was replaced, and no retries are left"),
        ("1", None, ["a", "a-2"], "FAILED", "the head was replaced, and no retries are left"),
        ("3", {"status": "FAILED", "message": "exit 1"}, ["a"], "FAILED", "exit 1"),
        ("3", {"status": "STOPPED", "message": "by drill"}, ["a"], "STOPPED", "by drill"),
        (
            "1",
            {"status": "FAILED", "error_type": "JOB_SUPERVISOR_ACTOR_DIED", "message": "died"},
            ["a", "a-2"],
            "FAILED",
            "died, and no retries are left",
        ),
    ],
)
async def test_only_what_its_head_or_node_lost_starts_again(
    retries, end, started, state, reason, queue
):
    await queue.submit("a", retries=retries)
    while queue.records.get("a").state in ("WAITING", "STARTING", "RUNNING"):
        await queue.step()
        for name in queue.head.running():
            if end is None:
                queue.head.restart()
            else:
                queue.head.end(name, **end)
    found = queue.records.get("a")
    assert (queue.head.started, found.state, found.reason) == (started, state, reason)
    shown = await queue.job("a")
    assert (shown["status"], shown["message"]) == (state, reason)


async def test_a_stop_is_kept_until_the_job_has_ended(queue):
    for name in ("a", "b"):
        await queue.submit(name, cpus=2, retries="3")
    await queue.step()
    assert (await queue.ask("POST", "/api/jobs/b/stop"))[1] == {"stopped": True}
    assert await queue.status("b") == "STOPPED"
    queue.head.away = True
    assert (await queue.ask("POST", "/api/jobs/a/stop"))[1] == {"stopped": True}
    queue.head.away = False
    await queue.step()
    assert queue.head.stopped == ["a"]
    await queue.step()
    assert await queue.status("a") == "STOPPED"
    assert (await queue.ask("POST", "/api/jobs/a/stop"))[1] == {"stopped": False}
    # It was stopped: it does not start again when its head is lost.
    await queue.submit("c", retries="3")
    await queue.step()
    await queue.ask("POST", "/api/jobs/c/stop")
    queue.head.restart()
    await queue.step()
    assert (await queue.status("c"), queue.head.started) == ("STOPPED", ["a", "c"])


async def test_a_head_that_refuses_a_job_ends_it_and_one_that_is_not_ready_does_not(
    monkeypatch, queue
):
    await queue.submit("a")
    queue.head.refuses = "No available agent to submit job, please try again later."
    with pytest.raises(module.HeadAwayError):
        await queue.step()
    assert queue.records.get("a").state == "STARTING"
    queue.head.refuses = ""
    await queue.step()
    assert queue.records.get("a").state == "RUNNING"
    await queue.submit("b")
    error = "Request failed with status code 400: Traceback\nValueError: no such option"
    queue.head.refuses = error
    await queue.step()
    found = queue.records.get("b")
    assert found.state == "FAILED"
    assert found.reason == "the head did not take it: ValueError: no such option"
    await queue.submit("c")
    queue.head.refuses = "never ready"
    monkeypatch.setattr(module, "REFUSED_S", 0.0)
    await queue.step()
    assert "never ready" in queue.records.get("c").reason


async def test_packages_come_back_to_a_head_that_lost_them(queue):
    await queue.ask("PUT", "/api/packages/gcs/p.zip", data=b"content")
    env = {"working_dir": "gcs://p.zip", "py_modules": ["gcs://q.zip", "https://x/y.zip"]}
    job = {"entrypoint": "true", "submission_id": "a", "runtime_env": env}
    queue.head.packages["q.zip"] = b"there already"
    await queue.ask("POST", "/api/jobs/", json=job | {"metadata": {"retries": "1"}})
    await queue.step()
    assert queue.head.packages["p.zip"] == b"content"
    for name in ("p.zip", "nobody.zip"):
        queue.packages.path(name).touch()
        os.utime(queue.packages.path(name), (0, 0))
    queue.packages.prune(queue.records.prune(time.time()))
    assert not queue.packages.path("nobody.zip").exists()
    queue.head.restart()
    queue.head.packages["q.zip"] = b"there already"
    await queue.step()
    assert queue.head.started == ["a", "a-2"]
    assert queue.head.packages["p.zip"] == b"content"
    await queue.ask("POST", "/api/jobs/", json=job | {"submission_id": "b"})
    queue.head.restart()
    await queue.step()
    assert "has package q.zip" in queue.records.get("b").reason


async def test_what_others_hold_is_not_given_and_nodes_on_demand_count(queue):
    bundle = {"node_id": "0", "unit_resources": {"CPU": 1.0}}
    group = {"state": "CREATED", "creator_job_id": "ff000000", "bundles": [bundle]}
    queue.head.others = [group]
    await queue.submit("a", cpus=2)
    await queue.submit("b", demand="[]")  # needs nothing, so it waits for nobody
    await queue.step()
    assert queue.head.started == ["b"]
    assert "CPU 2" in queue.dispatcher.places["a"].reason
    queue.head.others = [group | {"creator_job_id": "01000000"}]  # b's own
    await queue.step()
    assert queue.head.started == ["b", "a"]
    await queue.submit("c", cpus=2)
    await queue.submit("d0", demand="[]")
    await queue.step()
    assert queue.head.started == ["b", "a", "d0"]
    more = Declared(bundle={"CPU": 2.0}, on_demand=True)
    queue.declared.append(more)
    await queue.step()
    assert queue.head.started == ["b", "a", "d0", "c"]
    await queue.submit("d", cpus=2)
    queue.head.nodes.append({"CPU": 2.0})  # it has come
    await queue.step()
    assert "d" not in queue.head.started


@pytest.mark.parametrize("queue", [{"nodes": ({"CPU": 2.0}, {"CPU": 1.0})}], indirect=True)
async def test_a_job_waits_for_the_node_where_another_one_really_is(queue):
    await queue.submit("a")
    await queue.step()
    # By its size alone, it would be taken to be on the small node.
    bundle = {"node_id": "0", "unit_resources": {"CPU": 1.0}}
    group = {"state": "CREATED", "creator_job_id": "01000000", "bundles": [bundle]}
    queue.head.others = [group]
    await queue.submit("b", cpus=2)
    await queue.step()
    assert queue.head.started == ["a"]
    queue.head.others = [group | {"bundles": [bundle | {"node_id": "1"}]}]
    await queue.step()
    assert queue.head.started == ["a", "b"]


async def test_use_counts_half_after_each_half_life_and_old_records_go(monkeypatch, queue):
    assert decayed(3600, 0, 1e12) == pytest.approx(3600, rel=1e-3)
    assert decayed(3600 + 10, 3600, 3600) == pytest.approx(5, rel=1e-2)
    await queue.submit("a", demand='[{"GPU": 2, "CPU": 8}]', user="eva", force="1")
    await queue.submit("b", cpus=2, user="max")
    a, _ = queue.records.active()
    now = time.time()
    queue.records.begin(a, now - 7200, 2.0, 2.0)
    queue.records.finish(a, "SUCCEEDED", "", now - 3600)
    await queue.step()
    use, week = queue.records.use(now + 100, 1e12)
    assert use == pytest.approx({"eva": 7200, "max": 25}, rel=0.1)
    assert week == pytest.approx({"eva": 2.0, "max": 0.0})
    monkeypatch.setattr("trainyard.queue.records.MOST_ENDED", 0)
    queue.records.prune(now)
    assert [job.id for job in queue.records.listed()] == ["b"]
    # One that somebody wrote by hand ends, and hides no other.
    with queue.records._engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET bundles = '{' WHERE id = 'b'"))
    for name in ("c", "d"):
        await queue.submit(name, cpus=2)
    with queue.records._engine.begin() as connection:
        connection.execute(text("UPDATE jobs SET request = '[' WHERE id = 'c'"))
    for path in ("/api/jobs/", "/api/jobs/c", "/api/queue"):
        assert (await queue.ask("GET", path))[0] == 200
    while queue.records.get("d").state != "RUNNING":
        await queue.step()
    assert "record cannot be read" in queue.records.get("c").reason


@pytest.mark.parametrize("answers", [True, False])
async def test_a_job_that_resumes_makes_room_for_one_of_higher_priority(
    answers, monkeypatch, queue
):
    async def listed(name):
        _, found = await queue.ask("GET", "/api/jobs/")
        return next(job["status"] for job in found if job["submission_id"] == name)

    await queue.submit("low", cpus=2, retries="3")
    await queue.step()
    await queue.submit("high", cpus=2, priority="5")
    await queue.step()
    await queue.step()
    (notice,) = queue.head.packages.items()
    assert notice == ("trainyard_yield_low.zip", yielding.FOR_ANOTHER.encode())
    assert queue.head.running() == ["low"]
    if answers:
        queue.head.end("low", "FAILED")
        assert await listed("low") == await queue.status("low") == "RUNNING"
    else:
        monkeypatch.setattr(module, "YIELD_S", -1.0)
        await queue.step()
        assert queue.head.stopped == ["low"]
    await queue.step()
    assert await listed("low") == await queue.status("low") == "PENDING"
    assert queue.records.get("low").retries == 3
    assert queue.head.running() == ["high"]
    queue.head.end("high")
    await queue.step()
    assert queue.head.running() == ["low-2"]
    await queue.step()
    assert [*queue.head.packages] == ["trainyard_yield_low.zip"]


async def test_a_job_that_starts_from_nothing_is_not_stopped_for_others(queue):
    await queue.submit("low", cpus=2)
    await queue.step()
    await queue.submit("high", cpus=2, priority="5")
    await queue.step()
    await queue.step()
    assert queue.head.packages == {}
    queue.head.end("low")
    await queue.step()
    assert (await queue.status("low"), await queue.status("high")) == ("SUCCEEDED", "RUNNING")
