"""The one error that the client shows to its user."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

NEAREST = 3


class ClientError(Exception):
    """Something the user can fix; its text names the value, the bound and the next step."""


class DownError(ClientError):
    """The stack is not up."""


class UnreachedError(ClientError):
    """The job server does not answer at the moment."""


def guess(name: str, known: Iterable[str]) -> str:
    """Return the known names that are nearest to one: `did you mean 'first'? `, "" for none."""
    near = difflib.get_close_matches(name, {*known}, n=NEAREST)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


@contextmanager
def writing(path: Path, advice: str) -> Iterator[None]:
    """Raise a ClientError with advice if the body cannot write a file."""
    try:
        yield
    except OSError as error:
        raise ClientError(f"cannot write {path} ({error.strerror}): {advice}") from None
