"""The page's answers, which are those of the command line."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

from starlette.testclient import TestClient

from tests import ui_stack, waiting
from tests.hostile import HARM
from trainyard.client import history, run_list, store
from trainyard.client.errors import ClientError
from trainyard.client.outputs import parse
from trainyard.client.ui import stacks
from trainyard.client.ui.run_cache import RunCache


def ask(browser: TestClient, path: str, **query: str) -> dict:
    answer = browser.get(f"/api/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_stack_says_its_health_costs_and_end(browser):
    assert ask(browser, "session")["stacks"] == ["dev"]
    row = ask(browser, "dev/row")
    facts = ("health", "hourly_cost", "active", "owner", "drift")
    assert [row[name] for name in facts] == ["up", 2.5, 2, "ada", None]
    assert row["ends"] == 1798740000000
    found = ask(browser, "dev/stack")
    assert ["owner", "ada"] in found["addresses"]
    [drift] = found["actions"]
    assert drift["command"].endswith("train drift")


def test_a_stack_that_is_down_says_what_to_do(head, browser):
    del head.replies["/api/version"]
    row = ask(browser, "dev/row")
    assert row["health"] == "no answer"
    assert "404" in row["message"]
    answer = browser.get("/api/dev/jobs")
    assert (answer.status_code, "404" in answer.json()["error"]) == (503, True)
    # The store outlives the cluster.
    assert ask(browser, "dev/runs")["total"] == 2
    assert "no stack is called 'other'" in browser.get("/api/other/runs").json()["error"]


def test_nodes_show_their_load(browser):
    head, worker = ask(browser, "dev/nodes")["rows"]
    assert (head["node"], head["cpu"], head["gpus"]) == ("head", 12.5, [])
    assert worker["disk"] == [470 * ui_stack.GIB, 500 * ui_stack.GIB]
    assert worker["memory"] == [24 * ui_stack.GIB, 64 * ui_stack.GIB]
    assert worker["gpus"][0]["used"] == 87


def test_alerts_are_those_of_prometheus(head, browser):
    [alert] = ask(browser, "dev/nodes")["alerts"]
    assert alert == {
        "alert": "NodeLost",
        "state": "firing",
        "since": "2026-11-20T10:00:00Z",
        "about": "instance 10.0.0.2:8080",
        "summary": "a node has been lost for 5 minutes",
    }
    for strange in ({}, {"data": {"alerts": 1}}, {"data": []}, []):
        head.replies[ui_stack.ALERTS] = strange
        found = ask(browser, "dev/nodes")
        assert (found["alerts"], "Prometheus" in found["fault"]) == (None, True)
        assert len(found["rows"]) == 2


def test_an_odd_job_is_on_the_page_and_hides_no_other(head, browser):  # F69
    jobs = [ui_stack.job(1), ui_stack.job(2, "LOST"), ui_stack.job(3, submission_id="-x")]
    jobs[2] |= {"status": "RUNNING", "start_time": 1, "end_time": None}
    head.put([*jobs, ui_stack.job(4, submission_id=7), ui_stack.job(5, metadata=7)])
    rows = {row["job"]: row["status"] for row in ask(browser, "dev/jobs")["rows"]}
    unreadable = dict.fromkeys(["", "raysubmit_000002", "raysubmit_000005"], "UNREADABLE")
    assert rows == {"raysubmit_000001": "SUCCEEDED", "-x": "RUNNING"} | unreadable
    facts = ask(browser, "dev/jobs/raysubmit_000002")
    assert facts["message"].startswith("its record cannot be read: 'LOST'")
    for name in ("raysubmit_000002", "-x"):
        [stop] = ask(browser, f"dev/jobs/{name}")["actions"]
        assert stop["command"].endswith(name)
    assert {row["run"] for row in ask(browser, "dev/runs")["rows"]} == {"run-0001", "run-0002"}
    assert ask(browser, "dev/row")["active"] == 1


def test_a_job_that_a_queue_says_something_of_shows_it_while_it_runs(head, browser):
    said = "its GPUs have been below 5 % for 31 min"
    head.put([ui_stack.job(1, "RUNNING", message=said), ui_stack.job(2, message=said)])
    rows = {row["status"]: row.get("waits", "") for row in ask(browser, "dev/jobs")["rows"]}
    assert rows == {"RUNNING": said, "SUCCEEDED": ""}
    assert ask(browser, "dev/jobs/raysubmit_000001")["message"] == said


def test_jobs_say_who_and_why_they_wait(browser):
    rows = ask(browser, "dev/jobs")["rows"]
    assert [row["status"] for row in rows] == ["PENDING", "RUNNING", "SUCCEEDED"]
    assert rows[0]["user"] == "ada"
    assert "GPU 9" in rows[0]["waits"]
    assert "raysubmit_000003" in rows[0]["waits"]
    assert rows[2]["seconds"] == 600
    assert ask(browser, "dev/jobs", filter="status=RUNNING")["matching"] == 1
    facts = ask(browser, "dev/jobs/raysubmit_000002")
    assert facts["commit"] == "a0fd5dd"
    assert "no job 'x'" in browser.get("/api/dev/jobs/x").json()["error"]


def test_2000_jobs_and_5000_runs_come_in_pages_and_are_read_once(head, store, browser, monkeypatch):
    head.put([ui_stack.job(number) for number in range(2000)])
    found = ask(browser, "dev/jobs")
    assert (len(found["rows"]), found["total"]) == (100, 2000)
    for number in range(3, 5001):
        folder = store / f"run-{number:04}"
        folder.mkdir()
        (folder / "config.json").write_text('{"epochs": 1}')
    read = []
    real = history.tried
    monkeypatch.setattr(history, "tried", lambda *which: read.append(which[1]) or real(*which))

    def all_are_there() -> bool:
        found = ask(browser, "dev/runs", sort="valid_acc", order="descending")
        return found["total"] == 5000 and not found["reading"] and found

    found = waiting.wait_for("all runs", all_are_there, 60)
    assert len(found["rows"]) == 100
    assert [row["run"] for row in found["rows"][:2]] == ["run-0002", "run-0001"]
    assert len(read) == 5000


def test_a_run_that_trains_is_read_again(store, browser, monkeypatch):
    ask(browser, "dev/runs")
    monkeypatch.setattr("trainyard.client.ui.run_cache.LOOK_S", 0)
    with (store / "run-0002/metrics.jsonl").open("a") as file:
        file.write(json.dumps(ui_stack.epoch_record(12, 0.02)) + "\n")

    def grown() -> bool:
        rows = ask(browser, "dev/runs")["rows"]
        return {row["run"]: row["epochs"] for row in rows} == {"run-0001": 12, "run-0002": 13}

    waiting.wait_for("the run's new epoch", grown, 20)


def test_runs_are_in_the_order_of_time(store, browser):  # F78
    for name, start in (("run-0001", "06:10:00+00:00"), ("run-0002", "05:50:00-04:00")):
        starts = store / name / "starts.jsonl"
        starts.write_text(json.dumps({"time": f"2026-11-01T{start}"}) + "\n")
    rows = ask(browser, "dev/runs")["rows"]
    assert [row["run"] for row in rows] == ["run-0002", "run-0001"]


def test_figures_are_those_of_the_command_line(head, store, browser):
    place = store_of(store)
    rows = {row["run"]: row for row in ask(browser, "dev/runs")["rows"]}
    for record in run_list.list_runs(place):
        row = rows[record.name]
        assert row["epochs"] == len(record.metrics)
        assert row["figures"]["loss"] == record.metrics[-1]["loss"]
        assert row["started"] == record.started == 1_795_168_800_000
        assert record.checkpoint.endswith(row["checkpoint"])
    assert rows["run-0001"]["most"] == 0.42  # ten minutes of 2.50 $/h
    assert rows["run-0001"]["cost"] is None


def test_the_page_shows_what_runs_users_and_days_cost(head, browser, tmp_path, monkeypatch):
    for name in ("OUTPUTS_S", "ACCOUNT_S"):
        monkeypatch.setattr(stacks, name, 0.0)
    assert ask(browser, "dev/cost") == {"month": 0, "budget": None, "users": [], "days": []}
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"queue": "true"}))
    today = datetime.now(UTC).date()
    share = {"job": "a", "user": "eva", "run": "run-0001", "gpuHours": 2.0, "cpuHours": 4.0}
    days = [(today - timedelta(days=number)).isoformat() for number in (40, 1, 0)]
    shares = [share | {"day": day, "cost": 1.5} for day in days]
    shares.append(dict.fromkeys(("job", "user", "run"), "") | {"day": days[2], "cost": 8.0})
    shares[-1] |= {"gpuHours": 0.0, "cpuHours": 0.0}
    head.replies["/api/queue/cost"] = {"shares": shares, "month": 12.5, "budget": 100}
    found = ask(browser, "dev/cost")
    assert (found["month"], found["budget"]) == (12.5, 100)
    assert [tuple(row.values()) for row in found["users"]] == [
        ("(idle)", 0, 0, 8, None),
        ("eva", 4, 8, 3, None),
    ]
    assert [tuple(row.values()) for row in found["days"]] == [
        (days[1], 2, 4, 1.5),
        (days[2], 2, 4, 9.5),
    ]
    head.replies["/api/queue/users"] = [
        {"name": name, "role": "user", "since": 1.0, "seen": seen}
        for name, seen in (("ole", 0.0), ("eva", 1795168800.0))
    ]
    [_, eva, ole] = ask(browser, "dev/cost")["users"]
    assert (eva["user"], eva["seen"][:4]) == ("eva", "2026")
    assert ole == {"user": "ole", "seen": ""}  # has a token, and has not used it
    rows = {row["run"]: (row["cost"], row["most"]) for row in ask(browser, "dev/runs")["rows"]}
    assert rows["run-0001"] == (4.5, None)
    assert rows["run-0002"][0] is None
    [run] = ask(browser, "dev/compared", runs="run-0001")["runs"]
    assert run["cost"] == 4.5


def test_an_accuracy_of_0_is_the_best_one(store, browser):
    (store / "run-0001/metrics.jsonl").write_text('{"epoch": 0, "valid_acc": 0.0}\n')
    rows = {row["run"]: row["best"] for row in ask(browser, "dev/runs")["rows"]}
    assert (rows["run-0001"], rows["run-0002"] > 0) == (0.0, True)


def store_of(folder: Path):
    return store.open_store(
        parse(json.dumps(ui_stack.outputs_of("http://127.0.0.1:1", folder)), None, "test")
    )


def test_what_a_run_used_is_curves_of_its_job_and_of_machines(store, browser):
    (store / "run-0001/usage").mkdir()
    rows = [{"step": i, "time": 60 * i, "CPU": 1, "head GPU": i} for i in range(5000)]
    file = store / "run-0001/usage/job.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    used, nothing = (
        run["usage"] for run in ask(browser, "dev/compared", runs="run-0001,run-0002")["runs"]
    )
    assert {*used} == {"CPU", "head GPU"}
    assert 1000 < len(used["CPU"]["points"]) <= 2000
    assert used["head GPU"]["points"][-1] == [4999, 4999, 4999]
    assert nothing == {}


def test_runs_are_compared_by_settings_and_epochs(browser):
    found = ask(browser, "dev/compared", runs="run-0001,run-0002,run-0001")
    assert found["differ"] == ["lr"]
    first, second = found["runs"]
    mine, other = (each["curves"]["valid_acc"] for each in (first, second))
    assert [number for number, _, _ in mine["points"]] == list(range(1, 13))
    assert mine["over"] == "epoch"
    assert mine["points"][-1][1] < other["points"][-1][1]
    commands = {each["action"]: each["command"] for each in first["actions"]}
    assert commands["resume"].endswith("submit alexnet --name run-0001 -- --epochs 20 --lr 0.01")
    assert commands["pull"].endswith("train pull run-0001")
    assert "stop" in {each["action"] for each in second["actions"]}
    names = ",".join(f"x{i}" for i in range(13))
    assert "at most 12" in browser.get("/api/dev/compared", params={"runs": names}).json()["error"]
    assert "no run" in browser.get("/api/dev/compared", params={"runs": "none"}).json()["error"]
    assert browser.get("/api/dev/compared", params={"runs": "../x"}).status_code == 503


def test_sweeps_of_hydra_and_tune_have_points(store, tmp_path, browser, monkeypatch):
    ui_stack.write_sweep(tmp_path / "multirun/2026-11-20/10-00-00", points=3)
    for number in range(2):
        trial = store / f"run-0001/train_{number}"
        trial.mkdir()
        result = {"config": {"lr": number}, "pid": 7, "time_total_s": 1}
        rows = [result | {"val_accuracy": acc} for acc in (0.5 + number / 4, 0.25)]
        (trial / "result.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    rows = ask(browser, "dev/sweeps")["rows"]
    hydra = {"kind": "hydra", "sweep": "multirun/2026-11-20/10-00-00", "points": 3}
    assert rows == [hydra, {"kind": "tune", "sweep": "run-0001", "points": 2}]
    points = ask(browser, "dev/sweep", kind="hydra", sweep=hydra["sweep"])["rows"]
    assert points[1]["settings"] == {"lr": "0.01", "width": "128", "seed": "1"}
    tune = ask(browser, "dev/sweep", kind="tune", sweep="run-0001")
    trials = tune.pop("rows")
    assert tune == {"goals": {"valid_acc": "max", "val_accuracy": "max"}}
    # Of the best epoch, as in the search's own table.
    assert [each["values"] for each in trials] == [{"val_accuracy": acc} for acc in (0.5, 0.75)]
    points_of = tmp_path / "multirun/2026-11-20/10-00-00/.points"  # F69
    whole = json.loads((points_of / "0.json").read_text())
    kept = json.loads((points_of / "sweep.json").read_text())
    for goals in ({"cost": "min", "valid_acc": "max"}, {}):
        odd_too = goals | {"a": {}, "b": "x"}
        (points_of / "sweep.json").write_text(json.dumps(kept | {"goals": odd_too}))
        found = ask(browser, "dev/sweep", kind="hydra", sweep=hydra["sweep"])
        assert found == {"rows": points, "goals": goals}
    odd = ["{", "[" * 100_000, *(json.dumps(whole | {"number": x}) for x in ("1", 1e999))]
    odd.append(json.dumps(whole | {"overrides": 7}))
    for number, content in enumerate(odd):
        (points_of / f"odd-{number}.json").write_text(content)
    os.truncate(store / "run-0001/train_0/result.json", 2**30)
    found = ask(browser, "dev/sweep", kind="hydra", sweep=hydra["sweep"])["rows"]
    assert [row for row in found if "odd" not in row["point"]] == points
    assert len([row for row in found if row["error"].startswith("UNREADABLE: ")]) == len(odd)
    found = ask(browser, "dev/sweep", kind="tune", sweep="run-0001")["rows"]
    assert found[1:] == trials[1:]
    assert "more than 16 MiB" in found[0]["error"]
    with monkeypatch.context() as away:
        away.setattr(RunCache, "trials", Mock(side_effect=ClientError("the store is away")))
        assert ask(browser, "dev/sweeps")["rows"] == [hydra | {"points": 3 + len(odd)}]
    for kind, sweep in (("hydra", ".."), ("hydra", "/"), ("tune", "run-0002"), ("x", "run-0001")):
        answer = browser.get("/api/dev/sweep", params={"kind": kind, "sweep": sweep})
        assert answer.status_code == 503, sweep


def test_services_have_their_button(browser):
    [row] = ask(browser, "dev/services")["rows"]
    assert (row["service"], row["status"], row["replicas"]) == ("first", "RUNNING", "1/1")
    [button] = row["actions"]
    assert button["command"].endswith("train serve --stop first")
    assert button["question"]


def test_a_log_is_followed_to_its_end_without_effects(head, browser):
    head.log = "".join(f"{text}\n" for text in HARM.values()) + f"{ui_stack.SCRIPT}\n"
    head.log += "progress: epoch 1/2: batch 3 of 4, 1.0 batches/s\n"
    found = read_log(browser, "raysubmit_000001")
    assert found[-1] == ["end", "SUCCEEDED"]
    text = "".join(piece for kind, piece in found if kind == "log")
    assert ui_stack.SCRIPT in text  # as a text
    assert "batch 3 of 4" in text
    assert not set(text) & set("\x1b\x07\x00\x9b\x9d\u202e")
    [[kind, fault]] = read_log(browser, "none")
    assert (kind, "no job 'none'" in fault) == ("fault", True)


def read_log(browser: TestClient, job: str) -> list[list[str]]:
    answer = browser.get(f"/api/dev/jobs/{job}/log")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_strange_records_stay_values(guard, store, browser):
    folder = store / "run-0003"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({ui_stack.HOSTILE: [1], "epochs": {}}))
    strange = {"epoch": "x", "loss": "NaN", "valid_acc": [1], ui_stack.SCRIPT: 1}
    (folder / "metrics.jsonl").write_text(json.dumps(strange) + '\n{"loss": NaN}\n')
    odd = {"job": ui_stack.HOSTILE, "status": [1], "user": "a\nb", "command": 3, "started": "x"}
    (folder / "jobs.jsonl").write_text(json.dumps(odd) + "\n")
    rows = ask(browser, "dev/runs")["rows"]
    [row] = [row for row in rows if row["run"] == "run-0003"]
    assert (row["figures"], row["of"]) == ({}, None)
    [run] = ask(browser, "dev/compared", runs="run-0003")["runs"]
    assert run["curves"] == {ui_stack.SCRIPT: {"over": "epoch", "points": [[1, 1.0, None]]}}
    [job] = run["jobs"]
    assert (job["job"], job["told"]) == ("", "[1], by a\\nb; ")


def test_the_files_of_a_run_are_shown_and_downloaded_and_no_others(store, browser, monkeypatch):
    run = store / "run-0001"
    (run / "output").mkdir()
    (run / "output/page.html").write_text(ui_stack.SCRIPT)
    (store / "secret").write_text("of another")
    found = ask(browser, "dev/files", run="run-0001")
    names = [row["name"] for row in found["rows"]]
    assert (names[0], found["total"]) == ("output/page.html", len(names))
    assert found["rows"][0]["size"] == len(ui_stack.SCRIPT)
    answer = browser.get("/api/dev/file", params={"run": "run-0001", "name": names[0]})
    assert answer.text == ui_stack.SCRIPT
    assert answer.headers["content-type"] == "application/octet-stream"  # no page, and nosniff
    assert answer.headers["x-content-type-options"] == "nosniff"
    for run_name, name in (("run-0001", "../secret"), ("..", "secret"), ("run-0001", "none")):
        answer = browser.get("/api/dev/file", params={"run": run_name, "name": name})
        assert answer.status_code == 503, name
    monkeypatch.setattr("trainyard.client.ui.rows.MOST_BYTES", 4)
    answer = browser.get("/api/dev/file", params={"run": "run-0001", "name": names[0]})
    assert "train pull run-0001" in answer.json()["error"]


def test_points_have_minutes_as_well(store, browser):
    rows = [{"step": step, "time": 1000 + 30 * step, "acc": 0.5} for step in (1, 3)]
    (store / "run-0001/logged").mkdir()
    (store / "run-0001/logged/1.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    [run] = ask(browser, "dev/compared", runs="run-0001")["runs"]
    assert run["curves"]["acc"] == {"over": "step", "points": [[1, 0.5, 0.0], [3, 0.5, 1.0]]}
