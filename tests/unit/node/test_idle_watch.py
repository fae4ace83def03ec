"""When a cluster counts as idle, and when its machines end for that."""

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from node import idle_watch, replicate
from node.idle_watch import (
    IdleLimits,
    IdleWatch,
    Ray,
    Rules,
    WatchState,
    decide,
    keep,
    verdict,
    work,
)
from node.replicate import Folder
from tests import web

RULES = Rules(idle_seconds=600, deadline=100_000)
BUSY = ("job a is RUNNING",)


def looks(state: WatchState, *found: tuple[float, tuple[str, ...]]) -> WatchState:
    for now, active in found:
        state = decide(state, active, now, now, RULES)
    return state


def idle(state: WatchState, begin: float, end: float) -> WatchState:
    for now in range(int(begin), int(end) + 1, 15):
        state = decide(state, (), now, now, RULES)
    return state


def test_machines_end_after_looks_that_found_nothing_for_long_enough():  # B27
    state = looks(WatchState(), (1000, BUSY), (1015, ()))
    assert (state.idle_since, state.ends_at(RULES)) == (1015, 1615)
    assert not idle(state, 1030, 1600).ending
    ended = idle(state, 1030, 1615)
    assert ended.ending == 1615
    # The others' machines first: they ask the head's.
    assert verdict(ended, 1616, RULES)["end"] is True
    assert verdict(ended, 1616, RULES)["end_head"] is False
    assert verdict(ended, 1615 + idle_watch.HEAD_SECONDS, RULES)["end_head"] is True
    # The head runs the user's command meanwhile, and needs its time.
    later = replace(RULES, command_seconds=300)
    assert verdict(ended, 1615 + idle_watch.HEAD_SECONDS + 299, later)["end_head"] is False
    assert verdict(ended, 1615 + idle_watch.HEAD_SECONDS + 300, later)["end_head"] is True
    # Some have ended by then: the decision stands.
    assert looks(ended, (1700, BUSY)).ending == 1615
    # Their timers' key was revoked, say, and somebody works there the next morning.
    later = 1616 + idle_watch.REVIVED_SECONDS
    assert looks(ended, (later, ())).ending == 1615
    assert looks(ended, (later, BUSY)).ends_at(RULES) == 0


def test_whatever_is_found_begins_the_time_anew():  # B27
    state = idle(WatchState(), 1000, 1585)
    state = looks(state, (1590, BUSY))
    assert (state.idle_since, state.ends_at(RULES)) == (0, 0)
    assert verdict(state, 1591, RULES)["ends_in"] is None
    assert looks(state, (1605, ())).ends_at(RULES) == 2205


@pytest.mark.parametrize("now", [1711.0, 5000.0, 900.0])
def test_a_time_without_a_look_counts_as_active(now):
    state = idle(WatchState(), 1000, 1590)
    assert looks(state, (now, ())).idle_since == now  # also where the clock was set back


def test_slow_looks_count_from_their_start():  # F50
    state = decide(WatchState(), BUSY, 1000, 1140, RULES)
    for began in range(1155, 1700, 155):  # each takes 140 s, and the next begins 15 s later
        state = decide(state, (), began, began + 140, RULES)
    assert (state.idle_since, state.ending) == (1155, 0)  # at 1620, for less than 10 minutes
    assert decide(state, (), 1775, 1915, RULES).ending == 1915
    # A look's first answers say nothing about the rest of it: only starts count.
    assert not decide(state, (), 1754, 1915, RULES).ending
    assert decide(state, (), 1760 + idle_watch.BLIND_SECONDS + 1, 2100, RULES).idle_since == 1881


def test_who_wants_the_machines_keeps_them_until_the_deadline_at_most():
    kept = keep(idle(WatchState(), 1000, 1300), 7200, 1300, RULES)
    assert kept.ends_at(RULES) == 8500
    assert not idle(kept, 1315, 8485).ending
    assert idle(kept, 1315, 8500).ending == 8500
    for seconds in (0, -1, 98_701, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"at most the 1645 until the machines' deadline"):
            keep(kept, seconds, 1300, RULES)
    with pytest.raises(ValueError, match="are ending already"):
        keep(idle(kept, 1315, 8500), 60, 8501, RULES)


def test_what_cannot_be_read_counts_as_active():
    found = idle_watch.look(
        {"jobs": Mock(side_effect=OSError("no route")), "actors": list, "logins": lambda: ["a"]}
    )
    assert found == ["jobs cannot be read (no route)", "a"]


class Dashboard:
    """Answers as Ray's dashboard does: what it says, by path."""

    def __init__(self) -> None:
        self.says: dict[str, Any] = {}
        self.ray: Ray
        self.server: web.Web

    def answer(self, asked: web.Request) -> web.Said:
        known = self.says.get(asked.path.partition("?")[0])
        allowed = asked.headers["Authorization"] == "Bearer t"
        return 200 if known is not None and allowed else 500, json.dumps(known).encode()


