"""The lock of a stack: a file as the pulumi CLI writes it, and proof that its process lives.

A clock that steps, a reused pid, a container with the same host name: none of them makes a live
lock look dead. The engine keeps an flock on its lock file for as long as it runs, and notes which
kernel and which process hold it. The CLI does neither. If in doubt, a lock is respected, and the
message tells how to cancel it.
"""

import ctypes
import fcntl
import json
import os
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from engine import files
from engine.errors import EngineError, LockedError
from trainyard.access import user, users_file
from trainyard.access.state_bucket import BucketError, BucketPath
from trainyard.access.state_folder import StatePath

BOOT = "bootId"
NAMESPACE = "pidNamespace"
START = "processStart"
MACHINE = "machineId"
# Machines restored from one snapshot share all of these, and the pids of their processes. But a
# file that one of them makes later is not on the others.
HERE = (BOOT, NAMESPACE, "hostname", MACHINE)
OWN_FILE, OWN_PREFIX = "ownFile", "trainyard-lock-"
# File systems that no other kernel writes to at the same time: an flock there is seen by all. By
# the numbers of statfs(2), since the root of a container or chroot may be in no mount table.
# bcachefs, btrfs, ext2 to ext4, f2fs; overlay, tmpfs, xfs, zfs.
LOCAL = {0xCA451A4E, 0x9123683E, 0xEF53, 0xF2F52010, 0x794C7630, 0x01021994, 0x58465342, 0x2FC12FC1}
STATFS_BYTES = 512  # more than any struct statfs, whose first field is the number
LOCK_BYTES = 2**16
LAST_PID = 2**31 - 1
TOLD = ("username", "hostname", "timestamp")  # texts of each lock
# Linux gives this inode number to the namespace that the machine starts with.
FIRST_NAMESPACE = "pid:[4026531836]"
CLI_NAME = "pulumi"
ENDED = "ZX"  # states of a process that only its parent still knows
RUN = "run"
# Variables in which pipeline services give the address of a run; parts are joined.
RUNS: tuple[tuple[str, ...], ...] = (
    ("GITHUB_SERVER_URL", "/", "GITHUB_REPOSITORY", "/actions/runs/", "GITHUB_RUN_ID"),
    ("CI_JOB_URL",),  # GitLab
    ("BUILD_URL",),  # Jenkins
)

Holder = dict[str, Any]  # the content of a lock file


class MakerState(Enum):
    """The known facts of the process that made a lock."""

    GONE = "has removed it meanwhile"
    DEAD = "is dead"
    ALIVE = "is alive"
    UNKNOWN = "may be alive"


