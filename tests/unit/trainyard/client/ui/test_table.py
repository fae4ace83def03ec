"""Tables that are filtered, sorted and cut into pages."""

import math

import pytest

from trainyard.client.ui.table import HIDDEN, PAGE_ROWS, View, page
from trainyard.json_values import number

ROWS = [
    {"run": "a", "acc": 0.5, "user": "ada", HIDDEN: {"lr": 0.1, "model": "AlexNet"}},
    {"run": "b", "acc": None, "user": "grace", HIDDEN: {"lr": 1e-3}},
    {"run": "c", "acc": 0.9, "user": "ada", HIDDEN: {"lr": "0.01", "depth": [1]}},
]


def names(**query: str) -> str:
    return "".join(row["run"] for row in page(ROWS, View.of(query))["rows"])


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("", "abc"),
        ("ADA", "ac"),
        ("acc>0.5", "c"),
        ("acc>=0.5 user=Ada", "ac"),
        ("lr<0.05", "bc"),
        ("lr=0.010", "c"),
        ("lr=1e-3", "b"),
        ("model=alexnet", "a"),
        ("user!=ada", "b"),
        ("acc>x", ""),
        ("nothing>1", ""),
        ("depth=[1]", "c"),
        ("<img", ""),
    ],
)
def test_a_filter_has_words_and_conditions(words, left):
    assert names(filter=words) == left


def test_rows_without_a_value_are_last_in_each_order():
    assert names(sort="acc", order="ascending") == "acb"
    assert names(sort="acc", order="descending") == "cab"
    assert names(sort="user", order="descending") == "bac"
    assert names(sort="lr", order="ascending") == "bca"
    assert names(sort="none") == "abc"


def test_a_page_of_5000_rows_is_as_long_as_one_of_200():
    rows = [{"run": f"run-{i:04}", "acc": i % 97, HIDDEN: {"lr": i}} for i in range(5000)]
    found = page(rows, View.of({"sort": "acc", "order": "descending", "filter": "lr>=1000"}))
    assert len(found.pop("rows")) == PAGE_ROWS
    assert found == {"total": 5000, "matching": 4000, "page": 0, "pages": 40}
    last = page(rows, View.of({"page": "999"}))
    assert (last["page"], last["rows"][-1]["run"]) == (49, "run-4999")
    assert HIDDEN not in last["rows"][0]


def test_a_strange_query_is_the_first_page():
    for given in ("-1", "x", "9" * 50, ""):
        assert View.of({"page": given}).page == 0


def test_only_finite_numbers_are_numbers():
    assert [number(value) for value in (1, "2.5", True, None, [], "x")] == [1, 2.5, *[None] * 4]
    assert [number(value) for value in (math.nan, math.inf, 10**400, {})] == [None] * 4
