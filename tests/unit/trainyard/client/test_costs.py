"""Costs that commands and the page show in passing, and stacks that keep no account."""

import json
import socket
from datetime import UTC, datetime, timedelta

import pytest

from tests import ui_stack
from trainyard.client import costs, losses
from trainyard.client import outputs as contract
from trainyard.client.store import open_store
from trainyard.tracking import run_folder

PATH = "/api/queue/cost"
TODAY = datetime.now(UTC).date()
RUN = "run-0001"


def share(run, cost, user="eva", days=0):
    day = (TODAY - timedelta(days=days)).isoformat()
    hours = {"gpuHours": 2.0, "cpuHours": 4.0}
    return {"day": day, "job": run and "job", "user": user, "run": run, "cost": cost} | hours


SHARES = [share(RUN, 2.0, days=40), share(RUN, 1.25), share("", 3.0, ""), share("other", 9.0)]


@pytest.fixture
def head(tmp_path, monkeypatch):
    found = ui_stack.Head([])
    found.replies[PATH] = {"shares": SHARES, "month": 13.25, "budget": 500}
    for number in (1, 2):
        ui_stack.write_run(tmp_path / "store", f"run-{number:04}")
    with ui_stack.serving(found) as address:
        file = tmp_path / "outputs.json"

        def reach(queue="true"):
            ui_stack.write_outputs(file, address, tmp_path / "store", queue=queue)

        reach()
        found.reach = reach
        monkeypatch.setenv(contract.FILE_VARIABLE, str(file))
        yield found


def ended(tmp_path, *found):
    """Have the record of a run say what its jobs have cost."""
    jobs = [{"job": str(number)} | more for number, more in enumerate(found)]
    (tmp_path / f"store/{RUN}/jobs.jsonl").write_bytes(run_folder.lines(jobs))


def cost_of(train, run=RUN):
    """Return the cost of a run as `train runs` and `train show` tell it."""
    assert train("runs", "--json") == 0
    (row,) = (each for each in json.loads(train.out) if each["run"] == run)
    assert train("show", run, "--json") == 0
    assert json.loads(train.out)["cost"] == row["cost"]
    return row["cost"]


def test_a_run_and_a_month_say_what_they_have_cost(head, train):
    assert cost_of(train) == 3.25
    assert cost_of(train, "run-0002") is None
    assert train("show", RUN) == 0
    assert "cost        3.25 $\n" in train.out
    assert train("runs") == 0
    assert "cost" in train.out.splitlines()[0]
    assert train("info") == 0
    assert "13.25 $ of 500 $" in train.out
    head.replies[PATH] |= {"budget": None}
    assert train("info") == 0
    assert "cost this month  13.25 $\n" in train.out


def test_a_preview_knows_what_the_month_has_cost(head, monkeypatch, tmp_path):
    outputs = (tmp_path / "outputs.json").read_text()
    monkeypatch.setattr(contract, "_ask_engines", lambda _: outputs)
    assert losses.find("dev", runs=False).month == "13.25 $ of 500 $"


def test_a_price_that_nobody_knows_has_no_column(head, train):
    free = [each | {"cost": 0.0} for each in SHARES]
    head.replies[PATH] = {"shares": free, "month": 0.0, "budget": None}
    for command in (["runs"], ["show", RUN], ["info"]):
        assert train(*command) == 0
        assert "cost" not in train.out


def test_a_stack_without_a_queue_is_not_asked_and_records_outlive_the_queue(head, train, tmp_path):
    head.reach(queue="")
    ended(tmp_path, {"cost": 1.5}, {}, {"cost": 2.5}, {"cost": "much"}, {"cost": -1})
    assert cost_of(train) == 4
    assert train("info") == 0
    assert PATH not in {path for _, path in head.asked}
    head.reach()  # a new queue, which knows less; and one that knows more
    assert cost_of(train) == 4
    head.replies[PATH]["shares"] = [share(RUN, 5.0)]
    assert cost_of(train) == 5


@pytest.mark.parametrize("odd", [None, [], {"shares": [1]}, {"shares": [], "month": -1.0}])
def test_an_odd_queue_leaves_costs_out(odd, head, train, tmp_path):
    ended(tmp_path, {"cost": 1.5})
    head.replies[PATH] = odd
    assert cost_of(train) == 1.5
    assert train("info") == 0


def test_a_queue_that_hangs_is_waited_for_shortly(head, monkeypatch):
    monkeypatch.setattr(costs, "SHORT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        outputs = contract.read().at({"dashboardUrl": url})
        assert outputs.queue
        assert costs.shortly(outputs) == costs.NOTHING


def test_the_short_form_of_a_run_has_its_cost(head, train, tmp_path):
    ended(tmp_path, {"cost": 1.5}, {"cost": 2.0})
    head.reach(queue="")
    place = open_store(contract.read())
    place.write(f"{run_folder.SUMMARIES}/{RUN}", run_folder.sum_up(place, RUN))
    assert cost_of(train) == 3.5
