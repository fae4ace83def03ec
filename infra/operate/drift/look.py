"""Asks providers for the form and the health of each resource in a state; changes nothing.

The one module of this package that imports the embedded engine: it reads states and calls
providers, whichever engine has written the state. No lock is taken, so the report can run at any
time, except while an operation runs.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi

from engine.context import PARALLEL, Context
from engine.differences import cut_values
from engine.display import Display
from engine.errors import EngineError
from engine.journal import Journal
from engine.live import LiveResource, compare
from engine.operation import secret_strings
from engine.passphrase import passphrase
from engine.program import program_folder
from engine.project import Project, StackSettings, check_stack_name, read_settings
from engine.providers import DynamicProvider
from engine.state import Backend, Entry, State, is_living, needs, stack_outputs
from engine.values import reveal
from infra.operate import health
from trainyard.access.state_bucket import BucketError

LONGEST = 120  # characters of a value that a report shows


@dataclass(frozen=True, kw_only=True)
class ResourceLook:
    """One resource: its form in the state, and its present form.

    Attributes:
        type: its last part, such as `process:Program`.
        props: recorded outputs, secrets in the clear: never to be shown.
        needs: URNs of its dependencies.
        changes: expected and found value of each property that differs, secrets hidden.
        fault: its present fault, "" without one.
        error: why it could not be looked at, None if it could.
        said: its message, secrets hidden.
    """

    urn: str
    id: str
    type: str
    name: str
    props: Mapping[str, Any] = field(repr=False)
    needs: frozenset[str] = frozenset()
    gone: bool = False
    changes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    fault: str = ""
    error: Exception | None = None
    said: str = ""

    @property
    def differs(self) -> bool:
        """Whether it is known to differ from its record."""
        return self.gone or bool(self.changes or self.fault) or self.error is not None


@dataclass(frozen=True, kw_only=True)
class StackLook:
    """A stack: its form in the state, and its present form.

    Attributes:
        outputs: of the stack, secrets in the clear: never to be shown.
        pending: what an interrupted operation was doing: its kind and the resource's name.
    """

    seen: Sequence[ResourceLook]
    outputs: Mapping[str, Any] = field(repr=False)
    pending: Sequence[tuple[str, str]]


def look(folder: Path, stack: str, *, services: bool = False) -> StackLook:
    """Look at all resources of a stack, or only at services, whose providers report health.

    Raises:
        pulumi.RunError: the stack does not exist, its state cannot be read, or it is being changed.
    """
    try:
        project = Project.find(folder)
        backend = Backend.of(project)
        if not backend.exists(project.name, check_stack_name(stack)):
            known = ", ".join(backend.stacks(project.name)) or "none"
            raise pulumi.RunError(
                f"no stack named {stack!r} in {backend.url} (there: {known}); run `make up`"
            )
        if who := backend.in_use_by(project.name, stack):
            raise pulumi.RunError(f"the stack is locked by {who}: look again when that has ended")
        state = backend.load(project.name, stack, passphrase())
        settings = read_settings(project, stack, state.salt)
    except (EngineError, BucketError) as error:
        raise pulumi.RunError(str(error)) from None
    display = Display(dry_run=True, diff=False, debug=False, stack=stack)
    display.hide(settings.secrets)
    display.hide(secret_strings(state))
    context = context_of(project, stack, state, settings, display)
    entries = [each for each in state.resources if is_living(each)]
    if services:
        entries = list(filter(health.is_service, entries))
    # The report leaves out what providers print.
    with program_folder(project), redirect_stdout(None), ThreadPoolExecutor(PARALLEL) as pool:
        jobs = [pool.submit(copy_context().run, _look_at, context, entry) for entry in entries]
        seen = [job.result() for job in jobs]
    pending = [(each["type"], _name(each["resource"])) for each in state.pending]
    return StackLook(seen=seen, outputs=reveal(stack_outputs(state.resources)), pending=pending)


def context_of(
    project: Project, stack: str, state: State, settings: StackSettings, display: Display
) -> Context:
    """Return what finds the provider of each resource of a state; it changes nothing."""
    return Context(
        project=project,
        stack=stack,
        config=settings.config,
        journal=Journal(state, None),
        display=display,
        dry_run=True,
    )


def _look_at(context: Context, entry: Entry) -> ResourceLook:
    known: dict[str, Any] = {
        "urn": entry["urn"],
        "id": entry["id"],
        "type": entry["type"].rpartition("/")[2],
        "name": _name(entry),
        "props": reveal(entry.get("outputs", {})),
        "needs": frozenset(needs(entry)),
    }
    try:
        found = compare(context, entry)
        if found is None:
            return ResourceLook(**known, gone=True)
        changes = _changes(context, entry, found)
        # A refresh has written down what was ill then.
        ill = changes or False in map(known["props"].get, health.HEALTH)
        return ResourceLook(**known, changes=changes, fault=_fault(context, entry) if ill else "")
    except Exception as error:  # whatever a provider raises is one line of the report
        return ResourceLook(
            **known, error=error, said=context.display.clean(str(error) or repr(error))
        )


def _fault(context: Context, entry: Entry) -> str:
    """Return a resource's present fault; only our own providers report one."""
    provider = context.provider(entry["type"], entry["provider"])
    if not isinstance(provider, DynamicProvider):
        return ""
    found = provider.fault(entry["id"], reveal(entry.get("outputs", {})))
    return str(context.display.clean(found))


def _changes(context: Context, entry: Entry, found: LiveResource) -> dict[str, tuple[str, str]]:
    if not found.drifted:
        return {}

    olds, news = entry.get("inputs", {}) | entry.get("outputs", {}), found.inputs | found.outputs
    return cut_values(olds, news, LONGEST, context.display.clean)


def _name(entry: Entry) -> str:
    return str(entry["urn"].rpartition("::")[2])
