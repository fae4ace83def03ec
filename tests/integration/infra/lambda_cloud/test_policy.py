"""A policy on a real account: refused resources cost nothing."""

from pathlib import Path

import pytest

from infra.review import __main__ as review

pytestmark = pytest.mark.integration

PACK = str(Path(__file__).resolve().parents[4] / "infra/policy")


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


def test_a_page_says_what_is_paid_before_anything_is_rented(rented, tmp_path, capsys):
    plan = str(tmp_path / "plan.json")

    def page(**settings):
        rented.declare(**settings)
        rented.done("preview", "--save-plan", plan)
        capsys.readouterr()
        code = review.main(["-C", str(rented.project), "-s", "dev", plan, "--policy-pack", PACK])
        return code, capsys.readouterr().out

    code, text = page(ttlHours=8, maxHourlyCost=3, count=1)
    assert code == 0
    assert "- **Cost**: 0.00 → 0.75 $/h, 6.00 $ to its end\n" in text
    assert "- **Opens beyond loopback**: `ports 22 to 22 from 203.0.113.0/24`\n" in text
    rented.done("up", "--plan", plan)
    code, text = page(ttlHours=0, maxHourlyCost=3, count=2)
    assert code == 1
    assert "- **Cost**: 0.75 → 1.50 $/h, without an end\n" in text
    assert "- **Policy, refused**: `node-1`: end-of-rented (mandatory): has no end" in text
