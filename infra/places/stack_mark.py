"""The mark of a stack, which tells it from any other, whatever the name and the owner of that.

Drawn once and then kept in the stack's state. Two people with one login may give one name to two
stacks on one machine; the mark keeps each from ending or removing anything of the other.
"""

import secrets
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Args, Provider, Resource
from infra.machines.local import owner
from node.folders import FolderMark

ID_BYTES = 8


class MarkArgs(Args):
    """The names of the stack."""

    project: str
    stack: str


class MarkProvider(Provider[MarkArgs]):
    """Draws the id. It has no existence outside the state, so there is nothing to read."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        return dynamic.DiffResult(changes=False)

    def make(self, _args: MarkArgs) -> tuple[str, dict[str, Any]]:
        """Draw the id from the operating system's source, and note who did."""
        drawn = secrets.token_hex(ID_BYTES)
        return drawn, {"value": drawn, "by": owner()}


class StackMark(Resource[MarkArgs], module="process", name="Mark"):
    """The mark of a stack.

    Attributes:
        value: its id, hexadecimal; not a secret.
    """

    _kind = MarkProvider
    value: pulumi.Output[str]
    by: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        self._names = MarkArgs(project=pulumi.get_project(), stack=pulumi.get_stack())
        super().__init__(name, self._names, opts)

    @property
    def props(self) -> dict[str, pulumi.Input[str]]:
        """Property `mark` of the stack's resources."""
        return {"id": self.value, "by": self.by, **vars(self._names)}

    @property
    def known(self) -> pulumi.Output[FolderMark]:
        """The mark, once it is drawn."""
        return pulumi.Output.all(**self.props).apply(_whole)


def _whole(props: dict[str, Any]) -> FolderMark:
    return FolderMark(**{key: str(value or "") for key, value in props.items()})
