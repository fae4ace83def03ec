"""Reads fields of an object in the settings and notes their faults.

As in `reader`, a value that cannot be used is replaced by a harmless one.
"""

import re
from collections.abc import Mapping
from typing import Any

from infra.reader import Reader


def known(reader: Reader, key: str, value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of an object, which must all be known; none if it is not an object."""
    if not isinstance(value, dict):
        reader.fault(key, value, "must be an object", f"write its fields: {', '.join(names)}")
        return {}
    for name in value:
        if name not in names:
            reader.unknown(f"{key}.{name}", value[name], name, names)
    return value


def text(
    reader: Reader,
    key: str,
    fields: Mapping[str, Any],
    pattern: re.Pattern[str],
    bound: str,
    action: str,
) -> str:
    """Return a text that has to match a pattern; "" where it does not."""
    value = fields.get(key.rpartition(".")[2], "")
    if not isinstance(value, str) or not pattern.fullmatch(value):
        reader.fault(key, value, bound, action or f"set {key} to one")
        return ""
    return value


def whole(
    reader: Reader, key: str, fields: Mapping[str, Any], low: int, high: int, default: int
) -> int:
    """Return a whole number; without one the default, which may be out of bounds."""
    value = fields.get(key.rpartition(".")[2], default)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not (low <= value <= high or value == default):
        bound = f"must be a whole number from {low} to {high}"
        reader.fault(key, value, bound, f"set {key} within it")
        return default
    return int(value)


def amount(reader: Reader, key: str, fields: Mapping[str, Any], high: float) -> float:
    """Return a number from 0 on."""
    value = fields.get(key.rpartition(".")[2], 0)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= high:
        reader.fault(key, value, f"must be a number from 0 to {high:g}", f"set {key} within it")
        return 0.0
    return float(value)
