"""Tables that are filtered, sorted and cut into pages here, so that the browser gets 100 rows."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.json_values import number

PAGE_ROWS = 100
CONDITION = re.compile(r"([^<>=!]+)(<=|>=|!=|=|<|>)(.*)")
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
HIDDEN = "hidden"  # a row's values that conditions may name, and that are not sent

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class View:
    """What a user wants to see of a table.

    All `words` of the filter must match: a part of any text of the row, or a condition such as
    `valid_acc>0.9`, `lr=0.1` or `status!=FAILED`.
    """

    words: Sequence[str] = ()
    sort: str = ""  # the column; "" keeps the order
    descending: bool = False  # the largest first; rows without a value are last in each order
    page: int = 0  # from 0

    @classmethod
    def of(cls, query: Mapping[str, str]) -> View:
        """Read the query of a request."""
        page = query.get("page", "")
        return cls(
            words=query.get("filter", "").split(),
            sort=query.get("sort", ""),
            descending=query.get("order") == "descending",
            page=int(page) if page.isdecimal() and len(page) < 10 else 0,
        )


def page(rows: Sequence[Row], view: View) -> dict[str, Any]:
    """Return a page: `rows`, `total`, `matching`, `page` (from 0) and `pages`."""
    tests = [_test(word) for word in view.words]
    found = [row for row in rows if all(test(row) for test in tests)]
    if view.sort:
        valued = [row for row in found if _value(row, view.sort) not in (None, "")]
        without = [row for row in found if _value(row, view.sort) in (None, "")]
        valued.sort(key=lambda row: _rank(_value(row, view.sort)), reverse=view.descending)
        found = valued + without
    pages = max(1, -(-len(found) // PAGE_ROWS))
    number = min(view.page, pages - 1)
    shown = found[number * PAGE_ROWS : (number + 1) * PAGE_ROWS]
    return {
        "rows": [{key: value for key, value in row.items() if key != HIDDEN} for row in shown],
        "total": len(rows),
        "matching": len(found),
        "page": number,
        "pages": pages,
    }


def _test(word: str) -> Callable[[Row], bool]:
    if (found := CONDITION.fullmatch(word)) is None:
        part = word.casefold()
        return lambda row: any(
            isinstance(value, str) and part in value.casefold() for value in row.values()
        )
    name, sign, wanted = found.groups()
    if sign in COMPARE:
        compare, bound = COMPARE[sign], number(wanted)

        def compared(row: Row) -> bool:
            value = number(_value(row, name))
            return value is not None and bound is not None and compare(value, bound)

        return compared
    return lambda row: _equal(_value(row, name), wanted) == (sign == "=")


def _equal(value: Any, wanted: str) -> bool:
    mine, other = number(value), number(wanted)
    if mine is not None and other is not None:
        return mine == other
    return str(value).casefold() == wanted.casefold()


def _value(row: Row, name: str) -> Any:
    if name in row and name != HIDDEN:
        return row[name]
    return row.get(HIDDEN, {}).get(name)


def _rank(value: Any) -> tuple[bool, float, str]:
    """Numbers come before texts."""
    found = number(value)
    return (True, 0.0, str(value).casefold()) if found is None else (False, found, "")
