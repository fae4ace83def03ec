"""Records that others wrote, decoded one by one: each field has its type and bounds.

A list has records of many writers. One that cannot be read never hides the others.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 1e15  # of an amount, in bytes or pieces
LATEST_MS = 2e14  # since 1970, in the year 8307: later times overflow in some time zones
LONGEST_ID = 255  # characters: Ray names log files by ids
MOST_BUNDLES = 1000  # of one job
UNREADABLE = "UNREADABLE"  # the status of a record that cannot be read
# What decoding of an unknown value raises.
FAULTS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class FieldError(ValueError):
    """A field is missing, of another type, or outside its bounds."""


def typed(record: Any, name: str, kind: type[T]) -> T:
    """Return a field of a type that has an empty value, which stands for null."""
    if not isinstance(record, dict) or name not in record:
        raise FieldError(f"{name} is missing")
    found = record[name]
    if found is None:
        return kind()
    if not isinstance(found, kind):
        raise FieldError(f"{name} is of type {type(found).__name__}")
    return found


def identifier(record: Any, name: str) -> str:
    """Return a name that commands and addresses can have; "" for null."""
    found = typed(record, name, str)
    if len(found) > LONGEST_ID or not found.isprintable() or found in (".", ".."):
        raise FieldError(f"{name} is {found[:40]!r}")
    return found


def amount(record: Any, name: str, most: float = MOST) -> float:
    """Return a number from 0 to a bound; 0 for null."""
    is_whole = isinstance(record, dict) and type(record.get(name)) is int
    found: float = typed(record, name, int if is_whole else float)
    if not 0 <= found <= most:  # nor is NaN
        raise FieldError(f"{name} is {str(found)[:40]}, not 0 to {most:g}")
    return found


def bundle(found: Any) -> dict[str, float]:
    """Return amounts by Ray's names of resources; none for null."""
    given = typed({"resources": found}, "resources", dict)
    if any(len(name) > LONGEST_ID for name in given):
        raise FieldError(f"a resource has more than {LONGEST_ID} letters")
    # Ray gives every node a resource of its own name, to place things there.
    return {name: amount(given, name) for name in given if not name.startswith("node:")}


def bundles(found: Any) -> list[dict[str, float]]:
    """Return the bundles of one job."""
    given = typed({"bundles": found}, "bundles", list)
    if len(given) > MOST_BUNDLES:
        raise FieldError(f"{len(given)} bundles, at most {MOST_BUNDLES} are read")
    return [bundle(each) for each in given]


def milliseconds(text: str) -> int:
    """Return an ISO time, in UTC unless it says its zone, as milliseconds since 1970."""
    found = datetime.fromisoformat(text)
    moment = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(amount({"time": moment.timestamp() * 1000}, "time", LATEST_MS))


def reason(error: Exception) -> str:
    """Return why a record cannot be read, in a few words."""
    return (str(error) if isinstance(error, ValueError) else repr(error))[:80]


def decoded(
    records: Any, decode: Callable[[Any], T], otherwise: Callable[[Any, str], T] | None = None
) -> list[T]:
    """Return the records of a list; FieldError if it is not one.

    `decode` raises one of FAULTS at a record that cannot be read. What `otherwise` returns for it
    and the reason stands in its place; without that it is left out.
    """
    found = []
    for record in typed({"answer": records}, "answer", list):
        try:
            found.append(decode(record))
        except FAULTS as error:
            if otherwise is not None:
                found.append(otherwise(record, reason(error)))
    return found
