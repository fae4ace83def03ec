"""Why a job failed, from what Ray says and the end of the job's own log."""

from __future__ import annotations

import itertools
import re
from typing import Any

from trainyard.access.terminal import clean_lines
from trainyard.client.job_server import Job

NO_ENVIRONMENT = "runtime_env setup failed"
INSTALLER_ERRORS = ("ERROR: ", "error: ", "\u00d7 ")  # of pip, of uv
OWN_ERROR = "error: "  # before the message of a job (trainyard/job.py)
FRAME = '  File "'  # of a traceback
MOST_OF_A_FRAME = 3  # lines: its place, its code and a mark below
LONGEST_WORDS = 500
LAST_LINES = 40  # of a log: processes that end write some after the error
# Before the lines of a worker: its kind, process and address.
OF_A_PROCESS = re.compile(r"^\(\w+ pid=\d+(?:, ip=[^)]*)?\) ")
INSTALLERS = ("pip", "uv", "conda")  # keys of a runtime environment
# From Ray: one try took too long, or all tries together.
LATE = re.compile(r"Failed to install runtime_env within the timeout of (\S+) seconds")
NOT_STARTED = "Job supervisor actor failed to start within"


def of(job: Job) -> str:
    """Return why a job failed: one line of Ray's message, and the job's own last words.

    These are its error message, or the last lines of its traceback. If a runtime environment could
    not be made, the installer's output follows a traceback: its last error counts, else the last
    line. After a timeout Ray does not say what it waited for.
    """
    lines = [line.strip() for line in job.message.splitlines() if line.strip()]
    first = lines[0].partition(", last available logs")[0] if lines else "no reason is known"
    late, packages = LATE.search(job.message), _packages(job.runtime_env)
    if packages and (late or first.startswith(NOT_STARTED)):
        within = f" within {late[1]} s" if late else ""
        return (
            f"{first.rstrip('.')}: {packages} not installed{within}. Check that the cluster "
            "reaches the package index, or raise setup_timeout_seconds in config of the runtime "
            "environment"
        )
    if not first.startswith(NO_ENVIRONMENT):
        return "\n".join([first, *_last_words(job.message)])
    errors = [line for line in lines if line.startswith(INSTALLER_ERRORS)]
    return f"{first.rstrip('.')}: {(errors or lines)[-1][:500]}"


def _last_words(message: str) -> list[str]:
    """The error message that ends a log, or the last frame of its last traceback and the error.

    An error further above was probably handled.
    """
    log = clean_lines(message).splitlines()[1:][-LAST_LINES:]
    lines = [OF_A_PROCESS.sub("", line.rstrip()) for line in log]
    for index in reversed(range(len(lines))):
        if lines[index].startswith(OWN_ERROR):
            return [lines[index].removeprefix(OWN_ERROR)[:LONGEST_WORDS]]
        if lines[index].startswith(FRAME):
            after = itertools.takewhile(lambda line: line.startswith(" "), lines[index:])
            shown = [*after]
            error = lines[index + len(shown) :][:1]
            return [line[:LONGEST_WORDS] for line in [*shown[:MOST_OF_A_FRAME], *error]]
    return []


def _packages(environment: dict[str, Any]) -> str:
    """Return the packages that a runtime environment installs, "" for none."""
    found = []
    for name in INSTALLERS:
        if wanted := environment.get(name):
            listed = wanted.get("packages", wanted) if isinstance(wanted, dict) else wanted
            text = ", ".join(map(str, listed)) if isinstance(listed, list) else str(listed)
            found.append(f"{text[:200]} ({name})")
    return ", ".join(found)
