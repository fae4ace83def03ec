"""Of submissions of one run at once exactly one holds it, in a folder and in a bucket."""

import dataclasses
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest

from trainyard import failpoints
from trainyard.client import claims, package, preflight, scripts, submission
from trainyard.client.dashboard import Dashboard, RefusedError
from trainyard.client.errors import ClientError, UnreachedError
from trainyard.client.job_server import JobServer
from trainyard.store import s3_requests
from trainyard.store.objects import BucketStore, FolderStore
from trainyard.store.s3_requests import Reply

ROUNDS = 20


class Bucket:
    """A bucket that lets one of several writers create an object."""

    def __init__(self):
        self.kept, self._lock = {}, threading.Lock()

    def send(self, method, key, content=b"", *, query=None, headers=None, timeout, most):
        assert timeout
        assert most
        with self._lock:
            if query:
                keys = [each for each in self.kept if each.startswith(query["prefix"])]
                found = [f"<Contents><Key>{quote(each)}</Key></Contents>" for each in keys]
                return Reply(200, f"<ListBucketResult>{''.join(found)}</ListBucketResult>".encode())
            if headers and key in self.kept:
                assert headers == {"If-None-Match": "*"}
                return Reply(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            if method == "PUT":
                self.kept[key] = content
            if method == "DELETE":
                self.kept.pop(key, None)
            if method == "GET" and key not in self.kept:
                return Reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return Reply(200, self.kept.get(key, b""))


class Head:
    """A head's dashboard, with the statuses of its jobs."""

    def __init__(self, monkeypatch):
        self.jobs, self.session = {}, "session_1"
        monkeypatch.setattr(Dashboard, "get", lambda _, *of: self.get(*of))
        monkeypatch.setattr(Dashboard, "post", lambda _, *of: self.post(*of))
        monkeypatch.setattr(Dashboard, "has", lambda *_: True)

    def get(self, path, *_):
        if path == "/api/version":
            return {"ray_version": "2.60.0", "session_name": self.session}
        found = path.removeprefix("/api/jobs/")
        if found and found not in self.jobs:
            raise RefusedError(404, "no such job")
        return self._job(found) if found else [self._job(each) for each in self.jobs]

    def post(self, _, job):
        self.jobs[job["submission_id"]] = "RUNNING"
        return job

    def _job(self, name):
        of = {"submission_id": name, "status": self.jobs[name], "metadata": {"run": "first"}}
        texts = dict.fromkeys(("entrypoint", "job_id", "message", "start_time", "end_time"))
        return of | texts | {"type": "SUBMISSION", "runtime_env": {}}


@pytest.fixture
def head(monkeypatch):
    return Head(monkeypatch)


@pytest.fixture(params=["folder", "bucket"])
def claim(request, stack, head, monkeypatch):
    """Hold a run for a job that the head then takes; `at_once` has two begin so."""
    if request.param == "bucket":
        bucket = Bucket()
        monkeypatch.setattr(s3_requests.Requests, "send", bucket.send)
        url = {"storage_url": "s3://ray/store", "object_store_endpoint": "http://127.0.0.1:1"}
        stack = dataclasses.replace(stack, **url)
    monkeypatch.setattr(claims, "POLL_S", 0)

    def claim(job, *, force=False, taken=True, error=None):
        with claims.held("first", job, stack, JobServer(stack), force=force):
            if error:
                raise error
            if taken:
                head.jobs[job] = "RUNNING"
        return job

    return claim


def together(monkeypatch):
    """Have the next two threads that look at a store do so before one writes."""
    barrier, seen = threading.Barrier(2), set()
    for kind in (FolderStore, BucketStore):

        def listed(self, prefix="", plain=kind.listed):
            found = plain(self, prefix)
            if threading.get_ident() not in seen:
                seen.add(threading.get_ident())
                barrier.wait(30)
            return found

        monkeypatch.setattr(kind, "listed", listed)


def outcomes(*calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        found = [pool.submit(call) for call in calls]
    return [each.exception() or each.result() for each in found]


def test_of_two_at_once_exactly_one_holds_the_run(claim, head, monkeypatch):  # F71
    for number in range(ROUNDS):
        with monkeypatch.context() as patch:
            together(patch)
            found = outcomes(*(lambda name=f"{number}-{who}": claim(name) for who in "ab"))
        (winner,) = (each for each in found if isinstance(each, str))
        (error,) = (each for each in found if isinstance(each, ClientError))
        assert f"run 'first' is held by job {winner} of " in str(error)
        assert "(RUNNING): follow it" in str(error)
        head.jobs[winner] = "FAILED"  # the next round takes it over


def test_two_submissions_at_once_send_one_job(stack, head, monkeypatch):  # F71
    script = scripts.find("alexnet")
    env = submission.runtime_env(None, script, "first", progress=False)
    request = submission.Request(script=script, arguments=[], run_name="first", runtime_env=env)
    looked = threading.Barrier(2)

    def checked(env, name, outputs, owner):
        server = preflight._connect_for(name, outputs, owner)
        looked.wait(30)
        return server, package.Packed(env, {})

    monkeypatch.setattr(preflight, "run", checked)
    found = outcomes(*[lambda: submission.submit(request, stack, force=False)] * 2)
    (sent,) = head.jobs
    assert [each[1] for each in found if isinstance(each, tuple)] == [sent]
    (error,) = (str(each) for each in found if isinstance(each, ClientError))
    assert sent in error


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when somebody sleeps; `then` is called at each sleep."""
    clock = SimpleNamespace(now=0.0, then=lambda: None)

    def sleep(_):
        clock.now += 1.0
        clock.then()

    clock.time = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(claims, "time", clock.time)
    return clock


def test_a_client_that_was_killed_blocks_no_run(claim, head, clock, capsys):  # F71
    claim("a", taken=False)
    claim("b", force=True, taken=False)
    assert clock.now == 0
    claim("c")
    assert claims.GRACE_S <= clock.now < claims.GRACE_S + 2
    assert "held by job b of" in capsys.readouterr().out
    head.jobs.clear()  # such as of a slow submission, which comes while another waits
    clock.then = lambda: head.jobs.update(c="PENDING")
    with pytest.raises(ClientError, match=r"held by job c of .* \(PENDING\)"):
        claim("d")


@pytest.mark.parametrize("step", ["claim.write ECONNREFUSED", "claim.written EIO"])
def test_a_submission_that_ends_at_a_step_blocks_no_run(claim, clock, step, monkeypatch):  # F71
    monkeypatch.setattr(failpoints, "_reached", itertools.count(1))
    monkeypatch.setenv(failpoints.VARIABLE, f"{step} 1")
    with pytest.raises(OSError, match=r"refused|error"):
        claim("a")
    assert claim("b") == "b"
    assert (clock.now >= claims.GRACE_S) is (step == "claim.written EIO")


def test_what_no_longer_holds_is_taken_over_at_once(claim, head, clock):  # F71
    with pytest.raises(ClientError, match="refused"):
        claim("a", error=ClientError("refused"))
    claim("b")
    head.jobs.clear()
    head.session = "session_2"  # a head that was lost knows no jobs
    claim("c")
    head.jobs["c"] = "STOPPED"
    assert clock.now == 0
    with pytest.raises(UnreachedError):
        claim("d", error=UnreachedError("silent"))  # it may have been accepted
    claim("e")
    assert clock.now >= claims.GRACE_S


@pytest.mark.parametrize("claim", ["folder"], indirect=True)
def test_a_record_that_is_half_written_is_waited_for(claim, clock, stack):  # F71
    folder = Path(stack.storage_url.removeprefix("file://")) / claims.FOLDER / "first"
    claim("a")
    (folder / "000001").write_bytes(b"")
    claim("b")
    assert clock.now >= claims.GRACE_S
    (left,) = folder.iterdir()
    assert json.loads(left.read_bytes())["job"] == "b"
