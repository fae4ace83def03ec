"""The choice of machine: order, bounds, and the message when nothing is left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.places.lambda_cloud.choice import ChoiceError, InstanceRequest, Pick, choose
from infra.places.lambda_cloud.model import Offer


def _offer(name, cents, *regions, gpus=1, gpu="A10 (24 GB PCIe)"):
    specs = {"vcpus": 30, "memory_gib": 200, "gpus": gpus}
    kind = {"name": name, "gpu_description": gpu, "price_cents_per_hour": cents, "specs": specs}
    where = [{"name": region} for region in regions]
    return Offer.model_validate({"instance_type": kind, "regions_with_capacity_available": where})


OFFERS = {
    offer.name: offer
    for offer in (
        _offer("gpu_1x_a10", 75, "us-east-1", "us-west-1"),
        _offer("gpu_1x_gh200", 149, "us-east-3", gpu="GH200 (96 GB)"),
        _offer("gpu_1x_h100_pcie", 329, "us-west-3", gpu="H100 (80 GB PCIe)"),
        _offer("gpu_1x_h100_sxm5", 429, "us-south-1", gpu="H100 (80 GB SXM5)"),
        _offer("gpu_8x_h100_sxm5", 3192, gpus=8, gpu="H100 (80 GB SXM5)"),
    )
}


def _asked(*candidates, **fields):
    """A request as a state has it, where whole numbers are floats."""
    found = [dict(zip(("type", "region"), each.split(), strict=False)) for each in candidates]
    return InstanceRequest.of({"candidates": found, "count": 1.0, **fields})


def _places(asked):
    return [(pick.instance_type, pick.region) for pick in choose(asked, OFFERS)[0]]


def test_candidates_are_tried_in_their_order():
    asked = _asked("gpu_1x_h100_pcie", "gpu_1x_a10 us-west-1")
    assert _places(asked) == [("gpu_1x_h100_pcie", "us-west-3"), ("gpu_1x_a10", "us-west-1")]


def test_any_region_is_all_that_have_capacity_once():
    asked = _asked("gpu_1x_a10 us-west-1", "gpu_1x_a10")
    assert _places(asked) == [("gpu_1x_a10", "us-west-1"), ("gpu_1x_a10", "us-east-1")]


def test_what_came_before_the_choice_is_told():  # F3
    asked = _asked("gpu_8x_h100_sxm5 us-east-1", "gpu_1x_h100_pcie", "gpu_1x_a10", maxHourlyCost=3)
    assert choose(asked, OFFERS)[1] == [
        "gpu_8x_h100_sxm5 in us-east-1: 31.92 $/h is above maxHourlyCost 3",
        "gpu_1x_h100_pcie in any region: 3.29 $/h is above maxHourlyCost 3",
    ]


def test_a_need_is_met_at_the_least_price():
    assert _places(_asked(gpus=1))[0] == ("gpu_1x_a10", "us-east-1")
    # Not the GH200: its processor runs none of the images.
    assert _places(_asked(gpus=1, gpuMemoryGib=40))[0] == ("gpu_1x_h100_pcie", "us-west-3")


@pytest.mark.parametrize(
    ("asked", "setting", "told"),
    [
        ({"maxHourlyCost": 0.5}, "maxHourlyCost", "0.75 $/h is above maxHourlyCost 0.5"),
        ({"budget": 20, "ttlHours": 30}, "budget", "22.50 $ for 30 h is above budget 20"),
        ({"candidates": [], "gpus": 16}, "gpus", "the largest is gpu_8x_h100_sxm5"),
        ({"candidates": [{"type": "gpu_1x_a1o"}]}, "candidates", "nearest: gpu_1x_a10"),
        ({"candidates": [{"type": "gpu_8x_h100_sxm5"}]}, "candidates", "no capacity"),
        ({"candidates": [{"type": "gpu_1x_h100_sxm5"}]}, "candidates", "no firewall rules apply"),
    ],
)
def test_what_cannot_be_had(asked, setting, told):  # A20, F3
    with pytest.raises(ChoiceError) as caught:
        choose(_asked("gpu_1x_a10", **asked), OFFERS)
    assert caught.value.setting == setting
    assert told in str(caught.value)


def test_no_capacity_lists_where_there_is_some():  # A20
    with pytest.raises(ChoiceError) as caught:
        choose(_asked("gpu_8x_h100_sxm5 us-east-1"), OFFERS)
    text = str(caught.value)
    assert "gpu_1x_a10 in us-east-1, us-west-1 (0.75 $/h); gpu_1x_gh200 in us-east-3" in text
    assert "Add one of them to the candidates, or run up again later" in text


def test_what_it_costs():
    asked = _asked("gpu_1x_a10", count=2, budget=20, ttlHours=8)
    (pick, *_), _ = choose(asked, OFFERS)
    expected = "2 x gpu_1x_a10 in us-east-1: 1.50 $/h, 12.00 $ for the stack's 8 h (budget 20 $)"
    assert asked.describe(pick) == expected


def test_what_a_group_that_grows_costs_is_what_all_of_it_costs():
    props = {"count": 4, "least": 1, "budget": 30, "ttlHours": 8}
    asked = _asked("gpu_1x_a10", **props)
    (pick, *_), _ = choose(asked, OFFERS)
    assert asked.describe(pick) == (
        f"1 to 4 x {pick}: {pick.hourly_cost:.2f} to {4 * pick.hourly_cost:.2f} $/h, at most "
        f"{32 * pick.hourly_cost:.2f} $ for the stack's 8 h (budget 30 $)"
    )
    for bound in ({"maxHourlyCost": 3 * pick.hourly_cost}, {"budget": 31 * pick.hourly_cost}):
        with pytest.raises(ChoiceError, match="all 4 possible instances: "):
            choose(_asked("gpu_1x_a10", **props | bound), OFFERS)


@pytest.mark.parametrize(
    ("count", "price", "bound"), [(3, 1.1, 3.3), (6, 0.8, 4.8), (3, 2.49, 7.47)]
)
def test_what_costs_just_a_bound_is_within_it(count, price, bound):
    asked = _asked(count=count, maxHourlyCost=bound, budget=10 * bound, ttlHours=10)
    assert asked.excess(price) is None
    assert asked.excess(price + 0.01).setting == "maxHourlyCost"


def test_a_pick_survives_the_state():
    pick = choose(_asked("gpu_1x_a10"), OFFERS)[0][0]
    known = pick.model_dump(by_alias=True)
    stored = {key: float(v) if isinstance(v, int) else v for key, v in known.items()}
    assert Pick.model_validate(stored) == pick


@given(
    count=st.integers(1, 8),
    cap=st.floats(0.1, 50),
    budget=st.floats(0, 500),
    names=st.lists(st.sampled_from(sorted(OFFERS)), min_size=1),
)
def test_no_choice_exceeds_a_bound(count, cap, budget, names):
    bounds = {"maxHourlyCost": cap, "budget": budget, "ttlHours": 10}
    asked = _asked(*names, count=count, **bounds)
    try:
        picks, _ = choose(asked, OFFERS)
    except ChoiceError:
        return
    for pick in picks:
        assert pick.hourly_cost * count <= cap
        assert not budget or pick.hourly_cost * count * 10 <= budget
        assert pick.region in OFFERS[pick.instance_type].regions
        assert pick.region != "us-south-1"
