"""A sweep that goes on: a lost job server loses no point."""

import itertools
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

from trainyard.client import jobs, preflight
from trainyard.client.errors import ClientError, UnreachedError
from trainyard.client.job_server import Job, Status
from trainyard.client.sweep import run
from trainyard.client.sweep.point import Point, PointOutcome
from trainyard.client.sweep.records import Records
from trainyard.client.sweep.run import Sweep


def point(number, override):
    return Point(
        number=number, overrides=(override,), identity=override, folder=str(number), bundle={}
    )


def sending(*errors):
    """What sends points, once it has raised some errors."""
    results = itertools.chain(errors, itertools.repeat(None))
    return Mock(**{"environment.return_value": {}, "send_point.side_effect": results})


@pytest.fixture
def records(tmp_path):
    with Records(tmp_path, "first") as found:
        yield found


@pytest.fixture
def make(records, monkeypatch):
    """A sweep of points; the job server knows the jobs of `known`."""
    monkeypatch.setattr(run, "RESEND_S", 0)
    known = []
    server = SimpleNamespace(jobs=lambda: [SimpleNamespace(submission_id=each) for each in known])
    monkeypatch.setattr(jobs, "connect", lambda _: server)

    def made(*points, sender=None, as_tasks=False):
        store = {"keeps_files_away": False, "storage_url": "file:///nowhere", "attached": False}
        outputs = SimpleNamespace(away=False, nodes=[], shows_runs=True, **store)
        found = Sweep(list(points), records, outputs, sender or sending(), as_tasks=as_tasks)
        found.known = known
        return found

    return made


def test_each_line_of_a_point_has_its_prefix(capsys):
    writer = run.LogWriter(run.Prefixed("[3]"))
    for piece in ("one\ntw", "o\nrest"):
        writer.write(piece)
    writer.close()
    assert capsys.readouterr().out == "[3] one\n[3] two\n[3] rest\n"


def test_a_job_server_that_is_lost_for_a_moment_loses_no_point(make, records):
    sender = sending(UnreachedError("lost"), UnreachedError("lost"))
    job_id = make(sender=sender)._send(point(0, "x=1"))
    assert sender.send_point.mock_calls == [call(point(0, "x=1"), job_id)] * 3
    assert records.get("x=1").job == job_id


def test_a_point_whose_answer_was_lost_is_not_sent_twice(make, monkeypatch):
    monkeypatch.setattr(run.submission, "new_job_id", lambda: "raysubmit_7")
    sender = sending(UnreachedError("lost"))
    sweep = make(sender=sender)
    sweep.known.append("raysubmit_7")
    assert sweep._send(point(0, "x=1")) == "raysubmit_7"
    sender.send_point.assert_called_once()


def test_points_are_added_while_the_tasks_before_them_run(make, records, monkeypatch):  # F54
    job = Job(status=Status.RUNNING, submission_id="raysubmit_1", metadata={"run": records.name})
    ran = []

    def run_tasks(sweep, _server, todo, flying):
        ran.append(([each.number for each in todo], [each.number for each, _ in flying]))
        sweep.outcomes |= {each.number: PointOutcome(job="") for each in sweep.points}

    for check in ("check_versions", "check_bucket", "check_runtime_env"):
        monkeypatch.setattr(preflight, check, lambda *_: None)
    monkeypatch.setattr(preflight.disks, "known", lambda _: [])
    monkeypatch.setattr(Sweep, "_run_tasks", run_tasks)
    sweep = make(point(0, "x=1"), point(1, "x=2"), as_tasks=True)
    monkeypatch.setattr(jobs, "connect", lambda _: SimpleNamespace(jobs=lambda: [job]))
    sweep._note(sweep.points[0], job.submission_id)
    sweep.run()
    assert ran == [([1], [0])]


def test_a_point_is_not_sent_again_before_the_jobs_are_known(make, monkeypatch):
    monkeypatch.setattr(run.submission, "new_job_id", lambda: "raysubmit_7")
    sender = sending(UnreachedError("lost"), ClientError("there is a job of that id"))
    sweep = make(sender=sender)
    sweep.known.append("raysubmit_7")
    server, lost = jobs.connect(None), [ClientError("lost")] * 2

    def connect(_):
        if lost:
            raise lost.pop()
        return server

    monkeypatch.setattr(jobs, "connect", connect)
    assert sweep._send(point(0, "x=1")) == "raysubmit_7"
    assert lost == []


def test_a_job_server_that_stays_lost_ends_the_start(make, records, monkeypatch):
    monkeypatch.setattr(jobs, "LOST_AFTER_S", 0)
    with pytest.raises(UnreachedError):
        make(sender=sending(*[UnreachedError("lost")] * 99))._send(point(0, "x=1"))
    assert not records.get("x=1").done  # the job may be there: the next start looks


def test_a_point_that_is_refused_is_sent_by_the_next_start(make, records):
    with pytest.raises(ClientError, match="no"):
        make(sender=sending(ClientError("no")))._send(point(0, "x=1"))
    assert records.get("x=1") is None
