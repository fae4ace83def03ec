"""The lock of a stack whose state is in a bucket: an object that one process at a time can make.

The pulumi CLI writes an object of its own and looks for others, so it finds this one. Between
engines the store decides: if several create the same object, one succeeds (If-None-Match).
A store that accepts the second one too would let two write, so each store is tested, also for the
conditional replacement (If-Match) that states are written with. No flock reaches another machine,
so only a process of this one can be known to be dead.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engine import lock
from engine.errors import EngineError
from engine.lock import Hold, MakerState
from trainyard.access.state_bucket import BucketPath

NAME = "engine.json"
NO_TAG = f'"{"0" * 32}"'  # of no object


@contextmanager
def hold(folder: BucketPath, timestamp: str) -> Iterator[Hold]:
    """Hold a stack for one operation, like `lock.hold`.

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
                other = lock.judge(path)
                if other.verdict is not MakerState.GONE:
                    raise lock.refusal(other, folder.name)
        yield Hold(
            notes=notes, lost=lambda: None if _holds(mine, content) else lock.in_use_by(folder)
        )
    finally:
        # A lock that was cancelled meanwhile may be another's by now. If the store is gone, the
        # next operation from here takes the lock over.
        with suppress(OSError):
            with suppress(FileNotFoundError, FileExistsError):
                found, tag = mine.read_tagged()
                if found == content:
                    mine.replace(b"{}", tag)
                    mine.unlink(missing_ok=True)
            lock.remove_own(own)


def _check_store(path: BucketPath, content: bytes) -> None:
    """Check that the store refuses to create an existing object, and to replace a missing one."""
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
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def _acquire(path: BucketPath, content: bytes) -> list[str]:
    """Write the lock, or replace a dead process's lock; return notes about that."""
    with suppress(FileExistsError):
        path.create(content)
        return []
    if _holds(path, content):  # the answer was lost, and the request sent again
        return []
    found = lock.judge(path)
    if found.verdict not in (MakerState.DEAD, MakerState.GONE):
        raise lock.refusal(found, path.parent.name)
    try:
        path.replace(content, found.tag) if found.tag else path.create(content)
        lock.remove_own(found.holder)
    except FileExistsError:  # another was quicker, or our own request was sent again
        if not _holds(path, content):
            raise lock.refusal(lock.judge(path), path.parent.name) from None
    return [lock.taken_over(found.who)] if found.tag else []
