"""The messages of `train info` and `train keep` about an end when idle."""

import pytest

from trainyard.client import idle, selection
from trainyard.client.errors import ClientError

VERDICT = {"idle_seconds": 1800, "idle_since": 0, "keep_until": 0, "ends_in": None}
VERDICT |= {"end": False, "active": []}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("5 min", 300), ("7d", 604_800)],
)
def test_a_time_is_read(text, seconds):
    assert selection.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-2h", "2w", "2h2h", "1e9h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ClientError, match="is not a time: write one such as 7d, 2h"):
        selection.seconds(text)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"active": ["a is RUNNING", "b", "c"]}, "after {}; active: a is RUNNING; b and 1 more"),
        (
            {"ends_in": 890, "idle_since": 60},
            "in 15 min: idle since 1970-01-01 00:01 UTC, {} are set",
        ),
        (
            {"active": ["c"], "keep_until": 7200},
            "after {}; active: c; kept until 1970-01-01 02:00 UTC",
        ),
        ({"end": True, "ends_in": -3}, "now, after {}"),
    ],
)
def test_a_verdict_is_one_line(changes, said):
    assert idle.described(VERDICT | changes) == said.format("30 idle min")


def test_a_stack_without_such_an_end_says_so(stack):
    assert idle.watch(stack) is None
    with pytest.raises(ClientError, match="does not end when idle: idleEnd is not set"):
        idle.keep(stack, 60)
