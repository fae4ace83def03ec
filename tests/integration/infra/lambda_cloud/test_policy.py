"""A policy on a real account: what it refuses costs nothing."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PACK = str(Path(__file__).resolve().parents[4] / "policy")


def test_nothing_is_rented_that_a_rule_refuses(rented, cloud):
    rented.declare(ttlHours=0, cidrs=["0.0.0.0/0"])
    cloud.journal.clear()
    text = rented.failed("up", "--policy-pack", PACK)
    assert rented.posts() == []
    assert cloud.account.instances == {}
    assert (
        "policies refuse it: end-of-rented of choice, end-of-rented of node-0, "
        "end-of-rented of node-1, ssh-not-open of ruleset"
    ) in text
    rented.declare(ttlHours=8, maxHourlyCost=3)
    text = rented.done("up", "--policy-pack", PACK)
    assert "policies" not in text
    assert "(advisory)" not in text