@pytest.fixture
def dashboard() -> Iterator[Dashboard]:
    made = Dashboard()
    with web.serving(made.answer) as made.server:
        made.ray = Ray(made.server.url, "t")
        yield made


def test_jobs_models_and_actors_are_activity(dashboard):
    ray = dashboard.ray
    assert "cannot be read" in idle_watch.look({"jobs": lambda: ray.jobs("RUNNING")})[0]
    dashboard.says["/api/jobs/"] = [
        {"submission_id": "a", "status": "SUCCEEDED"},
        {"submission_id": "b", "status": "PENDING", "metadata": {"run": "b"}},
        {"submission_id": "c", "status": "PENDING", "metadata": {"every": "0 3 * * *"}},
        {"submission_id": None, "job_id": "02000000", "status": "RUNNING"},  # of Ray's client
    ]
    found = ray.jobs("PENDING", "RUNNING")
    assert found == ["job b is PENDING", "job 02000000 is RUNNING"]
    dashboard.says["/api/serve/applications/"] = {"applications": {"cats": {}}}
    assert ray.served() == ["cats is served"]
    actor = {"name": "", "class_name": "Counter", "ray_namespace": "x"}
    own = {"name": "s", "class_name": "_StatsActor", "ray_namespace": "_dataset_stats_actor"}
    dashboard.says["/api/v0/actors"] = {"data": {"result": {"result": [actor, own]}}}
    assert ray.actors() == ["actor Counter lives"]


def test_a_notebook_is_used_while_its_page_is_open_or_a_kernel_computes(dashboard):  # B27
    notebook = idle_watch.Notebook(dashboard.server.url, "t")
    assert "cannot be read" in idle_watch.look({"notebook": notebook.used})[0]
    for state, ago, found in (
        ("idle", 500, []),
        ("busy", 500, ["a kernel of the notebook computes"]),
        ("idle", 60, ["the notebook is used"]),
    ):
        last = datetime.fromtimestamp(time.time() - ago, UTC).isoformat().replace("+00:00", "Z")
        dashboard.says["/api/kernels"] = [{"execution_state": state}]
        dashboard.says["/api/status"] = {"last_activity": last}
        assert notebook.used() == found


def test_an_answer_without_end_is_read_up_to_a_bound(dashboard, monkeypatch):  # F39
    sent = 0

    def endless(asked: web.Request) -> None:
        nonlocal sent
        asked.send_response(200)
        asked.end_headers()
        with contextlib.suppress(ConnectionError):
            for _ in range(4 * idle_watch.ANSWER_MIB):
                asked.wfile.write(b" " * 2**20)
                sent += 1

    monkeypatch.setattr(dashboard.server, "answer", endless)
    ray = dashboard.ray
    why = "jobs cannot be read (more than 64 MiB, which are not read)"
    assert idle_watch.look({"jobs": lambda: ray.jobs("RUNNING")}) == [why]
    assert sent < 2 * idle_watch.ANSWER_MIB


ACTIVE = ["job a is RUNNING", "actor Sleeper lives"]


@pytest.mark.parametrize(
    ("bounds", "changes", "counts"),
    [
        (IdleLimits(), {"cpu": 0.0}, True),  # off by default: `sleep` counts until it ends
        (IdleLimits(100), {}, False),
        (IdleLimits(100), {"cpu": 4.0}, True),  # 120 % of a core
        (IdleLimits(100), {"gpus": [{"utilizationGpu": 0}, {"utilizationGpu": 1}]}, True),
        (IdleLimits(100, 5), {"gpus": [{"utilizationGpu": 5}]}, False),
        # Unknown use counts.
        (IdleLimits(100, 5), {"gpus": [{"utilizationGpu": None}]}, None),
        (IdleLimits(100), {"cpu": None}, None),
        (IdleLimits(100), {"now": 0.0}, True),  # its agent has died
        (IdleLimits(100), {"now": None}, None),
        (IdleLimits(100), {"raylet": {"state": "DEAD"}}, True),  # then nobody tells
    ],
)
def test_a_job_below_the_bounds_of_use_is_no_activity(dashboard, bounds, changes, counts):  # F50
    ray = dashboard.ray
    jobs = [{"submission_id": "a", "status": "RUNNING"}]
    actor = {"name": "", "class_name": "Sleeper", "ray_namespace": "x"}
    node = {"raylet": {"state": "ALIVE"}, "now": time.time(), "cpu": 3.0, "cpus": [30, 15]}
    summary = [node | {"gpus": []} | changes, {"raylet": {"state": "DEAD"}}]
    dashboard.says["/api/jobs/"] = jobs
    dashboard.says["/api/v0/actors"] = {"data": {"result": {"result": [actor]}}}
    dashboard.says["/nodes"] = {"data": {"summary": summary}}
    found = idle_watch.look({"jobs and actors": lambda: work(ray, bounds)})
    if counts is None:
        assert [text.partition(" (")[0] for text in found] == ["jobs and actors cannot be read"]
    else:
        assert found == (ACTIVE if counts else [])
    jobs.append({"submission_id": "b", "status": "PENDING"})  # it may be installing
    assert idle_watch.look({"work": lambda: work(ray, bounds)})


