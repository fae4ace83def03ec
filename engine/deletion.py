"""Deletes resources in parallel, but dependents before their dependencies."""

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context

from engine.context import PARALLEL, Context
from engine.errors import EngineError
from engine.goal import PROTECTED
from engine.providers import working
from engine.state import Entry, is_managed, needs
from engine.values import reveal


def delete(context: Context, entries: list[Entry], *, keep_place: bool = False) -> None:
    """Delete each entry after everything that depends on it.

    With `keep_place` an entry stays as pending replacement.
    """
    for entry in entries:
        if entry.get("protect") and not entry.get("delete"):
            context.fail(entry["urn"], EngineError(PROTECTED))
            return
    going = {entry["urn"] for entry in entries}
    waiting = list(entries)
    running: dict[Future[None], Entry] = {}
    with ThreadPoolExecutor(PARALLEL) as pool:
        while running or waiting:
            if context.stopping.is_set():
                waiting.clear()
            for entry in _leaves(waiting, running.values()):
                waiting.remove(entry)
                job = pool.submit(
                    copy_context().run, _delete_one, context, entry, going, keep_place
                )
                running[job] = entry
            if not running and not waiting:
                return
            if not running:
                stuck = ", ".join(entry["urn"] for entry in waiting)
                context.fail("delete", EngineError(f"these depend on one another: {stuck}"))
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                entry = running.pop(future)
                if (error := future.exception()) is not None:
                    context.fail(entry["urn"], error)


def _delete_one(context: Context, entry: Entry, going: set[str], keep_place: bool) -> None:
    nothing_to_call = (
        not is_managed(entry)
        or entry.get("retainOnDelete")
        or entry.get("deletedWith") in going
        or entry.get("pendingReplacement")
        or context.journal.given_again(entry)
    )
    operation = "delete-replaced" if entry.get("delete") or keep_place else "delete"
    with context.step(operation, entry["urn"], entry.get("outputs"), {}):
        if context.dry_run or nothing_to_call:
            # If this write fails, the next run finds it and forgets it again.
            _forget(context, entry, keep_place, changed=False)
            return
        with context.journal.step("deleting", entry), working(entry, "delete"):
            provider = context.provider(entry["type"], entry["provider"])
            provider.delete(entry["id"], reveal(entry.get("outputs", {})))
            _forget(context, entry, keep_place)


def _forget(context: Context, entry: Entry, keep_place: bool, *, changed: bool = True) -> None:
    if keep_place:
        context.journal.mark(entry, pendingReplacement=True)
        context.journal.flush()
    else:
        context.journal.drop(entry, changed=changed)


def _leaves(waiting: list[Entry], running: Iterable[Entry]) -> list[Entry]:
    """The waiting entries that no other waiting or running entry depends on."""
    needed = {urn for entry in (*waiting, *running) for urn in _references(entry)}
    # Two halves of a replacement share their URN: an entry never waits for itself.
    return [entry for entry in waiting if entry["urn"] not in needed]


def _references(entry: Entry) -> set[str]:
    provider = entry.get("provider", "").rpartition("::")[0]
    references = {*needs(entry), entry.get("parent"), entry.get("deletedWith"), provider}
    return references - {None, "", entry["urn"]}
