"""Pacing on a clock that only tests move: no test here waits."""

import contextlib
import itertools
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import httpx
import pytest

from infra.places.lambda_cloud import pacing
from infra.places.lambda_cloud.client import Client
from infra.places.lambda_cloud.errors import (
    LambdaError,
    LostReplyError,
    NotFoundError,
    RateLimitedError,
    ServerError,
    UnreachableError,
)
from infra.places.lambda_cloud.pacing import Pace, PacedClient
from tests.unit.infra.places.lambda_cloud.test_client import CALLS, REQUEST

LAUNCH = "/api/v1/instance-operations/launch"
OK = {"data": []}
# Every method of the client, grouped by whether it may be repeated after a fault.
READ = ("instance_types", "instances", "instance", "ssh_keys", "file_systems", "firewall_rulesets")
READS = {name: CALLS[name] for name in READ}
CHANGES = {name: call for name, call in CALLS.items() if name not in READ}
RATE_LIMITED = {"error": {"code": "global/rate-limited", "message": "Slow down."}}


class Clock:
    """Time that passes when somebody sleeps.

    `seen` is the time that the calling thread read last, when it was let go: others may have slept
    since.
    """

    def __init__(self):
        self.now = 1000.0
        self.slept = []
        self._lock = threading.Lock()
        self._threads = threading.local()

    def __call__(self):
        self._threads.seen = self.now
        time.sleep(0)  # no wait: lets another thread in if nothing blocks it
        return self._threads.seen

    @property
    def seen(self):
        return self._threads.seen

    def sleep(self, seconds):
        assert seconds >= 0
        with self._lock:
            self.slept.append(seconds)
            self.now += seconds


class Cloud:
    """An API by script of statuses, (status, headers), responses, errors; after it all is well."""

    def __init__(self, *script, jitter=0.0, scale=1.0):
        self.clock = Clock()
        self.journal = []
        self._script = list(script)
        self._lock = threading.Lock()
        self.pace = Pace(scale=scale, clock=self.clock, jitter=lambda: jitter)
        self.account = self.opened(self.clock.sleep)

    def opened(self, sleep):
        """The account for a caller that waits in another way."""
        network = httpx.MockTransport(self._answer)
        return PacedClient("key", transport=network, pace=self.pace, sleep=sleep)

    def _answer(self, request):
        with self._lock:
            self.journal.append((self.clock.seen, request.url.path))
            step = self._script.pop(0) if self._script else 200
        if isinstance(step, Exception):
            raise step
        if isinstance(step, httpx.Response):
            return step
        status, headers = step if isinstance(step, tuple) else (step, {})
        if status == 429:
            return httpx.Response(429, json=RATE_LIMITED, headers=headers)
        if status != 200:
            return httpx.Response(status, text="<html>", headers=headers)
        content = {"data": {"instance_ids": ["i"]}} if request.url.path == LAUNCH else OK
        return httpx.Response(200, json=content)

    def times(self, path=None):
        return [time for time, seen in self.journal if path in (None, seen)]

    def gaps(self, path=None):
        times = sorted(self.times(path))  # threads arrive in any order
        return [round(after - before, 6) for before, after in itertools.pairwise(times)]


def test_requests_of_all_threads_keep_both_bounds():  # F4
    cloud = Cloud()
    with ThreadPoolExecutor(16) as threads:
        launches = [threads.submit(cloud.account.launch, REQUEST) for _ in range(8)]
        reads = [threads.submit(cloud.account.instances) for _ in range(40)]
    assert [each.result() for each in launches] == ["i"] * 8
    assert [each.result() for each in reads] == [[]] * 40
    assert len(cloud.journal) == 48
    assert min(cloud.gaps()) >= 1.0
    assert min(cloud.gaps(LAUNCH)) >= 12.0


def test_reads_go_on_between_launches():
    cloud = Cloud()
    cloud.account.launch(REQUEST)
    for _ in range(5):
        cloud.account.instances()
    assert cloud.times()[-1] - cloud.times()[0] < 6


def test_no_more_is_waited_than_the_bounds_ask_for():
    cloud = Cloud()
    for _ in range(4):
        cloud.account.launch(REQUEST)
    assert max(cloud.gaps()) < 12.5


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_retry_after_is_obeyed_with_bounded_jitter(jitter):  # F4
    cloud = Cloud((429, {"Retry-After": "7"}), jitter=jitter)
    assert cloud.account.instances() == []
    (gap,) = cloud.gaps()
    assert 7.5 <= gap <= 8.0


