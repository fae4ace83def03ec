"""A host key that a machine is given before its first boot, so that nobody can take its place."""

from typing import Any, ClassVar

import pulumi
from pulumi import dynamic

from cluster.provider import Provider, Resource
from infra.machines import keys


class HostKeyProvider(Provider):
    """Draws the pair. It exists only in the state, so there is nothing to read."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Never replace it: the machine has it."""
        return dynamic.DiffResult(changes=False)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Draw the pair."""
        pair = keys.generate()
        return dynamic.CreateResult(
            props["name"], {**props, "privateKey": pair.private, "publicKey": pair.public}
        )


class HostKey(Resource, module="host", name="HostKey"):
    """A host key.

    Attributes:
        privateKey: in OpenSSH's format; a secret output.
    """

    _kind = HostKeyProvider
    _secret: ClassVar = ["privateKey"]
    privateKey: pulumi.Output[str]  # noqa: N815 (property names are camelCase in Pulumi states)
    publicKey: pulumi.Output[str]  # noqa: N815

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a key."""
        super().__init__(name, {"name": name}, opts)
