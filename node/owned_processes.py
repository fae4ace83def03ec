"""Finds the processes of a stack by variables that they have and pass on.

Never by a name, an argument or a file that holds a number: an editor of a stack's file has the
path in its arguments, and a cleaner of /tmp removes files of what still runs.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from node.folders import FolderMark
from node.life import ServiceError

# Label of the stack's mark. Jobs inherit it, so it has another name than what `train` reads.
STACK = "TRAINYARD_MARK"
# What supervisord tells its programs; it gets the first from us as well.
URL = "SUPERVISOR_SERVER_URL"
NAME = "SUPERVISOR_PROCESS_NAME"
# Ray's agents write their titles over their variables, unless this one is set (setproctitle's).
KEPT = "SPT_NOENV"
KILL_SECONDS = 10.0  # for processes to vanish after SIGKILL


def environment(url: str, mark: FolderMark) -> dict[str, str]:
    """Return the variables by which the supervisord of a socket and its processes are known."""
    return {URL: url, STACK: mark.label, KEPT: "1"}


def of_supervisord(url: str, mark: FolderMark, name: str | None = None) -> list[psutil.Process]:
    """Return a supervisord's processes with all descendants; for all programs also itself.

    Its socket may be gone.
    """

    def belongs(found: Mapping[str, str]) -> bool:
        return (
            found.get(URL) == url
            and _is_of(found, mark)
            and (name is None or found.get(NAME) == name)
        )

    return _with_descendants(belongs)


def of_no_supervisord(mark: FolderMark) -> list[psutil.Process]:
    """Return the stack's processes that no supervisord started, with all descendants."""
    return _with_descendants(
        lambda found: STACK in found and _is_of(found, mark) and URL not in found
    )


def refuse_foreign(url: str, mark: FolderMark) -> None:
    """Raise if another stack's processes run from the same folder.

    Raises:
        ServiceError: they do; the folder itself may be gone.
    """
    found = {
        process.pid: theirs[STACK].partition(" ")[2]
        for process, theirs in _processes()
        if theirs.get(URL) == url and not _is_of(theirs, mark)
    }
    if found:
        pids = " ".join(str(pid) for pid in sorted(found))
        raise ServiceError(
            f"processes {pids} run from {Path(url.removeprefix('unix://')).parent} for "
            f"{', '.join(sorted(set(found.values())))}, which is not this one: choose another "
            "name for this stack, or another stateDir. If the state of that one is lost: "
            f"kill -9 {pids}"
        )


def end(find: Callable[[], Sequence[psutil.Process]], where: Path) -> None:
    """Kill processes until none is found: the next search finds the ones started meanwhile.

    Raises:
        ServiceError: one survives SIGKILL.
    """
    deadline = time.monotonic() + KILL_SECONDS
    while found := find():
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        _, left = psutil.wait_procs(found, timeout=1)
        if left and time.monotonic() > deadline:
            pids = ", ".join(str(process.pid) for process in left)
            raise ServiceError(f"processes {pids} of {where} survive SIGKILL")


def lives(process: psutil.Process) -> bool:
    """Return whether a process still runs."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _is_of(found: Mapping[str, str], mark: FolderMark) -> bool:
    """Return whether the stack started a process; one that overwrote its label may be its own."""
    label = found.get(STACK)
    return label is None or label.partition(" ")[0] == mark.id


def _with_descendants(belongs: Callable[[Mapping[str, str]], bool]) -> list[psutil.Process]:
    found: set[psutil.Process] = set()
    for process, theirs in _processes():
        # A known descendant came with its own: each look at descendants reads all of /proc.
        if process not in found and belongs(theirs):
            found.add(process)
            # A job may start a program without any variables: find it by its parent.
            with contextlib.suppress(psutil.Error):
                found.update(process.children(recursive=True))
    return [process for process in found if lives(process)]


def _processes() -> Iterator[tuple[psutil.Process, Mapping[str, str]]]:
    """Yield this user's processes that may be of a stack, with their environment."""
    for process in psutil.process_iter():
        # Any of them may end while it is looked at.
        with contextlib.suppress(psutil.Error):
            found = process.environ()
            # Root reads all environments, but other users' prove nothing.
            if (URL in found or STACK in found) and process.uids().real == os.getuid():
                yield process, found
