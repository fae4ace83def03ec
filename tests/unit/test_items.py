"""Items are found where tests name them."""

from pathlib import Path

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


def test_a_comment_belongs_to_the_test_that_it_is_at() -> None:
    above = ["A12", "A13", "A14", "A20", "F35"]
    assert items.named(SOURCE) == [
        ("F2", ""),
        *((item, "test_above") for item in above),
        *((item, "test_beside") for item in ["D7", "D8", "F40", "E6"]),
        ("F3", ""),
    ]


def test_items_are_listed_in_order_with_their_tests(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_a.py").write_text(SOURCE)
    (tmp_path / "test_b.py").write_text("def test_b():  # A2\n    assert True  # A2 A13\n")
    found = items.by_item(tmp_path)
    assert list(found)[:5] == ["A2", "A12", "A13", "A14", "A20"]
    assert found["A13"] == ["test_b.py::test_b", "unit/test_a.py::test_above"]
    assert found["F3"] == ["unit/test_a.py"]
