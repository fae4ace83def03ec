"""Submissions that repeat: an entry makes a job at each of its times, and none twice."""

import asyncio
import json

import pytest

from tests import ui_stack
from tests.fakes.ray_head import TOKEN
from trainyard.client import outputs as contract
from trainyard.queue import records, submission
from trainyard.queue.head import HeadAwayError
from trainyard.queue.ledger import DAY_S, HOUR_S, month
from trainyard.queue.records import Records
from trainyard.queue.submission import RefusedError, next_time

DAILY = "0 3 * * *"


async def enter(queue, name="n", every=DAILY, **more):
    env = {"env_vars": {"TRAINYARD_RUN": "nightly", "KEY": "1"}, "working_dir": "gcs://a.zip"}
    job = {"entrypoint": "true", "submission_id": name, "entrypoint_num_cpus": 1}
    facts = {"run": "nightly", "user": "eva", "job_name": "nightly (eva)", "every": every} | more
    return await queue.ask("POST", "/api/jobs/", json=job | {"metadata": facts, "runtime_env": env})


async def made(queue):
    """Look once; return the ids of all jobs, without entries."""
    queue.packages.path("a.zip").write_bytes(b"")
    await queue.step()
    return sorted(job.id for job in queue.records.listed() if job.every is None)


async def test_an_entry_makes_a_usual_job_at_each_time_and_is_listed_until_it_is_stopped(
    clock, queue
):
    assert (await enter(queue, priority="5"))[0] == 200
    await queue.submit("other", cpus=2)
    assert await made(queue) == ["other"]
    _, found = await queue.ask("GET", "/api/queue")
    row = found["jobs"][-1]  # the last one, also before those that wait
    assert (row["job"], row["place"], row["begins"]) == ("n", None, clock.now + 3 * HOUR_S)
    assert row["reason"] == "makes a job at 2026-09-04 03:00 UTC: 0 3 * * *"
    job = await queue.job("n")
    assert (job["status"], job["message"]) == ("PENDING", row["reason"])
    assert queue.records.prune(clock.now) == {"a.zip"}
    queue.head.end("other")
    clock.now += 3 * HOUR_S
    names = ["n-20260904-0300", "other"]
    assert await made(queue) == names
    assert await made(queue) == names
    started = queue.head.jobs[names[0]]
    assert started["metadata"]["run"] == "nightly-20260904-0300"
    assert started["metadata"]["job_name"] == "nightly-20260904-0300 (eva)"
    assert "every" not in started["metadata"]
    variables = {"TRAINYARD_RUN": "nightly-20260904-0300", "KEY": "1"}
    assert started["runtime_env"]["env_vars"] == variables
    job = queue.records.get(names[0])
    assert (job.user, job.priority, job.queued) == ("eva", 5, clock.now)
    queue.head.end(names[0])
    clock.now += DAY_S
    queue.head.away = True  # its jobs wait for the head, as others
    with pytest.raises(HeadAwayError):
        await queue.step()
    queue.head.away = False
    assert await made(queue) == ["n-20260904-0300", "n-20260905-0300", "other"]
    assert await queue.ask("POST", "/api/jobs/n/stop") == (200, {"stopped": True})
    assert (await queue.job("n"))["message"] == "it was stopped"
    clock.now += DAY_S
    assert len(await made(queue)) == 3


async def test_times_that_were_missed_make_one_job(clock, queue):
    await enter(queue)
    clock.now += 40 * DAY_S + HOUR_S
    assert await made(queue) == ["n-20260904-0300"]
    assert queue.records.get("n").due == clock.now + 2 * HOUR_S


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("point", ["queue.add", "queue.insert", "queue.added"])
async def test_a_kill_makes_no_job_twice_and_loses_none(clock, monkeypatch, point, queue):
    killed = []

    def reach(reached):
        if reached == point and not killed:
            killed.append(point)
            raise Killed

    await enter(queue)
    clock.now += 3 * HOUR_S
    monkeypatch.setattr(records, "reach", reach)
    with pytest.raises(Killed):
        await queue.step()
    queue.records.close()
    queue.records = Records(queue.records._engine.url.render_as_string(False))
    queue.dispatcher = queue.new_dispatcher("this machine")
    for _ in range(3):
        assert await made(queue) == ["n-20260904-0300"]
    assert queue.head.started == ["n-20260904-0300"]
    # One that has slept meanwhile knows an older time, and makes nothing.
    slept = queue.records.get("n")
    await queue.submit("more")
    slept.due -= DAY_S
    other = submission.read(b'{"entrypoint": "true", "submission_id": "twice"}', clock.now)
    queue.records.add(other, entry=slept, due=clock.now + DAY_S)
    assert queue.records.get("twice") is None
    assert queue.records.get("n").due == clock.now + DAY_S


