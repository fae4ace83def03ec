"""Steps: from a program's request and the recorded state to the provider's work.

The order is Pulumi's: check, diff, then same, create, update or replace.
"""

import uuid

from engine.command.schema import hidden, secret_outputs
from engine.context import Context
from engine.deletion import delete
from engine.docker import machine
from engine.errors import EngineError
from engine.goal import DOCKER_PROVIDER, PROTECTED, Goal, changed_keys, keep_ignored, whole
from engine.providers import Diff, Live, TypeProvider, working
from engine.state import Entry, now
from engine.values import UNKNOWN, Properties, mark_like, reveal, secret_keys


class StoppedError(Exception):
    """No further step is begun: one failed, or the user asked to stop."""


def reconcile(context: Context, goal: Goal) -> tuple[Entry, Properties]:
    """Bring one resource to its goal.

    Returns:
        The entry after the step, and the outputs that the program may see.

    Raises:
        EngineError: the inputs are at fault.
        StoppedError: something failed on the way.
        Exception: any error of the provider's.
    """
    old = context.journal.old(goal.urn)
    if not goal.custom:
        return _component(context, goal, old)
    if goal.type == DOCKER_PROVIDER:
        return _declared_provider(context, goal, old)
    context.recorded.registered(goal.inputs)
    reference = goal.provider or context.provider_reference(goal.type, goal.version)
    provider = context.provider(goal.type, reference)
    inputs = _checked(context, provider, goal, old)
    context.registered(goal.urn, goal.type, inputs)
    entry = goal.entry(inputs, reference, old)
    if old is None or old.get("pendingReplacement"):
        return _create(context, provider, goal, entry, old)
    diff = _diff(provider, goal, old, inputs)
    if diff.replaces:
        return _replace(context, provider, goal, entry, old, diff)
    if diff.changes:
        return _update(context, provider, goal, entry, old)
    entry |= {"id": old["id"], "modified": old.get("modified", entry["modified"])}
    entry["outputs"] = _marked(goal, inputs, old.get("outputs", {}))
    context.display.done("same", goal.urn)
    context.journal.record(entry, old, changed=False)
    return entry, entry["outputs"]


def _checked(context: Context, provider: TypeProvider, goal: Goal, old: Entry | None) -> Properties:
    olds = old.get("inputs", {}) if old is not None else {}
    inputs = keep_ignored(goal.inputs, olds, goal.fields["ignoreChanges"]) if old else goal.inputs
    context.display.hide(hidden(goal.type, inputs))
    checked, faults = provider.check(reveal(olds), reveal(inputs))
    if faults:
        raise EngineError("; ".join(faults))
    marked: Properties = mark_like(checked, inputs)
    return marked


def _component(context: Context, goal: Goal, old: Entry | None) -> tuple[Entry, Properties]:
    entry = goal.entry(goal.inputs, "", old)
    operation = "create"
    if old is not None:
        operation = "same" if old.get("inputs", {}) == goal.inputs else "update"
        entry["outputs"] = old.get("outputs", {})
        if operation == "same":
            entry["modified"] = old.get("modified", entry["modified"])
    olds = old.get("inputs", {}) if old else {}
    context.display.done(operation, goal.urn, changes=(olds, goal.inputs))
    context.journal.record(entry, old, changed=operation != "same")
    return entry, goal.inputs


def _declared_provider(context: Context, goal: Goal, old: Entry | None) -> tuple[Entry, Properties]:
    """Record a provider that the program declares; it is used once a resource needs it."""
    if fault := machine.settings_fault(reveal(goal.inputs)):
        raise EngineError(fault)
    context.registered(goal.urn, goal.type, goal.inputs)
    inputs = goal.inputs | {"version": goal.version, "__internal": {}}  # as the CLI records it
    entry = goal.entry(inputs, "", old) | {"id": old["id"] if old else str(uuid.uuid4())}
    operation = "create"
    if old is not None:
        same = all(old["inputs"].get(key) == value for key, value in goal.inputs.items())
        operation = "same" if same else "update"
        if same:
            entry |= {key: old[key] for key in ("inputs", "modified") if key in old}
    entry["outputs"] = {k: v for k, v in entry["inputs"].items() if k != "__internal"}
    olds = old["inputs"] if old else {}
    context.display.done(operation, goal.urn, changes=(olds, inputs))
    context.journal.record(entry, old, changed=operation != "same")
    return entry, goal.inputs


