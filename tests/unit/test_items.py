"""Items are found where tests name them."""

import re

import pytest

from tests import items

SOURCE = """
import x  # noqa: F401

# F2: of the module

# A12 to A14, A20
@decorated
def test_above():
    call(1)  # F35: none is written
    text = "# B1"


def test_beside():  # D7 D8
    # F40, over
    # two lines
    call()  # E6


CASES = ["a"]  # F3
"""


def test_a_comment_belongs_to_the_test_that_it_is_at():
    above = ["A12", "A13", "A14", "A20", "F35"]
    assert items.named(SOURCE) == [
        ("F2", ""),
        *((item, "test_above") for item in above),
        *((item, "test_beside") for item in ["D7", "D8", "F40", "E6"]),
        ("F3", ""),
    ]


def test_items_are_listed_in_order_with_their_tests(tmp_path):
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_a.py").write_text(SOURCE)
    (tmp_path / "test_b.py").write_text("def test_b():  # A2\n    assert True  # A2 A13\n")
    found = items.by_item(tmp_path)
    assert list(found)[:5] == ["A2", "A12", "A13", "A14", "A20"]
    assert found["A13"] == ["test_b.py::test_b", "unit/test_a.py::test_above"]
    assert found["F3"] == ["unit/test_a.py"]


PAGE = """before
| item | promise | tests |
| --- | --- | --- |
| A1 | One. | none |
| A2 | Two. | 9: [test_old.py](../tests/test_old.py) |
| F1 | Three. |
after
"""


def test_the_page_names_the_tests_of_today():
    page = items.PAGE.read_text()
    assert items.updated(page, items.by_item(items.TESTS)) == page, "run `make docs`"


def test_the_page_has_each_item_in_order_with_a_short_sentence():
    page = items.PAGE.read_text()
    rows = items.ROW.findall(page)
    assert len(rows) == len(re.findall(r"^\| *[A-F]\d", page, re.MULTILINE))
    found = [item for item, _ in rows]
    counts = {"A": 46, "B": 29, "C": 22, "D": 56, "E": 12, "F": 82}
    assert found == [f"{letter}{n + 1}" for letter, count in counts.items() for n in range(count)]
    for item, promise in rows:
        assert len(promise) <= 160, item
        assert promise.endswith("."), item


def test_only_the_column_of_tests_is_written():
    places = ["conftest.py::stack", "unit/test_a.py::test_x", "unit/test_b.py", "unit/test_b.py::y"]
    page = items.updated(PAGE, {"A1": places, "F1": ["conftest.py::stack"]})
    assert page.splitlines() == [
        *PAGE.splitlines()[:3],
        "| A1 | One. | 4: [test_b.py](../tests/unit/test_b.py) |",
        "| A2 | Two. | none |",
        "| F1 | Three. | 1: [conftest.py](../tests/conftest.py) |",
        "after",
    ]
    assert items.updated(page, {}) != page


def test_an_item_that_is_there_twice_or_not_at_all_is_refused():
    with pytest.raises(ValueError, match=r"^A2: twice"):
        items.updated(f"{PAGE}| A2 | Again. | none |\n", {})
    with pytest.raises(ValueError, match=r"^A3, F2: named by tests \(unit/test_a\.py::x\)"):
        items.updated(PAGE, {"A1": [], "A3": ["unit/test_a.py::x"], "F2": ["test_b.py"]})