async def test_an_entry_waits_for_room_and_passes_a_name_that_is_taken(clock, monkeypatch, queue):
    await enter(queue)
    await queue.submit("n-20260905-0300")  # somebody else's
    monkeypatch.setattr(records, "MOST_WAITING", 1)
    clock.now += 3 * HOUR_S
    assert len(await made(queue)) == 1
    monkeypatch.setattr(records, "MOST_WAITING", 99)
    assert len(await made(queue)) == 2
    clock.now += DAY_S
    assert len(await made(queue)) == 2
    assert queue.records.get("n").due == clock.now + DAY_S


@pytest.mark.parametrize("queue", [{"budget": 10}], indirect=True)
async def test_an_entry_makes_nothing_once_the_budget_is_spent_until_the_next_month(clock, queue):
    queue.head.began = clock.now
    await enter(queue, every="0 * * * *")
    for count in (1, 2, 3, 4, 5, 5, 5):  # an hour costs 2 $, as far as the last look knows
        clock.now += HOUR_S
        assert len(await made(queue)) == count
    clock.now = month(clock.now + 30 * DAY_S) + HOUR_S
    assert len(await made(queue)) == 6


async def test_a_record_that_was_edited_ends_and_hides_no_other(clock, queue):
    await enter(queue, "odd")
    await enter(queue, "good")
    queue.records._change(queue.records.get("odd"), request="{}")
    clock.now += 3 * HOUR_S
    assert await made(queue) == ["good-20260904-0300"]
    assert queue.records.get("odd").reason == "its record cannot be read: KeyError"


async def test_a_job_after_an_entry_waits_for_its_end(clock, queue):
    await enter(queue)
    await queue.submit("then", after="n")
    await made(queue)
    assert queue.head.started == []
    await queue.ask("POST", "/api/jobs/n/stop")
    await made(queue)
    assert queue.head.started == ["then"]


@pytest.mark.parametrize(
    ("every", "name"),
    [
        ("soon", "n"),
        ("", "n"),
        ("* * * * * *", "n"),
        ("0 3 30 2 *", "n"),
        ("0 0 */31 1 0#5", "n"),  # the first day of a month as its fifth Sunday
        ("61 3 * * *", "n"),
        (",".join(["1"] * 200) + " * * * *", "n"),
        (DAILY, "n" * 107),
    ],
)
async def test_what_names_no_times_is_refused_in_one_message(every, name, queue):
    status, said = await enter(queue, name, every)
    assert (status, "\n" in said) == (400, False)
    assert "give" in said
    assert queue.records.active() == []


def test_times_are_in_utc():
    assert next_time("30 1 * * 1", 20_700 * DAY_S) == 20_703 * DAY_S + 1.5 * HOUR_S
    assert next_time("*/5 * * * *", 299.9) == 300
    assert next_time("*/5 * * * *", 300) == 600
    with pytest.raises(RefusedError, match=r"every 'x' names no times: give the five fields"):
        next_time("x", 0)


async def test_the_commands_enter_list_and_end_it(clock, tmp_path, monkeypatch, train, queue):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/plain.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path / "code")
    file = tmp_path / "outputs.json"
    ui_stack.write_outputs(file, queue.url, tmp_path / "store", rayToken=TOKEN)
    monkeypatch.setenv(contract.FILE_VARIABLE, str(file))

    async def run(*words):
        assert await asyncio.to_thread(train, *words) == 0, train.err
        return train.out + train.err

    submit = ("submit", "plain.py", "--entrypoint-num-gpus", "0", "--every", DAILY, "--name")
    said = await run(*submit, "nightly")
    assert "train queue`; end it: `" in said
    (row,) = json.loads(await run("queue", "--json"))
    assert (row["run"], row["place"]) == ("nightly", "")
    assert row["begins"]
    assert "makes a job at" in await run("list")
    assert (await run("stop", "nightly")).strip().endswith("STOPPED")
    assert json.loads(await run("queue", "--json")) == []
    name = "n" * 50
    long = (*submit, name)
    assert await asyncio.to_thread(train, *long) == 1
    assert f"{name}-20260101-0300' is not 1 to 63" in train.err
