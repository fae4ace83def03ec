"""A host key that a machine is given before its first boot, so that nobody can take its place."""

# ruff: noqa: N815 (property names are camelCase in Pulumi states)

from typing import Any, ClassVar

import pulumi
from pulumi import dynamic

from cluster.provider import Args, Provider, Resource
from infra.machines import keys


class HostKeyArgs(Args):
    """Its name."""

    name: str


class HostKeyProvider(Provider[HostKeyArgs]):
    """Draws the pair. It exists only in the state, so there is nothing to read."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Never replace it: the machine has it."""
        return dynamic.DiffResult(changes=False)

    def make(self, args: HostKeyArgs) -> tuple[str, dict[str, Any]]:
        pair = keys.generate()
        return args.name, {"privateKey": pair.private, "publicKey": pair.public}


class HostKey(Resource[HostKeyArgs], module="host", name="HostKey"):
    """A host key.

    Attributes:
        privateKey: in OpenSSH's format; a secret output.
    """

    _kind = HostKeyProvider
    _secret: ClassVar = ["privateKey"]
    privateKey: pulumi.Output[str]
    publicKey: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, HostKeyArgs(name=name), opts)
