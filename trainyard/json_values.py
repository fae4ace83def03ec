"""Values that JSON can hold: the only ones in a run's records, so that each start can read them."""

import json
import math
from collections.abc import Mapping
from datetime import date
from pathlib import PurePath
from typing import Any

from trainyard.errors import JobError

MOST_VALUES = 1024  # of an array or tensor in a record
LARGEST_INT = 2**63  # other programs read whole numbers of 64 bits
MOST_LEVELS = 100  # of lists and dicts in each other: Python calls few functions deeper


def plain(found: Any, name: str) -> Any:  # noqa: PLR0911 - one per kind
    """Return a value as numbers, texts, None, lists and dicts with texts as keys.

    Args:
        found: such a value; or a number, array or tensor of NumPy or PyTorch, a path, a date.
        name: of the value, for messages.

    Raises:
        JobError: it is something else.
    """
    kind = type(found)
    if found is None or kind in (bool, float, str):
        return found
    if isinstance(found, Mapping):
        return {str(key): plain(each, f"{name}.{key}") for key, each in found.items()}
    if isinstance(found, list | tuple | set | frozenset):
        return [plain(each, f"{name}[{index}]") for index, each in enumerate(found)]
    if isinstance(found, PurePath):
        return str(found)
    if isinstance(found, date):
        return found.isoformat()
    # NumPy and PyTorch, whose numbers may also be subclasses of Python's.
    if hasattr(found, "tolist") and hasattr(found, "dtype"):
        if math.prod(found.shape) > MOST_VALUES:
            raise JobError(
                f"{name} of an epoch's record has {math.prod(found.shape)} values: report at most "
                f"{MOST_VALUES}, and put the rest into a separate file"
            )
        converted = found.tolist()
        if not isinstance(converted, kind):
            return plain(converted, name)
    for base in (int, float, str):
        if isinstance(found, base):
            return _number(int(found)) if base is int else base(found)
    raise JobError(
        f"{name} of an epoch's record is a {kind.__module__}.{kind.__qualname__}: report numbers, "
        "texts, lists and dicts"
    )


def text(found: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with null for NaN and infinities, which JSON lacks."""
    return json.dumps(_finite(found), indent=indent, allow_nan=False)


def parse_object(content: str | bytes) -> dict[str, Any] | None:
    """Return an object in JSON; None for anything else, or if it has too many levels."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and is_shallow(found) else None


def is_shallow(found: Any, levels: int = MOST_LEVELS) -> bool:
    """Return whether a value can be printed: others may store one of a thousand levels."""
    inner = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return levels > 0 and all(is_shallow(each, levels - 1) for each in inner)


def number(value: Any) -> float | None:
    """Return a value as a finite number; None for everything else."""
    if isinstance(value, bool):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _finite(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _finite(each) for key, each in found.items()}
    if isinstance(found, list | tuple):
        return [_finite(each) for each in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


def _number(found: int) -> int | float:
    if abs(found) < LARGEST_INT:
        return found
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf
