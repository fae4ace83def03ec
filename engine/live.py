"""The real resources: drift, and the leftovers of an interrupted operation."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from engine.context import PARALLEL, Context
from engine.state import Entry, is_living, is_managed, now
from engine.values import Properties, mark_like, reveal, secret_keys


def refresh(context: Context) -> None:
    """Update the state to match what providers report."""
    chosen = [entry for entry in context.journal.olds if is_living(entry)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [pool.submit(copy_context().run, _refresh_one, context, entry) for entry in chosen]
        for entry, job in zip(chosen, jobs, strict=True):
            if (error := job.exception()) is not None:
                context.fail(entry["urn"], error)


def recover(context: Context, interrupted: list[dict[str, Any]]) -> None:
    """Settle the unfinished steps of a killed operation.

    A create may or may not have happened: the provider is asked to find it. A resource that was
    being changed or deleted is read again.
    """
    for operation in interrupted:
        entry = operation["resource"]
        text = f"{operation['type']} was interrupted; checking the resource"
        context.display.message("warning", text, entry["urn"])
        try:
            if operation["type"] == "creating":
                _recover_create(context, entry)
            elif (held := context.journal.subject(entry)) is not None and is_managed(held):
                _refresh_one(context, held)
        except Exception as error:
            context.fail(entry["urn"], error)
        if context.stopping.is_set():
            return
        context.journal.settle(operation)


@dataclass(frozen=True, kw_only=True)
class LiveResource:
    """A resource as its provider reads it, secrets marked as in the state."""

    id: str
    inputs: Properties
    outputs: Properties
    drifted: bool


def compare(context: Context, entry: Entry) -> LiveResource | None:
    """Read an entry's resource from its provider; None when it is gone."""
    provider = context.provider(entry["type"], entry["provider"])
    live = provider.read(entry["id"], reveal(entry.get("outputs", {})))
    if live is None:
        return None
    old_inputs, old_outputs = entry.get("inputs", {}), entry.get("outputs", {})
    outputs = mark_like(live.outputs, old_outputs)
    outputs = secret_keys(outputs, entry.get("additionalSecretOutputs", []))
    inputs = old_inputs if live.inputs is None else mark_like(live.inputs, old_inputs)
    drifted = live.drifted and (outputs != old_outputs or inputs != old_inputs)
    return LiveResource(id=live.id, inputs=inputs, outputs=outputs, drifted=drifted)


def _refresh_one(context: Context, entry: Entry) -> None:
    if context.stopping.is_set():
        return
    old_outputs = entry.get("outputs", {})
    found = compare(context, entry)
    if found is None:
        context.display.done("gone", entry["urn"])
        context.journal.drop(entry)
        return
    news = {"inputs": found.inputs, "outputs": found.outputs}
    if any(entry.get(name, {}) != value for name, value in news.items()):
        context.journal.mark(entry, id=found.id, **news, modified=now())
        context.journal.flush()
    operation, changes = "drift" if found.drifted else "same", (old_outputs, found.outputs)
    context.display.done(operation, entry["urn"], changes=changes)


def _recover_create(context: Context, entry: Entry) -> None:
    provider = context.provider(entry["type"], entry["provider"])
    live = provider.find(reveal(entry.get("inputs", {})))
    held = context.journal.old(entry["urn"])
    if live is None:
        context.unsettled.add(entry["urn"])
        return
    # The resource of an entry pending replacement was deleted before; one made since may have been
    # given its name again.
    living = None if held is not None and held.get("pendingReplacement") else held
    if living is not None and living["id"] == live.id:
        return
    outputs = mark_like(live.outputs, entry.get("inputs", {}))
    outputs = secret_keys(outputs, entry.get("additionalSecretOutputs", []))
    found = entry | {"id": live.id, "outputs": outputs}
    if living is not None:
        # It was the new half of a replacement: the old half still has to go.
        context.journal.mark(living, delete=True)
        held = None
    context.journal.adopt(found, held)
