"""What is wrong with a stack is asked once, and told by each command that meets it."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from trainyard.client import health, jobs, rows
from trainyard.client import outputs as contract
from trainyard.client.commands import watch
from trainyard.client.dashboard import UnreachableError
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.ui.answers import Answers
from trainyard.client.ui.stacks import Stacks

ILL = "ray-head ended 7 times in the last 10 min; port 10001 (rayClientPort) is held by python"
REPORT = [ILL, "web is stopped"]


@pytest.fixture
def report(monkeypatch) -> Mock:
    """Have the question answered by a stand-in: two services are not well."""
    asked = Mock(return_value=REPORT)
    monkeypatch.setattr(health, "_kept", {})
    monkeypatch.setattr(health, "KEPT_S", 3600)
    monkeypatch.setattr(health, "_ask", asked)
    return asked


@pytest.fixture
def ill(report, values, tmp_path, monkeypatch) -> StackOutputs:
    """A stack of this project that is up and not well."""
    for name in ("TRAINYARD_OUTPUTS", "TRAINYARD_STACK"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "Pulumi.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contract, "_ask_engines", lambda _: json.dumps(values))
    return contract.read()


@pytest.mark.parametrize("command", ["list", "watch", "info"])
def test_a_command_tells_what_is_not_well_and_fails(command, ill, train):  # F63
    assert train(command) == 1
    said = train.err
    for each in REPORT:
        assert each in said
    assert "up? run" not in said


def test_a_stack_that_is_well_is_not_told_to_come_up(ill, report, train):  # F63
    report.return_value = []
    with pytest.raises(ClientError, match="its services run, so it is busy") as error:
        jobs.connect(ill)
    assert "make up" not in str(error.value)
    report.return_value = None
    assert train("info") == 0
    assert "error" not in train.err
    assert health.of(ill) == []  # for some seconds
    assert report.call_count == 1


def test_only_the_stack_of_a_state_is_asked(report, stack):
    """A file of outputs may be of another stack of that name."""
    assert health.remedy(stack) == "run `make up`"
    attached = replace(stack, project="", folder=Path())
    assert health.remedy(attached).startswith("start that Ray")
    assert not report.called


def test_a_live_view_and_the_page_tell_it(ill, monkeypatch):  # F63
    for name in ("of_nodes", "of_jobs", "of_runs"):
        monkeypatch.setattr(rows, name, Mock(side_effect=UnreachableError("no answer")))
    parts = watch.look(Mock(), ill)
    assert [part.fault for part in parts[:2]] == REPORT
    answers = Answers(Stacks(None, None, Mock()), Mock())
    row = answers.row({"stack": "dev"})
    assert row["health"] == "no answer"
    assert ILL in row["message"]


def test_the_question_is_one_process(monkeypatch, tmp_path):
    def answer(code: int) -> list[str] | None:
        run = Mock(return_value=Mock(returncode=code, stdout=f"{ILL}\n" if code else ""))
        monkeypatch.setattr(subprocess, "run", run)
        found = health._ask(tmp_path, "dev")
        assert run.call_args.args[0][1:] == [
            *("-P", "-m", "infra.operate.drift", "--health", "-C", str(tmp_path), "-s", "dev")
        ]
        return found

    assert [answer(code) for code in (0, health.ILL, 1)] == [[], [ILL], None]