def test_a_cluster_whose_nodes_have_yet_to_join_is_not_idle(dashboard):
    def alive(count: int) -> None:
        dashboard.says["/api/v0/nodes"] = {"data": {"result": {"result": [{}] * count}}}

    ray = dashboard.ray
    joining = idle_watch.Joining(ray, 2, time.time() + 60)
    alive(1)  # the second machine still installs
    assert joining() == ["1 of 2 nodes have joined"]
    assert idle_watch.Joining(ray, 2, time.time())() == []  # and did for too long
    alive(2)
    assert joining() == []
    alive(1)  # a node that dies keeps no machine
    assert joining() == []


def test_a_run_that_has_not_changed_is_not_read_again(tmp_path):  # F50
    class Counted(Folder):
        reads = 0

        def read(self, *given: Any) -> bytes:
            self.reads += 1
            return super().read(*given)

    place, mark = Counted(tmp_path), '{"checkpoint": "", "epochs": 1, "files": 0}'
    for number in range(200):
        for name, content in (
            ("config.json", "{}"),
            ("metrics.jsonl", '{"epoch": 0}\n'),
            ("pulled.json", mark),
        ):
            place.write(f"run-{number}/{name}", content.encode())
    read = idle_watch.Results(place)
    assert (read(), place.reads) == ([], 400)
    assert (read(), place.reads) == ([], 400)
    place.write("run-7/metrics.jsonl", b'{"epoch": 0}\n{"epoch": 1}\n')
    assert (read(), place.reads) == (["run run-7 was neither pulled nor copied"], 401)
    place.delete("run-7/metrics.jsonl")
    assert (read(), place.reads) == ([], 401)


def test_runs_that_are_only_here_are_activity(tmp_path):  # B27
    place = Folder(tmp_path / "store")
    (tmp_path / "store").mkdir()
    results = idle_watch.Results(place)

    def put(name: str, content: str = "{}") -> None:
        place.write(name, content.encode())

    put("other/file")  # no run
    put("failed/config.json")  # has nothing to lose
    assert results() == []
    put("one/config.json")
    put("one/metrics.jsonl", '{"epoch": 0}\n')
    for name in ("one/checkpoint_000001", "one/trial/checkpoint_000009"):
        put(f"{name}/manifest.json", '{"files": {"model.pt": {"size": 2}}}')
        put(f"{name}/model.pt")
    put("one/checkpoint_000002/model.pt")  # not whole
    said = ["run one was neither pulled nor copied"]
    assert results() == said
    put("one/pulled.json", '{"checkpoint": "checkpoint_000000", "epochs": 1, "files": 0}')
    assert results() == said
    put("one/replicated.json", '{"checkpoint": "checkpoint_000001", "epochs": 1, "files": 0}')
    assert results() == []
    put("one/metrics.jsonl", '{"epoch": 0}\n{"epoch": 1}\n')
    assert results() == said
    put("search/config.json")
    put("search/trial_1/result.json")  # before it has ended it has nothing else
    assert results()[1:] == ["run search was neither pulled nor copied"]
    put("search/replicated.json", '{"checkpoint": "", "epochs": 0, "files": 1}')
    assert results() == said


def test_the_newest_whole_checkpoint_is_the_one_that_the_replica_marks(tmp_path):  # F53
    for folder in ("store", "there"):
        (tmp_path / folder).mkdir()
    place = Folder(tmp_path / "store")
    replica, results = (
        replicate.Replica(place, Folder(tmp_path / "there")),
        idle_watch.Results(place),
    )
    files = {
        "checkpoint_999999-ab/manifest.json": '{"files": {"model.pt": {"size": 1}}}',
        "checkpoint_999999-ab/model.pt": "1",
        "checkpoint_1000000-ab/manifest.json": '{"files": {"model.pt": {"size": 1}}}',
        "checkpoint_1000000-ab/model.pt": "1",  # the newest by number, not by text
        "checkpoint_1000001-ab/manifest.json": '{"files": {}}',
        "checkpoint_1000002-ab/manifest.json": '{"files": ',
        "checkpoint_1000003-ab/manifest.json": '{"files": {"model.pt": {"size": 1}}}',
        "checkpoint_1000004-ab/manifest.json": '{"files": {"model.pt": {"size": 1}}}',
        "checkpoint_1000004-ab/model.pt": "cut",
        "checkpoint_zz/manifest.json": '{"files": {"model.pt": {"size": 1}}}',
        "checkpoint_zz/model.pt": "1",
        "config.json": "{}",
    }
    for name, content in files.items():
        place.write(f"one/{name}", content.encode())
    assert results() == ["run one was neither pulled nor copied"]
    assert replica.copy() == []
    mark = json.loads(place.read("one/replicated.json"))
    assert mark["checkpoint"] == "checkpoint_1000000-ab"
    assert results() == []


