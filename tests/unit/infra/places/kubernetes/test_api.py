"""Events: only those that still hold for an object are shown. And threads at the first look."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from types import SimpleNamespace

import httpx2
import lightkube
import pytest

from infra.places.kubernetes import api

QUOTA = "pods is forbidden: exceeded quota"


def _event(
    fake, second, reason, *, kind="Warning", uid="uid-x", message=QUOTA, time="lastTimestamp"
):
    number = len(fake.objects)
    fake.objects["events", f"e{number}"] = {
        "metadata": {"name": f"e{number}", "resourceVersion": str(number)},
        "involvedObject": {"uid": uid, "name": "x"},
        "type": kind,
        "reason": reason,
        "message": message,
        time: f"2026-11-25T12:00:{second:02}Z",
    }


@pytest.fixture
def told(fake, cluster):
    """Return the warning of an object that this program changed last in second 10."""
    fields = [
        {"manager": api.MANAGER, "time": "2026-11-25T12:00:05Z"},
        {"manager": api.MANAGER, "time": "2026-11-25T12:00:10Z"},
        {"manager": "kuberay-operator", "time": "2026-11-25T12:00:50Z"},
    ]
    live = {
        "kind": "RayCluster",
        "metadata": {"name": "x", "uid": "uid-x", "managedFields": fields},
    }
    return lambda: api.open_api(cluster).warning(live)


def test_an_event_says_why_an_object_is_not_made(fake, told):
    assert told() == ""
    _event(fake, 10, "FailedToCreateHeadPod")
    _event(fake, 12, "BackOff", message="of a container")
    assert told() == QUOTA


@pytest.mark.parametrize(
    "event",
    [
        {"uid": "uid-of-another"},
        {"second": 9},
        {"reason": "BackOff"},
        # The pod that KubeRay was about to end is gone without it.
        {"reason": "FailedToDeleteHeadPod"},
    ],
)
def test_what_is_of_another_object_or_of_before_the_change_is_not_told(fake, told, event):
    _event(fake, **{"second": 20, "reason": "FailedToCreateHeadPod", **event})
    assert told() == ""


@pytest.mark.parametrize("time", ["lastTimestamp", "eventTime"])
def test_what_went_well_since_is_not_told(fake, told, time):
    _event(fake, 20, "FailedToCreateService", message="the old one is still ending")
    _event(fake, 20, "CreatedService", kind="Normal", time=time)  # of the same second
    assert told() == ""
    _event(fake, 21, "FailedToCreateWorkerPod")
    assert told() == QUOTA


@pytest.mark.parametrize(
    "passing",
    [
        lambda _: httpx2.Response(429, text="slow down", headers={"Retry-After": "1"}),
        lambda _: httpx2.Response(502),  # of a gate that says nothing of its content
        lambda _: httpx2.Response(503, json={"kind": "Status", "code": 503, "message": "m"}),
        lambda request: (_ for _ in ()).throw(httpx2.ConnectError("refused", request=request)),
    ],
)
def test_an_api_that_was_there_is_waited_for(fake, cluster, monkeypatch, passing):
    """As while the only node of its control plane restarts."""
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    monkeypatch.setattr(api, "time", clock)
    answer = type(fake).answer
    until = [0.0]
    monkeypatch.setattr(
        type(fake),
        "answer",
        lambda self, request: passing(request) if now[0] < until[0] else answer(self, request),
    )
    opened = api.open_api(cluster)
    until[0] = 30.0
    with pytest.raises(api.KubernetesError):
        opened.get("ConfigMap", "x")  # which has not answered yet
    assert now == [0.0]
    now[0] = 30.0
    assert opened.get("ConfigMap", "x") is None
    until[0] = 60.0
    assert opened.get("ConfigMap", "x") is None
    assert now[0] >= 60.0
    until[0] = 10_000.0
    with pytest.raises(api.KubernetesError):
        opened.pods({})
    assert now[0] <= 60.0 + api.AWAY_SECONDS + 2 * api.AWAY_PAUSE_SECONDS


def test_no_two_threads_are_the_first_to_read_a_kubeconfig(monkeypatch, cluster, fake):
    read, both = lightkube.KubeConfig.from_file, Barrier(2)
    at_once: list[bool] = []

    def from_file(path):
        with suppress(BrokenBarrierError):
            both.wait(0.5)  # for another thread, which must not come
            at_once.append(True)
        return read(path)

    monkeypatch.setattr(lightkube.KubeConfig, "from_file", from_file)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(api.open_api, [cluster] * 2))
    assert not at_once


def test_kueue_says_why_an_object_waits_if_the_user_may_know(fake, cluster):
    def said():
        return api.open_api(cluster).queued({"metadata": {"uid": "uid-x"}})

    assert said() == ""
    fake.objects["workloads", "new"] = {"metadata": {"name": "new"}}
    assert said() == ""
    waits = [
        {"type": "Evicted", "status": "True", "message": "preempted"},
        {"type": "QuotaReserved", "status": "False", "message": "2 more cpu needed"},
    ]
    fake.objects["workloads", "new"]["status"] = {"conditions": waits}
    assert said() == "2 more cpu needed"
    fake.answer = lambda _: httpx2.Response(403, json={"kind": "Status", "code": 403})
    api.open_api.cache_clear()
    assert said() == ""