def test_without_retry_after_the_wait_doubles_up_to_a_bound():  # F4
    cloud = Cloud(*[429] * 7, jitter=1.0)
    cloud.account.instances()
    assert cloud.gaps() == [1.05, 2, 4, 8, 16, 30, 30]


def test_a_refused_launch_is_launched_again_a_slot_later():  # F4
    cloud = Cloud((429, {"Retry-After": "3"}))
    assert cloud.account.launch(REQUEST) == "i"
    assert len(cloud.journal) == 2
    assert min(cloud.gaps()) >= 12.0


def test_a_refused_read_holds_back_the_other_threads_too():  # F4
    cloud = Cloud((429, {"Retry-After": "9"}))
    cloud.account.instances()
    cloud.account.launch(REQUEST)
    assert cloud.times()[1] - cloud.times()[0] >= 9
    assert len(cloud.journal) == 3


def test_a_launch_that_is_held_back_does_not_hold_reads():
    clock = Clock()
    pace = Pace(scale=1.0, clock=clock)
    pace.hold(60, launch=True)
    pace.wait(clock.sleep)
    assert clock.slept == []


def test_after_the_budget_it_gives_up_and_says_why():  # F4
    cloud = Cloud(*[429] * 1000)
    with pytest.raises(RateLimitedError, match="something else uses the account") as caught:
        cloud.account.instances()
    assert caught.value.status == 429
    assert caught.value.code == "global/rate-limited"
    assert re.fullmatch(
        r"GET https://cloud\.lambda\.ai/api/v1/instances: 429 global/rate-limited: Slow down\.\. "
        r"Waited \d+ s and would have to wait \d+ s more, the limit is 180 s: something else .* "
        r"End that or try again later",
        str(caught.value),
    )
    assert sum(cloud.gaps()) <= pacing.BUDGET_SECONDS
    assert len(cloud.journal) < 20


def test_a_retry_after_beyond_the_budget_is_not_waited_for():  # F4
    cloud = Cloud((429, {"Retry-After": "86400"}))
    with pytest.raises(RateLimitedError):
        cloud.account.instances()
    assert cloud.clock.slept == []


def test_time_in_the_queue_does_not_count_towards_the_budget():  # F4
    cloud = Cloud(*[200] * 20, 429)
    for _ in range(21):
        cloud.account.launch(REQUEST)
    assert cloud.times()[-1] - cloud.times()[0] > pacing.BUDGET_SECONDS


@pytest.mark.parametrize("fault", [500, 502, httpx.ReadError("reset"), httpx.ReadTimeout("slow")])
def test_reads_are_repeated_after_a_fault_a_few_times(fault):  # F6
    cloud = Cloud(fault, fault, fault)
    assert cloud.account.instances() == []
    assert len(cloud.journal) == 4
    with pytest.raises((ServerError, LostReplyError)):
        Cloud(fault, fault, fault, fault).account.instances()


@pytest.mark.parametrize("fault", [500, 502, httpx.ReadError("reset"), httpx.ReadTimeout("slow")])
@pytest.mark.parametrize("call", CHANGES.values(), ids=CHANGES)
def test_what_changes_something_is_never_repeated_after_a_fault(call, fault):  # F5
    cloud = Cloud(fault)
    with pytest.raises((ServerError, LostReplyError)):
        call(cloud.account)
    assert len(cloud.journal) == 1


class _Torn(httpx.SyncByteStream):
    """Half an answer."""

    def __iter__(self):
        yield b'{"data": ['
        raise httpx.RemoteProtocolError("peer closed connection")


NOT_WHOLE = {
    "torn": (lambda: httpx.Response(200, stream=_Torn()), LostReplyError),
    "another encoding": (
        lambda: httpx.Response(
            200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip")
        ),
        ServerError,
    ),
    "no JSON": (lambda: httpx.Response(200, text="<html>"), ServerError),
    "of another endpoint": (lambda: httpx.Response(200, json={"data": 7}), ServerError),
    "a fault behind the API": (
        lambda: httpx.Response(400, json={"error": {"code": "provider/x"}}),
        ServerError,
    ),
}


