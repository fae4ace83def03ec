"""Verdicts, and what follows from them, without an account."""

import pytest

from infra import reap
from infra.reap import Finding
from infra.states import Stack

HERE, THERE = "11111111", "22222222"  # ids of state backends
ELSEWHERE = "of another backend"


def _stack(**fields):
    empty = {"ids": frozenset(), "mark": "", "busy": False, "expires": None}
    return Stack(project="trainyard", name="dev", **(empty | fields))


def _judge(finding, *stacks):
    return reap.judge([finding], list(stacks), "ann@lab", {HERE})[0].verdict


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"id": "known", "mark": "0a1b2c3d", "owner": "bob@lab"}, "in state"),
        ({"id": "known"}, "in state"),  # an adopted key bears no mark
        ({"id": "known", "mark": "0a1b2c3d", "backend": THERE}, "in state"),  # the state moved here
        ({"id": "x"}, "not ours"),
        ({"id": "x", "owner": "ann@lab", "backend": HERE}, "not ours"),
        ({"id": "x", "mark": "bbbbbbbb", "owner": "ann@lab"}, "under way"),
        ({"id": "x", "mark": "0a1b2c3d", "owner": "ann@lab", "backend": HERE}, "orphan"),
        ({"id": "x", "mark": "ffffffff", "owner": "ann@lab", "backend": HERE}, "orphan"),
        ({"id": "x", "mark": "ffffffff", "owner": "bob@lab", "backend": HERE}, "other owner"),
        ({"id": "x", "mark": "ffffffff", "backend": HERE}, "orphan"),  # a key or ruleset
        # F46: another backend of the same person, whose states are not looked at.
        ({"id": "x", "mark": "ffffffff", "owner": "ann@lab", "backend": THERE}, ELSEWHERE),
        ({"id": "x", "mark": "0a1b2c3d", "owner": "ann@lab", "backend": THERE}, ELSEWHERE),
        ({"id": "x", "mark": "ffffffff", "backend": THERE}, ELSEWHERE),
        ({"id": "x", "mark": "ffffffff", "owner": "bob@lab", "backend": THERE}, "other owner"),
        ({"id": "x", "mark": "0a1b2c3d", "owner": "ann@lab"}, "of no known backend"),
    ],
)
def test_verdicts(fields, verdict):
    known = _stack(ids=frozenset({"known"}), mark="0a1b2c3d")
    busy = _stack(mark="bbbbbbbb", busy=True)
    assert _judge(Finding(kind="instance", name="n", **fields), known, busy) == verdict


def _finding(id_, verdict, kind="instance"):
    return Finding(kind=kind, id=id_, name=id_, price=1.0, verdict=verdict)


FOUND = [
    _finding("o1", reap.ORPHAN),
    _finding("o2", reap.ORPHAN),
    _finding("there", reap.OTHER_BACKEND),
    _finding("old", reap.NO_BACKEND),
    _finding("theirs", reap.OTHER_OWNER),
    _finding("known", reap.IN_STATE),
    _finding("busy", reap.UNDER_WAY),
    _finding("stranger", reap.NOT_OURS),
    _finding("key", reap.ORPHAN, kind="key"),
]


def test_only_orphans_end_without_being_named():  # F46
    assert [each.id for each in reap.to_end(FOUND, [])] == ["o1", "o2"]


def test_what_may_be_in_no_state_ends_by_its_name():
    named = reap.to_end(FOUND, ["there", "old", "o2", "old"])
    assert [each.id for each in named] == ["there", "old", "o2"]


@pytest.mark.parametrize(
    ("id_", "told"),
    [
        ("known", "known is in state: destroy its stack"),
        ("busy", "busy is under way: run up or destroy"),
        ("theirs", "theirs is other owner: name the owner too, with --owner"),
        ("stranger", "stranger is not ours: end it on the account's page"),
        ("key", "no instance key"),
        ("none", "no instance none"),
    ],
)
def test_what_may_not_end_is_refused_by_its_name(id_, told):
    with pytest.raises(reap.ReapError, match=f"{told}.*Nothing was ended"):
        reap.to_end(FOUND, ["o1", id_])
