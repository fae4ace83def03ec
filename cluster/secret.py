"""A secret that is made once and then kept in the stack's state, encrypted."""

import secrets
from typing import Any

import pulumi
from pulumi import dynamic

from cluster.provider import Provider


class SecretProvider(Provider):
    """Draws the secret. It has no existence outside the state, so there is nothing to read."""

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Replace a secret only when another length is asked for."""
        replaces = ["bytes"] if int(_olds["bytes"]) != int(_news["bytes"]) else []
        return dynamic.DiffResult(changes=bool(replaces), replaces=replaces)

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Draw the secret from the operating system's source."""
        value = secrets.token_hex(int(props["bytes"]))
        return dynamic.CreateResult(secrets.token_hex(8), {**props, "value": value})


class Secret(dynamic.Resource, module="cluster", name="Secret"):
    """A random secret.

    Attributes:
        value: hexadecimal text, two characters a byte; a secret output.
    """

    value: pulumi.Output[str]

    def __init__(self, name: str, length: int, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a secret of `length` random bytes."""
        # The Python provider host does not mark new outputs as secret: the option does.
        marked = pulumi.ResourceOptions(additional_secret_outputs=["value"])
        super().__init__(
            SecretProvider(),
            name,
            {"bytes": length, "value": None},
            pulumi.ResourceOptions.merge(opts, marked),
        )
