"""Checks of `train serve` before anything is sent, and its list of services."""

from dataclasses import replace

import pytest

from trainyard.client import serve
from trainyard.client.errors import ClientError
from trainyard.tracking.run_folder import CONFIG


@pytest.fixture
def served(stack, tmp_path):
    for name in ("first", "second", "untrained"):
        (tmp_path / "storage" / name).mkdir(parents=True)
        (tmp_path / "storage" / name / CONFIG).write_text("{}")
    (tmp_path / "storage" / "second" / "checkpoint_000001-abcd").mkdir()
    (tmp_path / "storage" / "only" / "checkpoint_000002-abcd").mkdir(parents=True)
    return replace(stack, serve_url="http://127.0.0.1:8000")


def start(outputs, **changes):
    options = {
        "checkpoint": None,
        "replicas": 1,
        "replica": {"CPU": 1.0, "GPU": 0.0},
        "timeout_s": 300,
    }
    names = {"run": "first", "service": "first"}
    both = names | options | changes
    serve.start(both.pop("run"), both.pop("service"), outputs, **both)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": "A B"}, "run name 'A B' is not"),
        ({"service": "../x"}, "run name '../x' is not"),
        ({"replica": {"CPU": 5.0, "GPU": 0.0}}, "asks for CPU 5 on one node"),
        ({"replica": {"CPU": 1.0, "GPU": 1.0}, "replicas": 2}, "not all fit together"),
        # An answer without a job.
        ({"run": "frist"}, r"no run is called 'frist' in .*: did you mean 'first'\? `train runs`"),
        ({"run": "untrained"}, "run 'untrained' has no checkpoint yet: `train show untrained`"),
        (
            {"run": "second", "checkpoint": "checkpoint_2"},
            "run 'second' has no checkpoint 'checkpoint_2': give one of checkpoint_000001-abcd",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_is_sent(changes, message, served):  # F29
    with pytest.raises(ClientError, match=message):
        start(served, **changes)


@pytest.mark.parametrize("checkpoint", [None, "checkpoint_000002-abcd"])
def test_a_run_of_which_only_checkpoints_were_copied_is_served(checkpoint, served, monkeypatch):
    monkeypatch.setattr(serve, "_submit", lambda _, arguments, __: sent.append(arguments))
    sent = []
    start(served, run="only", checkpoint=checkpoint)
    assert [arguments[0] for arguments in sent] == ["only"]


def test_a_stack_that_has_no_address_for_services(served):
    with pytest.raises(ClientError, match="its output serveUrl is empty"):
        start(replace(served, serve_url=""))


def test_the_line_to_try_has_no_token(served):
    line = serve.how_to_ask("first", served)
    assert line.endswith("-F images=@b.jpg http://127.0.0.1:8000/first/predict")
    assert "engine output serveToken --show-secrets -s dev" in line
    assert served.serve_token not in line
    assert "rayToken" not in line


def test_rows_of_what_is_served(served):
    deployment = {
        "deployment_config": {"user_config": {"run": "first", "checkpoint": "checkpoint_1"}},
        "replicas": [{"state": "RUNNING"}, {"state": "STARTING"}],
        "target_num_replicas": 2,
        "message": "waits",
    }
    application = {
        "name": "first",
        "status": "DEPLOYING",
        "message": "",
        "route_prefix": "/first",
        "deployments": {"model": deployment},
    }
    assert serve._row(application, served) == {
        "service": "first",
        "status": "DEPLOYING",
        "replicas": "1/2",
        "run": "first",
        "checkpoint": "checkpoint_1",
        "url": "http://127.0.0.1:8000/first",
        "message": "waits",
    }
    foreign = {"name": "x", "status": "NOT_STARTED", "message": "", "route_prefix": None}
    row = serve._row(foreign | {"deployments": {}}, served)
    assert (row["run"], row["replicas"], row["url"]) == ("", "0/0", "http://127.0.0.1:8000")
    deployment["deployment_config"]["user_config"] = ["of another job"]
    assert serve._row(application, served)["run"] == ""
