"""`train cost`: the rows that it adds up, and stacks that keep no account."""

import json

import pytest

from tests import ui_stack

KEYS = ("day", "job", "user", "run", "gpuHours", "cpuHours", "cost")
SHARES = [
    ("2026-11-01", "a", "eva", "first", 2.0, 4.0, 5.0),
    ("2026-11-02", "a", "eva", "first", 1.0, 2.0, 2.5),
    ("2026-11-02", "b", "max", "", 0.0, 8.0, 8.0),
    ("2026-11-02", "", "", "", 0.0, 0.0, 20.0),
]
ACCOUNT = {
    "shares": [dict(zip(KEYS, share, strict=True)) for share in SHARES],
    "month": 27.5,
    "budget": 500,
}


@pytest.fixture
def head(tmp_path, monkeypatch):
    found = ui_stack.Head([])
    with ui_stack.up(found, tmp_path, tmp_path / "store", monkeypatch):
        yield found


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("user", [("(idle)", 0, 0, 20), ("max", 0, 8, 8), ("eva", 3, 6, 7.5)]),
        ("run", [("(idle)", 0, 0, 20), ("", 0, 8, 8), ("first", 3, 6, 7.5)]),
        ("day", [("2026-11-01", 2, 4, 5), ("2026-11-02", 1, 10, 30.5)]),
    ],
)
def test_shares_are_added_up(by, rows, head, train):
    head.replies["/api/queue/cost"] = ACCOUNT
    assert train("cost", "--by", by, "--json") == 0
    assert [tuple(row.values()) for row in json.loads(train.out)] == rows
    assert train("cost", "--by", by) == 0
    assert "35.50 $ in all; (idle) is what no job asked for" in train.err + train.out


def test_a_stack_without_a_queue_keeps_no_account(head, train):
    assert train("cost") == 1
    assert "keeps no account: run `" in train.err
    assert "train config set queue true`, then `make up`" in train.err
    assert train("cost", "--since", "soon") == 1
    assert "'soon' is not a time" in train.err
    head.replies["/api/queue/cost"] = {"shares": [{"day": 1}], "month": 0.0, "budget": None}
    assert train("cost") == 1
    assert "does not tell what was used" in train.err
