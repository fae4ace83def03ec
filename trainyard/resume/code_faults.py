"""Errors of a job's code, which would recur after a restart: the job ends and names the line."""

import sysconfig
import traceback
from pathlib import Path

from ray.exceptions import RayError

from trainyard.errors import JobError

# PyTorch raises RuntimeError also for a lost peer or GPU, so it is not among them.
KINDS = (
    *(NameError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError),
    *(AssertionError, ImportError, SyntaxError, NotImplementedError, RecursionError),
)
LONGEST = 300  # characters of an error's text
# Of another environment too: a stack's nodes use packages through a link.
PACKAGES = (sysconfig.get_path("stdlib"), "/site-packages/", "/dist-packages/")


def is_one(error: BaseException) -> bool:
    """Whether the code is at fault, not a lost node or worker, whichever line that interrupts."""
    return isinstance(error, KINDS) and not isinstance(error, RayError)


def note(error: BaseException) -> None:
    """Adds the place that raised an error to it: its traceback does not leave the process."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return
    own = [frame for frame in frames if not any(each in frame.filename for each in PACKAGES)]
    frame = (own or frames)[-1]
    error.add_note(f"{Path(frame.filename).name}, line {frame.lineno}: {frame.line}")


def error_line(error: BaseException) -> str:
    """Return an error in one line: `NameError: name 'x' is not defined (mine.py, line 3: x)`."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return lacking(error.name)
    lines = str(error).strip().splitlines()
    kind = type(error).__name__
    said = f"{kind}: {lines[-1].strip()[:LONGEST]}" if lines else kind
    places = getattr(error, "__notes__", ())
    return f"{said} ({places[-1]})" if places else said


def exit_reason(end: SystemExit) -> JobError:
    """Return why a script has ended itself: its message, or the code with its place."""
    note(end)
    return JobError(end.code if isinstance(end.code, str) else error_line(end))


def message(error: JobError) -> str:
    """Return a message alone: processes of Ray and of a loader add their tracebacks before it."""
    text = str(getattr(error, "cause", error)).strip()
    return text.splitlines()[-1].partition("Error: ")[2] if "Traceback (" in text else text


def lacking(module: str) -> str:
    """Return one line on a module that is not installed."""
    package = module.partition(".")[0]
    return (
        f"the nodes have no module {package!r}: submit again with --pip {package}, or the name of "
        "its package (docs/frameworks.md)"
    )
