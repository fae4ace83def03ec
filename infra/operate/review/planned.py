"""Reads the plan of a stack: its resources before and after, and their changes.

The one module of this package that imports the embedded engine, which reads plans and states and
applies rules; nothing is changed, and no lock is taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pulumi

from engine import plan
from engine.command.schema import hidden
from engine.crypto import Crypter
from engine.differences import cut_values
from engine.display import Display
from engine.errors import EngineError
from engine.goal import changed_keys
from engine.passphrase import passphrase
from engine.policy import Policies
from engine.project import Project, check_stack_name, read_settings
from engine.state import Backend, is_living, stack_outputs
from engine.values import reveal
from trainyard.access.state_bucket import BucketError

DELETED = ("delete", "delete-replaced")
LONGEST = 60  # characters of a value that a page shows


@dataclass(frozen=True, kw_only=True)
class PlannedResource:
    """One resource, in the state or as planned.

    Attributes:
        type: its last part, such as `process:Program`.
        props: inputs, and outputs if it exists; secrets in the clear: never to be shown.
    """

    name: str
    type: str
    props: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One planned step.

    Attributes:
        operation: create, update, replace or delete.
        differs: value before and after by property, secrets hidden; of an update or replacement.
    """

    operation: str
    name: str
    type: str
    differs: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class RuleMessage:
    """A rule's message about a resource.

    Attributes:
        mandatory: whether it stops `up`.
    """

    name: str
    message: str
    mandatory: bool


@dataclass(frozen=True, kw_only=True)
class StackPlan:
    """A plan with the state that it was made for.

    Attributes:
        outputs: of the stack, secrets in the clear: never to be shown.
    """

    stack: str
    commit: str
    changes: Sequence[Change]
    before: Sequence[PlannedResource]
    after: Sequence[PlannedResource]
    verdicts: Sequence[RuleMessage]
    outputs: Mapping[str, Any] = field(repr=False, default_factory=dict)


class _Verdicts(Display):
    """Records the messages of rules instead of showing them."""

    def __init__(self) -> None:
        super().__init__(dry_run=True, diff=False, debug=False)
        self.found: list[RuleMessage] = []

    def message(self, level: str, text: str, urn: str) -> None:
        text = self.clean(text)
        self.found.append(RuleMessage(name=_name(urn), message=text, mandatory=level == "error"))


def read_stack_plan(
    folder: Path, stack: str, file: Path, pack: Path | None, levels: Path | None
) -> StackPlan:
    """Read the plan of a stack; apply the rules of a pack, if any, with levels in a JSON file.

    Raises:
        pulumi.RunError: plan, state or rules cannot be read, or the plan is for something else.
    """
    try:
        return _read(folder, check_stack_name(stack), file, pack, levels)
    except (EngineError, BucketError) as error:
        raise pulumi.RunError(str(error)) from None


def _read(
    folder: Path, stack: str, file: Path, pack: Path | None, levels: Path | None
) -> StackPlan:
    project, phrase = Project.find(folder), passphrase()
    backend = Backend.of(project)
    state = backend.load(project.name, stack, phrase)
    settings = read_settings(project, stack, state.salt)
    here = plan.binding(project, stack, settings, backend)
    steps = plan.read_plan(file, here, partial(Crypter, phrase))
    living = [each for each in state.resources if is_living(each)]
    old = {entry["urn"]: entry for entry in living}
    gone = {urn for operation, urn, _ in steps if operation in DELETED}
    new = {urn: entry.get("inputs", {}) for urn, entry in old.items() if urn not in gone}
    new |= {urn: inputs for operation, urn, inputs in steps if operation not in DELETED}
    verdicts = _Verdicts()
    if pack is not None:
        rules = Policies(pack, levels, verdicts)
        for urn, inputs in new.items():
            verdicts.hide(hidden(_token(urn), inputs))
            rules.check(urn, _token(urn), inputs)
    return StackPlan(
        stack=stack,
        commit=here["commit"],
        changes=[
            Change(
                operation="delete" if operation in DELETED else operation,
                name=_name(urn),
                type=_type(urn),
                differs=_differs(old.get(urn, {}).get("inputs", {}), inputs)
                if operation in ("update", "replace")
                else {},
            )
            for operation, urn, inputs in steps
            # The other half of a replacement.
            if operation != "delete-replaced" or urn not in new
        ],
        before=[
            _resource(urn, entry.get("inputs", {}) | entry.get("outputs", {}))
            for urn, entry in old.items()
        ],
        after=[_resource(urn, inputs) for urn, inputs in new.items()],
        verdicts=verdicts.found,
        outputs=reveal(stack_outputs(state.resources)),
    )


def _resource(urn: str, props: Mapping[str, Any]) -> PlannedResource:
    return PlannedResource(name=_name(urn), type=_type(urn), props=reveal(dict(props)))


def _differs(olds: dict[str, Any], news: dict[str, Any]) -> dict[str, tuple[str, str]]:
    changed = changed_keys(olds, news)
    old, new = ({key: each[key] for key in changed & each.keys()} for each in (olds, news))
    return cut_values(old, new, LONGEST)


def _token(urn: str) -> str:
    """Return the type of a URN, without the types of its parents."""
    return urn.split("::")[2].rpartition("$")[2]


def _type(urn: str) -> str:
    return _token(urn).rpartition("/")[2]


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]
