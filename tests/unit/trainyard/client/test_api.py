"""The commands as functions."""

import json
from typing import Any

import pytest

import trainyard
from trainyard.client import outputs as contract
from trainyard.client import submission


def test_a_submission_is_the_users_and_takes_no_other_options(tmp_path, values, monkeypatch):
    (tmp_path / "mine.py").touch()
    (tmp_path / "Pulumi.yaml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(contract, "_ask_engines", lambda _: json.dumps(values))
    sent: list[Any] = []

    def take(request: Any, *_: Any, **options: Any) -> tuple[None, str]:
        sent.append((request, options))
        return None, "a job"

    monkeypatch.setattr(submission, "submit", take)
    done = trainyard.submit("mine.py", name="first", wait=False)
    assert done == {"run": "first", "job": "a job", "status": "PENDING"}
    [(request, options)] = sent
    assert request.own  # another user's run is not taken, as without --force
    assert (request.is_plain, options) == (True, {"force": False})
    with pytest.raises(TypeError, match="submit has no option forced"):
        trainyard.submit("mine.py", forced=True)
    with pytest.raises(AttributeError, match="has no attribute 'sumbit'"):
        trainyard.sumbit  # noqa: B018
