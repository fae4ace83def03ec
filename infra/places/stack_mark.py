"""The mark of a stack, which tells it from any other, whatever the name and the owner of that.

Drawn once and then kept in the stack's state. Two people with one login may give one name to two
stacks on one machine; the mark keeps each from ending or removing anything of the other.
"""

import secrets
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Provider
from infra.machines.local import owner
from node.folders import FolderMark

ID_BYTES = 8


class MarkProvider(Provider):
    """Draws the id. It has no existence outside the state, so there is nothing to read."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Never change it."""
        return dynamic.DiffResult(changes=False)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Draw the id from the operating system's source, and note who did."""
        drawn = secrets.token_hex(ID_BYTES)
        return dynamic.CreateResult(drawn, {**props, "value": drawn, "by": owner()})


class StackMark(dynamic.Resource, module="process", name="Mark"):
    """The mark of a stack.

    Attributes:
        value: its id, hexadecimal; not a secret.
        by: user@machine that drew it.
    """

    value: pulumi.Output[str]
    by: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare the mark of this stack."""
        self._names = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
        super().__init__(MarkProvider(), name, {**self._names, "value": None, "by": None}, opts)

    @property
    def props(self) -> dict[str, pulumi.Input[str]]:
        """Property `mark` of the stack's resources."""
        return {"id": self.value, "by": self.by, **self._names}

    @property
    def known(self) -> pulumi.Output[FolderMark]:
        """The mark, once it is drawn."""
        return pulumi.Output.all(**self.props).apply(_whole)


def _whole(props: dict[str, Any]) -> FolderMark:
    return FolderMark(**{key: str(value or "") for key, value in props.items()})
