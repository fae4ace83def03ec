"""The rules of policy/ on what the program declares for the stacks that it knows."""

from typing import Any

import pytest

from engine.goal import goal_of
from infra.operate.policy.rules import ADVISORY, RULES

# Mocks mark no outputs as secrets: real stacks do (test_drift.py).
NOT_UNDER_MOCKS = {"credentials-as-secrets"}


@pytest.fixture
def verdicts(requests) -> Any:
    """Rule, level and name of each violation of what was declared so far."""

    def judge() -> set[tuple[str, str, str]]:
        goals = [goal_of(request, project="trainyard", stack="test") for request in requests]
        return {
            (rule.name, rule.level, goal.urn.rpartition("::")[2])
            for goal in goals
            for rule in RULES
            if goal.custom and rule.name not in NOT_UNDER_MOCKS
            if list(rule.check(goal.type, goal.inputs))
        }

    return judge


@pytest.mark.usefixtures("bare")
def test_processes_violate_nothing(run, verdicts):
    run()
    assert verdicts() == set()
    run(keepData=False)
    assert verdicts() == {("results-protected", ADVISORY, "local-data")}


@pytest.mark.usefixtures("engine")
def test_containers_lack_digests_only(run, verdicts):
    outside = {"allowedCidrs": ["10.1.0.0/16"], "publishAddress": "10.1.2.3"}
    run(runtime="docker", tracking="mlflow", **outside)
    found = verdicts()
    assert {(rule, level) for rule, level, _ in found} == {("images-by-digest", ADVISORY)}
    assert {name for *_, name in found} >= {"image-grafana", "image-ray"}
    run(runtime="docker", keepData=False)
    assert ("results-protected", ADVISORY, "local-node") in verdicts()
