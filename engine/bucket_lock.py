"""The lock of a stack whose state is in a bucket: an object that one process at a time can make.

The pulumi CLI writes an object of its own and looks for others, so it finds this one. Between
engines the store decides: if several create the same object, one succeeds (If-None-Match).
A store that accepts the second one too would let two write, so each store is tested, also for the
conditional replacement (If-Match) that states are written with. No flock reaches another machine,
so only a process of this one can be known to be dead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engine import lock
from engine.errors import EngineError
from engine.lock import Hold, Verdict
from trainyard.access.state_bucket import BucketPath

NAME = "engine.json"
NO_TAG = f'"{"0" * 32}"'  # of no object


@contextmanager
def held(folder: BucketPath, timestamp: str) -> Iterator[Hold]:
    """Hold a stack for one operation, like `lock.held`.

    Raises:
        LockedError: another process holds the stack.
        OSError: the lock cannot be written.
    """
    mine, own = folder / NAME, lock.own_file()
    content = json.dumps(lock.myself(timestamp) | own).encode()
    try:
        notes = _acquire(mine, content)
    except BaseException:
        lock.remove_own(own)
        raise
    try:
        _check_store(mine, content)
        for path in folder.glob("*.json"):
            if path != mine:
                _, verdict, who = _judge(path)
                if verdict is not Verdict.GONE:
                    raise lock.refused(verdict, who, folder.name)
        yield Hold(notes=notes, lost=lambda: None if _holds(mine, content) else in_use_by(folder))
    finally:
        # A lock that was cancelled meanwhile may be another's by now. If the store is gone, the
        # next operation from here takes the lock over.
        with suppress(OSError):
            with suppress(FileNotFoundError, FileExistsError):
                found, tag = mine.read_tagged()
                if found == content:
                    _remove(mine, tag)
            lock.remove_own(own)


def _acquire(path: BucketPath, content: bytes) -> list[str]:
    """Write the lock, also in place of a dead process's; the notes that say so."""
    try:
        path.create(content)
    except FileExistsError:
        # Ours where the answer was lost and the request sent again.
        if not _holds(path, content):
            return _taken_over(path, content)
    return []


def _check_store(path: BucketPath, content: bytes) -> None:
    """Check that the store refuses to create an existing object, and to replace a missing one.

    Raises:
        EngineError: it does not refuse.
    """
    for header, write in (
        ("If-None-Match", path.create),
        ("If-Match", lambda content: path.replace(content, NO_TAG)),
    ):
        try:
            write(content)
        except FileExistsError:
            continue
        raise EngineError(
            f"the store of {path} ignores {header}, so two operations could write one state: "
            "update the store, or keep states in a folder or another store (docs/engine.md)"
        )


def _holds(path: BucketPath, content: bytes) -> bool:
    return _read(path) == content


def _read(path: BucketPath) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def cancel(folder: BucketPath) -> list[str]:
    """Remove a stack's locks, like `lock.cancel`.

    Raises:
        EngineError: the process of one is alive; or another has taken its place meanwhile.
    """
    removed = []
    for path in folder.glob("*.json"):
        holder = lock.parsed(_read(path))
        tag, verdict, who = _judge(path)
        if verdict is Verdict.ALIVE:
            raise lock.still_held(who, path)
        if verdict is not Verdict.GONE:
            try:
                _remove(path, tag)
            except FileExistsError:
                raise EngineError(f"the lock of {who} is gone: look at the stack again") from None
            lock.remove_own(holder)
            removed.append(who)
    return removed


def _remove(path: BucketPath, tag: str) -> None:
    """Remove the lock with a tag, and no other.

    Stores may lack conditional deletes. So it is replaced first: then nobody else takes it.

    Raises:
        FileExistsError: it was replaced or removed meanwhile.
    """
    path.replace(b"{}", tag)
    path.unlink(missing_ok=True)


def in_use_by(folder: BucketPath) -> str:
    """Return who may be working on a stack, like `lock.in_use_by`."""
    return lock.first_at_work(_judge(path)[1:] for path in folder.glob("*.json"))


def _taken_over(path: BucketPath, content: bytes) -> list[str]:
    """Put a lock in place of a dead process's; the notes that say so.

    Raises:
        LockedError: its process is alive, or may be.
    """
    holder = lock.parsed(_read(path))
    tag, verdict, who = _judge(path)
    if verdict not in (Verdict.DEAD, Verdict.GONE):
        raise lock.refused(verdict, who, path.parent.name)
    try:
        path.replace(content, tag) if tag else path.create(content)
        lock.remove_own(holder)
    except FileExistsError:  # another was quicker, or our own request was sent again
        if not _holds(path, content):
            _, verdict, who = _judge(path)
            raise lock.refused(verdict, who, path.parent.name) from None
    return [f"the lock of {who} was removed: that process is dead"] if tag else []


def _judge(path: BucketPath) -> tuple[str, Verdict, str]:
    """Tag of a lock, what is known of its process, and who that is."""
    try:
        content, tag = path.read_tagged()
    except FileNotFoundError:
        return "", Verdict.GONE, "another process"
    holder = lock.parsed(content)
    if not holder:
        return tag, Verdict.UNKNOWN, f"an unknown process, by the lock {path}"
    who = lock.told(holder)
    if not lock.is_here(holder):
        return tag, Verdict.UNKNOWN, who
    return tag, Verdict.DEAD if lock.has_ended(holder) else Verdict.ALIVE, who
