"""A run's work besides training, which must never end the run."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def housekeeping(what: str) -> Iterator[None]:
    """Turns an error of the body into one line of the job's log; the run goes on.

    Callbacks of Tune, Ray Train and Lightning run inside their loops: an error in one of them would
    end a search of hours. `what` is the consequence: "old checkpoints stay for now".
    """
    try:
        yield
    except Exception as error:
        print(f"warning: {what}: {reason(error)}", flush=True)  # noqa: T201 - a job's


def reason(error: BaseException) -> str:
    """Return an error as one line that is not too long."""
    said = " ".join(str(error).split())[:400]
    return said if type(error).__name__ == "StorageError" else f"{type(error).__name__}: {said}"