@pytest.mark.parametrize(("answer", "error"), NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_an_answer_that_is_not_whole_is_a_fault(answer, error):  # F5, F6
    cloud = Cloud(*[answer() for _ in range(3)])
    assert cloud.account.instances() == []
    assert len(cloud.journal) == 4
    for call, requests in ((READS["instances"], 4), (CHANGES["launch"], 1)):
        cloud = Cloud(*[answer() for _ in range(9)])
        with pytest.raises(error):
            call(cloud.account)
        assert len(cloud.journal) == requests


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_redirect_and_a_refusal_are_not_repeated(call):
    refusal = {"error": {"code": "global/object-does-not-exist", "message": "Gone."}}
    for answer, error in (
        (httpx.Response(301, headers={"Location": "https://x/"}), LambdaError),
        (httpx.Response(404, json=refusal), NotFoundError),
    ):
        cloud = Cloud(answer)
        with pytest.raises(error) as caught:
            call(cloud.account)
        assert type(caught.value) is error
        assert len(cloud.journal) == 1


def test_a_refusal_for_the_pace_is_told_by_its_code_too():
    cloud = Cloud(httpx.Response(400, json=RATE_LIMITED))
    assert cloud.account.launch(REQUEST) == "i"
    assert len(cloud.journal) == 2


def test_what_was_never_sent_is_sent_again():
    cloud = Cloud(httpx.ConnectError("refused"))
    assert cloud.account.launch(REQUEST) == "i"
    cloud = Cloud(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(UnreachableError):
        cloud.account.launch(REQUEST)
    assert len(cloud.journal) == 4


def test_a_read_that_is_repeated_has_all_its_tries_anew():
    unsent, refused = [httpx.ConnectError("refused")] * 3, (429, {"Retry-After": "100"})
    cloud = Cloud(*unsent, refused, 502, *unsent, refused)
    assert cloud.account.instances() == []
    assert len(cloud.journal) == 10


@pytest.mark.parametrize("call", READS.values(), ids=READS)
def test_every_method_that_reads_is_repeated_after_a_fault(call):  # F6
    cloud = Cloud(*[502] * 9)
    with pytest.raises(ServerError):
        call(cloud.account)
    assert len(cloud.journal) == 4


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_method_of_the_client_is_paced(call):
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public == CALLS.keys()
    cloud = Cloud(200, 429)
    cloud.account.instances()
    with contextlib.suppress(ServerError):  # a success of another endpoint
        call(cloud.account)
    assert len(cloud.journal) >= 3
    assert min(cloud.gaps()) >= 1.0


def test_the_scale_comes_from_the_environment_when_a_request_goes_out(monkeypatch):
    clock = Clock()
    network = httpx.MockTransport(lambda _: httpx.Response(200, json=OK))
    account = PacedClient("key", transport=network, pace=Pace(clock=clock), sleep=clock.sleep)
    monkeypatch.setenv("TRAINYARD_LAMBDA_PACE", "0.01")
    account.instances()
    account.instances()
    assert sum(clock.slept) == pytest.approx(0.01, abs=0.001)
    monkeypatch.delenv("TRAINYARD_LAMBDA_PACE")
    account.instances()
    assert sum(clock.slept) == pytest.approx(1.06, abs=0.01)


@pytest.mark.parametrize("value", ["", "fast", "0", "-1", "nan", "inf"])
def test_a_scale_that_is_none_is_refused(monkeypatch, value):
    monkeypatch.setenv("TRAINYARD_LAMBDA_PACE", value)
    with pytest.raises(LambdaError, match=f"TRAINYARD_LAMBDA_PACE='{value}'"):
        Pace().wait(time.sleep)


@pytest.mark.parametrize("call", [lambda api: api.launch(REQUEST), lambda api: api.instances()])
def test_a_wait_that_is_canceled_sends_nothing_and_lets_others_go_on(call):  # F11
    class CanceledError(Exception):
        pass

    cloud = Cloud()
    cloud.account.launch(REQUEST)
    with pytest.raises(CanceledError):
        call(cloud.opened(Mock(side_effect=CanceledError)))
    assert len(cloud.journal) == 1
    cloud.account.launch(REQUEST)
    assert min(cloud.gaps()) >= 12
