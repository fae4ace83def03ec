"""Lists with one odd or hostile record among others, by commands that ask a real HTTP server."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import ui_stack
from trainyard.client import fields
from trainyard.client import outputs as contract
from trainyard.client import serve as serving
from trainyard.client import state as cluster
from trainyard.client.cli import app
from trainyard.client.dashboard import Dashboard, UnreadableError
from trainyard.client.ui import live

Train = Callable[..., str]
DEEP: Any = {}
for _ in range(300):
    DEEP = {"a": DEEP}
# Changes of a job's record that nobody can read; the id stays, unless it is the odd part.
ODD_JOBS: list[Any] = [
    {"status": "LOST"},
    {"status": ["RUNNING"]},
    {"type": None, "status": None},
    {"start_time": math.inf},
    {"start_time": math.nan},
    {"start_time": -1},
    {"end_time": 10**17},
    {"end_time": "now"},
    {"end_time": True},
    {"metadata": ["run"]},
    {"metadata": {"run": 7}},
    {"metadata": {"run": "x" * 10**5}},
    {"metadata": {"user": "a\nb"}},
    {"runtime_env": "env"},
    {"message": 3},
]
ODD_IDS = ["a\0b", "..", "\ud800", "x" * 300, 7]
GOOD = [ui_stack.job(1), ui_stack.job(2, "RUNNING"), ui_stack.job(3, "PENDING")]


def without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


@pytest.fixture
def head() -> ui_stack.Head:
    return ui_stack.Head([*GOOD])


@pytest.fixture
def store(tmp_path) -> Path:
    for number in (1, 2):
        ui_stack.write_run(tmp_path / "store", f"run-{number:04}")
    return tmp_path / "store"


@pytest.fixture
def train(head, store, tmp_path, monkeypatch) -> Iterator[Train]:
    """Run a command that must succeed; returns its output."""
    with ui_stack.up(head, tmp_path, store, monkeypatch):

        def run(*arguments: str) -> str:
            result = CliRunner().invoke(app, arguments)
            assert not result.exception, (arguments, repr(result.exception))
            return result.output

        yield run


@pytest.fixture
def stack(train) -> contract.StackOutputs:
    return contract.read()


def listed(train: Train, *command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(train(*command, "--json"))
    return [without(row, "seconds") for row in found]


def test_an_odd_job_hides_no_other(head, train):  # F69
    others = listed(train, "list")
    odd = [GOOD[1] | {"submission_id": f"odd-{i}"} | each for i, each in enumerate(ODD_JOBS)]
    odd += [without(GOOD[1], name) | {"submission_id": name} for name in ("status", "metadata")]
    nameless = [*(GOOD[1] | {"submission_id": each} for each in ODD_IDS), None, [], "x"]
    head.put([GOOD[0], *odd, *nameless, *GOOD[1:]])
    found = listed(train, "list")
    unreadable = [row for row in found if row["status"] == fields.UNREADABLE]
    assert [row for row in found if row not in unreadable] == others
    names = [row["job"] for row in unreadable]
    assert names == [*(each["submission_id"] for each in odd), *[""] * len(nameless)]
    assert {row["run"] + row["started"] for row in unreadable} == {""}
    assert unreadable[0]["waits"] == ("its record cannot be read: 'LOST' is not a valid Status")
    for command in (["list"], ["watch"], ["info"], ["runs"], ["status", "run-0002"]):
        assert "run-0002" in train(*command) or command == ["info"]
    assert "start_time is inf" in train("status", "odd-3")
    train("logs", "odd-3")
    assert "asked job odd-3 to stop" in train("stop", "odd-3")
    assert head.asked[-1] == ("POST", "/api/jobs/odd-3/stop")
    assert "placement" in train("compare", "run-0001")


def test_a_list_of_jobs_is_cut_by_what_one_looks_for(head, train):
    now = time.time() * 1000
    old, new = (GOOD[0] | {"submission_id": name} for name in ("old", "new"))
    head.put(
        [*GOOD[1:], old | {"start_time": int(now - 9e7)}, new | {"start_time": int(now - 9e5)}]
    )

    def names(*options: str) -> list[str]:
        return [row["job"] for row in listed(train, "list", *options)]

    assert names("--since", "1h", "--status", "succeeded") == ["new"]
    assert names("--since", "2d", "--status", "SUCCEEDED") == ["new", "old"]
    assert names("--limit", "1") == ["new"]
    assert names("--user", "nobody") == []


@pytest.mark.parametrize("name", ["-x", "--help", "a b;$(c)/d", "-s prod"])
def test_a_job_of_any_printable_name_can_be_used(name, head, train):  # F69
    head.put([GOOD[2] | {"submission_id": name, "metadata": {"demand": '[{"GPU": 9}]'}}])
    [row] = listed(train, "list")
    assert row["job"] == name
    quoted = {"-x": "-- -x", "--help": "-- --help", "-s prod": "-- '-s prod'"}
    assert f"train stop {quoted.get(name, repr(name))}`" in row["waits"]
    assert name in train("status", "--", name)
    assert "is queued" in train("stop", "--", name)
    assert "POST" in [method for method, _ in head.asked]


DEMANDS = ["[" * 100_000, "[1]", "{}", '[{"GPU": 1e999}]', '[{"GPU": -1}]', '[{"GPU": "9"}]']
DEMANDS += [json.dumps([{"GPU": 9}] * 5000), "[[[", "7", '[{"GPU": NaN}]', '[{"GPU": 1e300}]']


@pytest.mark.parametrize("demand", DEMANDS, ids=range(len(DEMANDS)))
def test_an_odd_demand_explains_no_wait_of_its_own_only(demand, head, train):  # F69
    others = listed(train, "list")
    odd = {"submission_id": "odd", "start_time": 1, "metadata": {"demand": demand}}
    head.put([*GOOD, GOOD[2] | odd])
    *found, row = listed(train, "list")
    assert found == others
    assert row["waits"].startswith("the record of what it asks for is unreadable (")


ACTOR = {
    "actor_id": "a",
    "class_name": "RayTrainWorker",
    "name": None,
    "job_id": "01",
    "pid": 1,
    "node_id": "n1",
    "state": "ALIVE",
    "placement_group_id": None,
    "required_resources": {"CPU": 1},
}
BUNDLE = {"unit_resources": {"GPU": 1}, "node_id": "n1"}
GROUP = {"creator_job_id": "01", "state": "CREATED", "bundles": [BUNDLE]}
NODE = {
    "node_id": "n1",
    "node_ip": "10.0.0.1",
    "is_head_node": True,
    "state": "ALIVE",
    "resources_total": {"CPU": 4, "memory": 2**30},
}
STATE: list[tuple[str, dict[str, Any], str, list[Any]]] = [
    ("actors", ACTOR, "required_resources", [{"CPU": math.inf}, {"CPU": "1"}, ["CPU"], {"x": -1}]),
    ("actors", ACTOR, "pid", ["one", 1e300]),
    ("placement_groups", GROUP, "bundles", [7, [7], [{}], [BUNDLE] * 5000]),
    ("nodes", NODE, "is_head_node", ["yes", 1]),
    ("nodes", NODE, "node_ip", ["a\n", 7]),
    ("declared", NODE, "resources_total", [{"CPU": math.nan}, {"memory": 10**40}, 7]),
]


@pytest.mark.parametrize(("what", "good", "name", "values"), STATE)
def test_an_odd_record_of_the_head_hides_no_other(what, good, name, values, head, stack):  # F69
    def ask(*found: Any) -> Any:
        path = what.replace("declared", "nodes")
        head.replies[f"/api/v0/{path}"] = {"data": {"result": {"result": [*found]}}}
        method = {"placement_groups": "reservations"}.get(what, what)
        return getattr(cluster.ClusterState(stack), method)()

    assert len(ask(good)) == 1
    odd = [*(good | {name: value} for value in values), without(good, name), None, []]
    assert ask(*odd, good) == ask(good)


ODD_USE: list[Any] = [
    {},
    {"step": "noon", "CPU": 1},
    {"step": 1, "CPU": "x" * 10**5, "memory": -1, "GPU": math.nan, "GPU memory": [1]},
    {"step": 2, "CPU": True, "\x1b[31m" * 100: 1e308, "odd sent": -1e308, "y": None},
    {"step": 3, "odd sent": 1} | {f"node-{i} CPU": 1 for i in range(5000)},
]


def test_odd_rows_of_what_a_run_used_hide_no_other(store, train):
    folder = store / "run-0001/usage"
    folder.mkdir()
    good = {"step": 5, "CPU": 1.75, "memory": 2 * 2**30, "head memory": 2**30}
    (folder / "a.jsonl").write_text("".join(json.dumps(each) + "\n" for each in ODD_USE))
    lines = [json.dumps(good | {"step": step}) for step in (4, 5)]
    (folder / "b.jsonl").write_text("\n".join([*lines, "{}", "not JSON"]))
    assert "used        at most CPU 1.8, memory 2.00 GiB\n" in train("show", "run-0001")
    shown = train("show", "run-0001", "--usage")
    assert "\nCPU\t1.8\t" in shown
    assert "\nhead memory\t1.00 GiB\t1.00 GiB\t██\n" in shown
    assert "\x1b" not in shown
    assert shown.count("node-") <= 200
    assert json.loads(train("show", "run-0001", "--json"))["usage"][-1] == good
    os.truncate(folder / "a.jsonl", 2**30)
    assert "CPU 1.8" in train("show", "run-0001")
    assert "no use is recorded: the jobs of this run ended within seconds" in train(
        "show", "run-0002", "--usage"
    )


def test_an_odd_node_alert_or_service_hides_no_other(head, train, stack):  # F69
    nodes, alerts, served = live.nodes(stack), live.alerts(stack), serving.services(stack)
    summary = head.replies["/nodes"]["data"]["summary"]
    disk = {"disk": {"/": {"total": math.inf, "free": 1}}}
    odd_nodes = [None, "x", {}, {"raylet": []}, {"raylet": 1}, {"raylet": {"state": "ALIVE"}}]
    summary[1:1] = [*odd_nodes, ui_stack.node("10.0.0.9") | disk]
    head.replies[ui_stack.ALERTS]["data"]["alerts"][:0] = [None, {"labels": 3}]
    odd: dict[str, Any] = {"b": None, "c": {"name": []}, "d": ui_stack.service("d\0")}
    head.replies["/api/serve/applications/"]["applications"] |= odd
    assert [row for row in live.nodes(stack) if row["node"] != fields.UNREADABLE] == nodes
    assert len(live.nodes(stack)) == len(nodes) + 7
    assert live.alerts(stack)[2:] == alerts
    found = serving.services(stack)
    assert [row for row in found if row["service"] not in odd] == served
    assert {row["status"] for row in found if row["service"] in odd} == {fields.UNREADABLE}
    assert "10.0.0.2" in train("watch")
    assert "10.0.0.2" in train("info")
    assert "first" in train("services")


@pytest.mark.parametrize("answer", [None, [], {}, 7, {"data": 7}, {"data": {"result": [1]}}])
def test_what_is_no_list_is_one_error(answer, stack, monkeypatch):  # F69
    monkeypatch.setattr(Dashboard, "get", lambda *_, **__: answer)
    state = cluster.ClusterState(stack)
    for ask in (state.actors, state.reservations, state.nodes, state.declared, state.placed):
        if answer != {"data": {}}:
            with pytest.raises(UnreadableError):
                ask()
    with pytest.raises(UnreadableError, match="no list of nodes"):
        live.nodes(stack)


def test_an_odd_run_hides_no_other(store, train):  # F69
    others = listed(train, "runs")
    ui_stack.write_run(store, "odd-time")
    (store / "odd-time/starts.jsonl").write_text('{"time": "0001-01-01T00:00:00+14:00"}\n')
    ui_stack.write_run(store, "odd-values")
    odd = {"loss": [DEEP], "valid_acc": "x" * 10**6, "test_acc": math.inf}
    (store / "odd-values/metrics.jsonl").write_text(json.dumps(odd | {"loss": {}}) + "\n")
    ui_stack.write_run(store, "odd-levels")
    (store / "odd-levels/metrics.jsonl").write_text(json.dumps(odd) + "\n")
    ui_stack.write_run(store, "odd-size")
    os.truncate(store / "odd-size/config.json", 2**30)
    ui_stack.write_run(store, "odd-fifo")
    (store / "odd-fifo/config.json").unlink()
    os.mkfifo(store / "odd-fifo/config.json")
    ui_stack.write_run(store, "odd-config")
    (store / "odd-config/config.json").write_text(json.dumps(DEEP))
    found = {row["run"]: row for row in listed(train, "runs")}
    assert [row for name, row in found.items() if not name.startswith("odd")] == others
    assert len(found) == len(others) + 6
    assert "the time in starts.jsonl cannot be read: time is -6" in found["odd-time"]["fault"]
    assert "odd-size/config.json has more than 16 MiB" in found["odd-size"]["fault"]
    assert "metrics.jsonl is damaged after line 0" in found["odd-levels"]["fault"]
    for name in ("odd-fifo", "odd-config"):
        assert "config.json is not a JSON object" in found[name]["fault"]
    assert found["odd-values"]["figures"] == {}
    assert len(train("runs")) < 10_000
    for name in found.keys() - {"odd-size"}:  # an error of its own
        assert (found[name]["fault"] or name) in train("show", name)


def test_a_run_of_a_job_is_no_path(store, train, head):  # F69
    ui_stack.write_run(store.parent, "secret")
    names = ["../secret", "\0", "run-0001"]
    head.put([GOOD[1] | {"metadata": {"run": name}} for name in names])
    shown = train("watch").rpartition("\nruns\n")[2]
    assert "run-0001" in shown
    assert "secret" not in shown


def test_runs_are_newest_first_in_the_hour_that_comes_twice(store, train, monkeypatch):  # F78
    monkeypatch.setenv("TZ", "EST5EDT,M3.2.0,M11.1.0")  # no file of time zones is needed
    time.tzset()
    try:
        for name, at in (("run-0001", "05:50"), ("run-0002", "06:10")):
            start = {"time": f"2026-11-01T{at}:00+00:00", "packages": {}}
            (store / name / "starts.jsonl").write_text(json.dumps(start) + "\n")
        found = listed(train, "runs")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [row["started"] for row in found] == [
        "2026-11-01 01:10:00-05:00",
        "2026-11-01 01:50:00-04:00",
    ]


def test_a_head_whose_clock_is_ahead_shows_no_negative_time(head, train):  # F78
    began = int(time.time() * 1000) + 100_000
    ended = {"status": "FAILED", "end_time": began - 5000}
    head.put([GOOD[1] | {"start_time": began}, GOOD[0] | {"start_time": began} | ended])
    assert [row["seconds"] for row in json.loads(train("list", "--json"))] == [0, 0]