@pytest.fixture
def watch(tmp_path) -> IdleWatch:
    return IdleWatch(Rules(idle_seconds=60, deadline=time.time() + 3600), tmp_path / "state.json")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(600, "idle"), (100, "idle: all ends within 5 min; train keep 2h puts it off")],
)
def test_prometheus_and_the_log_know_when_an_idle_cluster_ends(tmp_path, seconds, said):  # B27
    # A container has no folder for it yet.
    watch = IdleWatch(Rules(seconds, time.time() + 3600), tmp_path / "state/state.json")
    server = idle_watch.serve(watch, ("127.0.0.1", 0), "canary")

    def metrics() -> list[str]:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            # Prometheus 3 reads no other type.
            assert answer.headers["Content-Type"].startswith("text/plain;")
            return list(answer.read().decode().split())

    try:
        watch.change(decide, BUSY, time.time())
        assert (metrics(), watch.said()) == ([], BUSY[0])
        watch.change(decide, (), time.time())
        name, value = metrics()
        assert (name, watch.said()) == (idle_watch.METRIC, said)
        assert 0 < int(value) <= seconds
        watch.change(keep, 1800)
        assert (tmp_path / "state/state.json").exists()
    finally:
        server.shutdown()


def test_only_those_with_the_token_are_answered(watch):  # F33
    server = idle_watch.serve(watch, ("127.0.0.1", 0), "canary")
    url = f"http://127.0.0.1:{server.server_port}"

    def ask(path: str, token: str = "canary", body: str | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        data = None if body is None else body.encode()
        request = urllib.request.Request(url + path, headers=headers, data=data)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    try:
        assert ask("/health", "")[0] == 200
        for path, body in (("/verdict", None), ("/keep", '{"seconds": 60}')):
            assert ask(path, "x", body) == (401, {})
        status, answer = ask("/verdict")
        assert (status, answer["end"], answer["ends_in"]) == (200, False, None)
        assert answer["active"] == ["nothing was looked at yet"]
        assert ask("/keep", body='{"seconds": 1800}')[1]["keep_until"] > time.time() + 1700
        for bad in ('{"seconds": 7200}', '{"seconds": "x"}', "{}", "[]", "no", "1" * 5000):
            status, answer = ask("/keep", body=bad)
            assert (status, bool(answer["error"])) == (400, True), bad
    finally:
        server.shutdown()
        server.server_close()


def test_another_start_knows_what_was_said(watch, tmp_path):
    watch.change(keep, 1800)
    again = IdleWatch(Rules(idle_seconds=60, deadline=time.time() + 3600), tmp_path / "state.json")
    assert again.verdict()["keep_until"] == watch.verdict()["keep_until"]
    assert again.verdict()["ends_in"] is None  # it has looked at nothing yet


def test_a_job_that_comes_while_the_store_is_listed_counts(monkeypatch, tmp_path):  # F50
    came: list[str] = []
    looked: list[list[str]] = []
    monkeypatch.setattr(idle_watch, "serve", lambda *_: None)
    monkeypatch.setattr(idle_watch, "Ray", lambda *_: SimpleNamespace(served=list))
    monkeypatch.setattr(idle_watch, "work", lambda *_: list(came))
    monkeypatch.setattr(idle_watch, "Results", lambda *_: lambda: came.append("job a") or [])
    monkeypatch.setattr(IdleWatch, "change", lambda *words: looked.append(list(words[2])))

    class EndedError(Exception):
        pass

    monkeypatch.setattr(time, "sleep", Mock(side_effect=EndedError))
    settings = {
        "listen": "127.0.0.1",
        "port": 0,
        "token": "t",
        "idleSeconds": 60,
        "commandSeconds": 0,
        "deadline": 1e10,
        "cpuPercent": 0,
        "gpuPercent": 0,
        "nodes": 0,
        "dashboard": "",
        "rayToken": "",
        "file": str(tmp_path / "state.json"),
        "notebook": {},
        "source": {"url": tmp_path.as_uri()},
    }
    with pytest.raises(EndedError):
        idle_watch.main(settings)
    assert looked == [["job a"]]