def _diff(provider: TypeProvider, goal: Goal, old: Entry, inputs: Properties) -> Diff:
    news = reveal(inputs)
    # Ignored properties are as in the inputs, which hold the old values, even if the real differ.
    ignored = goal.fields["ignoreChanges"]
    olds = {k: v for k, v in reveal(old.get("outputs", {})).items() if k not in ignored}
    olds |= {key: news[key] for key in ignored if key in news}
    diff = provider.diff(old["id"], olds, news)
    changed = changed_keys(reveal(old.get("inputs", {})), news)
    changes = bool(changed) if diff.changes is None else diff.changes
    # The CLI keeps a resource that was made but did not come up; the next update settles it.
    changes = changes or bool(old.get("initErrors"))
    forced = changed & {whole(path) for path in goal.fields["replaceOnChanges"]}
    return Diff(
        changes=changes,
        replaces=sorted({*diff.replaces, *forced}) if changes or forced else [],
        delete_before_replace=diff.delete_before_replace,
    )


def _create(
    context: Context,
    provider: TypeProvider,
    goal: Goal,
    entry: Entry,
    old: Entry | None,
    operation: str = "create",
    olds: Properties | None = None,
) -> tuple[Entry, Properties]:
    """Create the resource of an entry, which takes the place of an old entry in the state, if any.

    If it replaces a resource, `olds` are the inputs of that.
    """
    with context.step(operation, goal.urn, olds, entry["inputs"]):
        if context.dry_run:
            context.journal.record(entry, old)
            return entry, entry["inputs"]
        with context.journal.step("creating", entry), working(entry, "create"):
            live = _made(context, provider, entry)
            entry["id"] = live.id
            entry["outputs"] = _marked(goal, entry["inputs"], live.outputs)
            context.journal.record(entry, old)
    return entry, entry["outputs"]


def _made(context: Context, provider: TypeProvider, entry: Entry) -> Live:
    inputs = reveal(entry["inputs"])
    try:
        return provider.create(inputs)
    except Exception:
        # A killed run's request may still have been under way when this run looked.
        late = provider.find(inputs) if entry["urn"] in context.unsettled else None
        if late is None:
            raise
        return late


def _update(
    context: Context, provider: TypeProvider, goal: Goal, entry: Entry, old: Entry
) -> tuple[Entry, Properties]:
    entry["id"] = old["id"]
    with context.step("update", goal.urn, old.get("inputs", {}), entry["inputs"]):
        if context.dry_run:
            context.journal.record(entry, old)
            return entry, entry["inputs"]
        with context.journal.step("updating", old), working(entry, "update"):
            outputs = provider.update(
                old["id"], reveal(old.get("outputs", {})), reveal(entry["inputs"])
            )
            entry["outputs"] = _marked(goal, entry["inputs"], outputs)
            context.journal.record(entry, old)
    return entry, entry["outputs"]


def _replace(
    context: Context, provider: TypeProvider, goal: Goal, entry: Entry, old: Entry, diff: Diff
) -> tuple[Entry, Properties]:
    if old.get("protect"):
        raise EngineError(f"a change of {', '.join(diff.replaces)} replaces it, but {PROTECTED}")
    entry["created"] = now()
    first = goal.delete_before_replace
    if first is None:
        first = diff.delete_before_replace
    if first:
        delete(context, [*_replaced_with(context, old), old], keep_place=True)
        if context.stopping.is_set():
            raise StoppedError
        return _create(context, provider, goal, entry, old, "replace", old.get("inputs", {}))
    result = _create(context, provider, goal, entry, None, "replace", old.get("inputs", {}))
    context.journal.mark(old, delete=True)
    context.journal.flush()
    return result


def _replaced_with(context: Context, root: Entry) -> list[Entry]:
    """Dependents that have to go before a resource is deleted to be replaced.

    As in Pulumi: dependents that would be replaced if the values they took from the resource were
    unknown.
    """
    urns = {root["urn"]}
    found = []
    for entry in context.journal.olds:
        depending = [
            key
            for key, sources in entry.get("propertyDependencies", {}).items()
            if urns & set(sources)
        ]
        if not depending or not entry.get("custom") or entry.get("delete"):
            continue
        unknown = reveal(entry.get("inputs", {})) | dict.fromkeys(depending, UNKNOWN)
        provider = context.provider(entry["type"], entry["provider"])
        if provider.diff(entry["id"], reveal(entry.get("outputs", {})), unknown).replaces:
            urns.add(entry["urn"])
            found.append(entry)
    return found


def _marked(goal: Goal, inputs: Properties, outputs: Properties) -> Properties:
    names = [*goal.fields["additionalSecretOutputs"], *secret_outputs(goal.type, inputs)]
    return secret_keys(mark_like(outputs, inputs), names)