class Judged(NamedTuple):
    """A lock, and the known facts of its process.

    Attributes:
        verdict: whether that works on the stack.
        who: its name.
        holder: content of the lock, {} if it does not tell which process holds it.
        tag: the ETag of the lock's object; "" for a file.
    """

    verdict: MakerState
    who: str
    holder: Holder
    tag: str = ""


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A stack that this process holds.

    Attributes:
        notes: on locks that were removed because the processes that made them are dead.
        lost: returns the present holder: None while it is this process, "" for nobody.
    """

    notes: list[str]
    lost: Callable[[], str | None]


@contextmanager
def hold(folder: Path, temporary: Path, timestamp: str) -> Iterator[Hold]:
    """Hold a stack for one operation.

    For the CLI, every file in the folder is a lock: `temporary` is a name outside of it, on the
    same file system. The time is written as Go writes it.

    Raises:
        EngineError: another process holds the stack.
        OSError: the lock cannot be written.
    """
    files.make_folder(folder)
    mine = folder / f"{uuid.uuid4()}.json"
    with ExitStack() as stack:
        # Of two engines one always proceeds: only one at a time looks for locks and sets its own.
        with users_file.exclusive(folder):
            notes = _clear(folder)
            own = {} if _is_local(folder) else own_file()
            content = json.dumps(myself(timestamp) | own).encode()
            stack.callback(remove_own, own)
            stack.callback(mine.unlink, missing_ok=True)
            descriptor = files.begin(mine, content, temporary, locked=True)
            stack.callback(os.close, descriptor)
        _clear(folder, but=mine)  # the CLI looks, writes and looks again: so does this
        yield Hold(notes=notes, lost=lambda: None if mine.exists() else in_use_by(folder))


def cancel(folder: StatePath) -> list[str]:
    """Remove a stack's locks; return their holders.

    Raises:
        EngineError: a process is known to be alive, so its lock stays; or another process
            has replaced a lock since.
    """
    removed = []
    for path in _listed(folder):
        found = judge(path)
        if found.verdict is MakerState.ALIVE:
            raise EngineError(
                f"{found.who} is alive and works on the stack: its lock {path} stays; wait for "
                "that process to end, or end it"
            )
        if found.verdict is not MakerState.GONE:
            _remove(path, found)
            removed.append(found.who)
    return removed


def _listed(folder: StatePath) -> list[StatePath]:
    found: list[StatePath] = [*folder.glob("*.json")]
    return sorted(found, key=str)


def in_use_by(folder: StatePath) -> str:
    """Return who may be working on a stack, "" for nobody; no lock is removed."""
    for path in _listed(folder):
        found = judge(path)
        if found.verdict in (MakerState.ALIVE, MakerState.UNKNOWN):
            return found.who
    return ""


def myself(timestamp: str) -> Holder:
    """The content of a lock of this process."""
    pid = os.getpid()
    return {
        "pid": pid,
        "username": user.name(),
        "hostname": socket.gethostname(),
        "timestamp": timestamp,
        BOOT: _boot(),
        NAMESPACE: _namespace(),
        MACHINE: _machine(),
        START: _status(pid)[1],
        **({RUN: where} if (where := run()) else {}),
    }


def own_file() -> Holder:
    """Make a file that exists on this machine only, and return its entry in the lock.

    On a full disk it is missing. Then nobody takes the lock over, and a user has to cancel it.
    """
    try:
        descriptor, path = tempfile.mkstemp(prefix=f"{OWN_PREFIX}{time.time_ns()}-")
    except OSError:
        return {}
    os.close(descriptor)
    return {OWN_FILE: path}


def remove_own(holder: Holder) -> None:
    """Remove the file that a lock names.

    Anyone may have written that lock, so only an empty file of such a name is removed.
    """
    path = Path(str(holder.get(OWN_FILE, "")))
    if path.name.startswith(OWN_PREFIX):
        with suppress(OSError):
            if path.is_file() and not path.is_symlink() and not path.stat().st_size:
                path.unlink()


def run() -> str:
    """Address of the pipeline's run that this process is part of, "" for none."""
    for parts in RUNS:
        texts = [os.environ.get(part, "") if part.isupper() else part for part in parts]
        if all(texts):
            return "".join(texts)
    return ""


def describe_holder(holder: Holder) -> str:
    """The holder of a lock: a process, its run, and the time since when."""
    who = f"{holder['username']}@{holder['hostname']} (pid {holder['pid']})"
    who += f" since {holder['timestamp']}"
    return f"{who}, in {holder[RUN]}" if holder.get(RUN) else who


def refusal(found: Judged, stack: str) -> LockedError:
    """The error for a stack that another process holds, or may hold."""
    if found.verdict is MakerState.ALIVE:
        return LockedError(f"the stack is locked by {found.who}; wait for that process to end")
    return LockedError(
        f"the stack is locked by {found.who}; wait for it to end, or when you are sure that it is "
        f"dead: `train cancel -s {stack}`"
    )


def _clear(folder: Path, but: Path | None = None) -> list[str]:
    """Remove locks of dead processes."""
    notes = []
    for path in sorted({*folder.glob("*.json")} - {but}):
        found = judge(path)
        if found.verdict is MakerState.DEAD:
            _remove(path, found)
            notes.append(taken_over(found.who))
        elif found.verdict is not MakerState.GONE:
            raise refusal(found, folder.name)
    return notes


def taken_over(who: str) -> str:
    """The note on the lock of a dead process."""
    return f"the lock of {who} was removed: that process is dead"


def parse_lock(content: bytes) -> Holder:
    """Content of a lock, {} if it does not tell which process holds it."""
    try:
        holder = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(holder, dict) or not all(isinstance(holder.get(k), str) for k in TOLD):
        return {}
    return holder if type(pid := holder.get("pid")) is int and 0 < pid <= LAST_PID else {}


