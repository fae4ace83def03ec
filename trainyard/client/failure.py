"""Why a job failed, from what Ray says and the end of the job's own log."""

import itertools
import re
from typing import Any

from trainyard.access.terminal import clean_lines
from trainyard.client.errors import guess
from trainyard.client.job_server import Job
from trainyard.client.log_writer import OF_A_PROCESS, own_paths

NO_ENVIRONMENT = "runtime_env setup failed"
INSTALLER_ERRORS = ("ERROR: ", "error: ", "\u00d7 ")  # of pip, of uv
OWN_ERROR = "error: "  # before the message of a job (trainyard/job.py)
FRAME = '  File "'  # of a traceback
REPEATED = " [repeated "  # of Ray, behind a line that several workers have printed
MOST_OF_A_FRAME = 3  # lines: its place, its code and a mark below
LONGEST_WORDS = 500
LAST_LINES = 40  # of a log: processes that end write some after the error
MEMORY = re.compile(r"^killed: (.{1,200} in use)$", re.MULTILINE)  # of the job's record
KILLED = ("exit code 137", "exit code -9")
ENDED = "Job entrypoint command failed with "  # of Ray, before the exit code
PLACE = re.compile(rf'{FRAME}(.{{1,300}})", (line \d+).*')
OF_ARGPARSE = re.compile(r"\S{1,100}: error: (.{1,300})")
OPTION = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")
LACKING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
INSTALLERS = ("pip", "uv", "conda")  # keys of a runtime environment
# From Ray: one try took too long, or all tries together.
LATE = re.compile(r"Failed to install runtime_env within the timeout of (\S+) seconds")
NOT_STARTED = "Job supervisor actor failed to start within"


def of(job: Job, *, shown: bool = False) -> str:
    """Return why a job failed: one line of Ray's message, and the job's own last words.

    These are its error message, or the last lines of its traceback. If a runtime environment could
    not be made, the installer's output follows a traceback: its last error counts, else the last
    line. After a timeout Ray does not say what it waited for. If the log was just shown, the error
    is one line, with its place.
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
    if first.endswith(KILLED):
        known = MEMORY.search(job.message)
        memory = known[1] if known else "train info"
        first += f": it was killed, probably because its node ran out of memory ({memory})"
    if not first.startswith(NO_ENVIRONMENT):
        frame, error, hint = _last_words(job.message)
        if not shown:
            return "\n".join([first, *frame, *filter(None, (error, hint))])
        where = PLACE.sub(r" (\1, \2)", "".join(frame[:1]))
        said = f": {error}{where}" if frame or hint else ""  # its own message is its last line
        return "\n".join(filter(None, [f"{first.removeprefix(ENDED)}{said}", hint]))
    errors = [line for line in lines if line.startswith(INSTALLER_ERRORS)]
    return f"{first.rstrip('.')}: {(errors or lines)[-1][:500]}"


def _last_words(message: str) -> tuple[list[str], str, str]:
    """The last frame of the last traceback in a log, the error that ends the log, and a hint.

    An error further above was probably handled.
    """
    log = own_paths(clean_lines(message)).splitlines()[1:][-LAST_LINES:]
    lines = [OF_A_PROCESS.sub("", line.rstrip()) for line in log]
    for index in reversed(range(len(lines))):
        if lines[index].startswith(OWN_ERROR):
            return [], lines[index].removeprefix(OWN_ERROR)[:LONGEST_WORDS], ""
        if found := OF_ARGPARSE.fullmatch(lines[index]):
            known = OPTION.findall(" ".join(lines[:index]).rpartition("usage: ")[2])
            near = "".join(guess(word, known) for word in OPTION.findall(found[1]))
            return [], found[1], f"{near}the script's own --help has its arguments"
        if lines[index].startswith(FRAME):
            frame = [*itertools.takewhile(lambda line: line.startswith(" "), lines[index:])]
            error = "".join(lines[index + len(frame) :][:1]).partition(REPEATED)[0][:LONGEST_WORDS]
            hint = ""
            if missing := LACKING.match(error):
                package = missing[1].partition(".")[0]
                hint = f"submit again with --pip {package}, or the name of its package"
            return [line[:LONGEST_WORDS] for line in frame[:MOST_OF_A_FRAME]], error, hint
    return [], "", ""


def _packages(environment: dict[str, Any]) -> str:
    """Return the packages that a runtime environment installs, "" for none."""
    found = []
    for name in INSTALLERS:
        if wanted := environment.get(name):
            listed = wanted.get("packages", wanted) if isinstance(wanted, dict) else wanted
            text = ", ".join(map(str, listed)) if isinstance(listed, list) else str(listed)
            found.append(f"{text[:200]} ({name})")
    return ", ".join(found)
