"""What a run does beside training, and what must never end it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def housekeeping(what: str) -> Iterator[None]:
    """Whatever the body cannot do is one line in the job's log, and the run goes on.

    Callbacks of Tune, Ray Train and Lightning run inside their loops: what one of them raises
    ends a search of hours.

    Args:
        what: stays undone, for the line: "old checkpoints stay for now".
    """
    try:
        yield
    except Exception as error:
        print(f"warning: {what}: {reason(error)}", flush=True)  # noqa: T201 - a job's


def reason(error: BaseException) -> str:
    """An error as one line that is not too long."""
    said = " ".join(str(error).split())[:400]
    return said if type(error).__name__ == "StorageError" else f"{type(error).__name__}: {said}"