def _remove(path: StatePath, found: Judged) -> None:
    """Remove the lock that was found, and no other.

    Raises:
        EngineError: another one is there by now; or it cannot be removed.
        BucketError: the store refuses, or does not answer.
    """
    try:
        if isinstance(path, BucketPath):
            # Stores may lack conditional deletes: once it is replaced, nobody else takes it.
            path.replace(b"{}", found.tag)
        path.unlink(missing_ok=True)  # no two lock files have the same name
    except BucketError:
        raise
    except FileExistsError:
        raise EngineError(f"the lock of {found.who} is gone: look at the stack again") from None
    except OSError as error:
        raise EngineError(
            f"the lock {path} cannot be removed ({error.strerror}): remove it by hand"
        ) from None
    remove_own(found.holder)


def judge(path: StatePath) -> Judged:
    """What is known of a lock and of the process that made it."""
    try:
        return _judge_file(path) if isinstance(path, Path) else _judge_object(path)
    except FileNotFoundError:
        return Judged(MakerState.GONE, "another process", {})


def _judge_file(path: Path) -> Judged:
    # An flock over NFS needs a file that is open for writing. Reading a pipe would wait.
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        opened = os.fdopen(os.open(path, flags), "rb")
    except FileNotFoundError:
        raise
    except OSError as error:
        who = f"a process whose lock {path} cannot be read ({error.strerror})"
        return Judged(MakerState.UNKNOWN, who, {})
    with opened as file:
        holder: Holder = {}
        with suppress(OSError):
            holder = parse_lock(file.read(LOCK_BYTES + 1) or b"")
        if not holder:
            return Judged(MakerState.UNKNOWN, f"an unknown process, by the lock {path}", {})
        who = describe_holder(holder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return Judged(MakerState.ALIVE, who, holder)
        if not path.exists():  # its process removes it, and then releases it
            return Judged(MakerState.GONE, who, holder)
    local = _is_local(path)
    if BOOT in holder:
        dead = local or has_ended(holder)
    else:
        dead = local and holder["hostname"] == socket.gethostname() and _no_cli_has(holder["pid"])
    return Judged(MakerState.DEAD if dead else MakerState.UNKNOWN, who, holder)


def _judge_object(path: BucketPath) -> Judged:
    content, tag = path.read_tagged()
    holder = parse_lock(content)
    if not holder:
        return Judged(MakerState.UNKNOWN, f"an unknown process, by the lock {path}", {}, tag)
    verdict = MakerState.UNKNOWN
    if is_here(holder):
        verdict = MakerState.DEAD if has_ended(holder) else MakerState.ALIVE
    return Judged(verdict, describe_holder(holder), holder, tag)


def is_here(holder: Holder) -> bool:
    """True when an engine's process would be visible here."""
    here = (_boot(), _namespace(), socket.gethostname(), _machine())
    if tuple(holder.get(key) for key in HERE) != here:
        return False
    own = Path(str(holder.get(OWN_FILE, "")))
    try:
        return own.is_file() and _is_local(own)
    except OSError:  # another user's folder, which this one may not read
        return False


def has_ended(holder: Holder) -> bool:
    """True when an engine's process that would be visible here is gone."""
    if not is_here(holder):
        return False
    import psutil  # noqa: PLC0415 (not at the top: reading a state needs none)

    pid = holder["pid"]
    if not psutil.pid_exists(pid):
        return True
    with suppress(OSError):  # of another user, where those are hidden
        state, start = _status(pid)
        return state in ENDED or start != holder.get(START)
    return False


def _no_cli_has(pid: int) -> bool:
    """True when no pulumi CLI on this machine has that pid, not even in a container."""
    if _namespace() != FIRST_NAMESPACE:
        return False  # other containers are not visible from this one
    try:
        Path("/proc/1/status").read_bytes()
    except OSError:
        return False  # processes of others are hidden
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            text = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
            # A process in a container has a pid there as well.
            if str(pid) in text.get("NSpid", "").split() and text["Name"].startswith(CLI_NAME):
                return False
    return True


def _is_local(path: Path) -> bool:
    found = ctypes.create_string_buffer(STATFS_BYTES)
    failed = ctypes.CDLL(None).statfs(os.fsencode(path), found)
    number = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)
    return not failed and number in LOCAL


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _machine() -> str:
    """The id that an installation generates once, "" if it has none."""
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _status(pid: int) -> tuple[str, int]:
    """The state of a process, and when it started, in clock ticks since the boot."""
    # The name before them, in parentheses, may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])
