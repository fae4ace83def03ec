"""A secret that is drawn once and kept in the stack's state, encrypted, until it is rotated."""

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar

import pulumi
from pulumi import dynamic

from cluster.provider import Args, Provider, Resource

# Names for `make rotate`. The owner of a stack's objects on Kubernetes is drawn too; it is an id
# that everybody may see, and opens nothing.
ROTATABLE = (
    "gateway-password",
    "grafana-admin",
    "hosts-node-switch-token",
    "idle-end-token",
    "notebook-token",
    "object-store-monitoring",
    "object-store-root",
    "object-store-training",
    "page-password",
    "ray-token",
    "serve-token",
    "tracking-admin",
    "tracking-session",
)
TOKEN_BYTES = 32  # of a bearer token
PASSWORD_BYTES = 20
KEY = "-key"  # of an object store's user: rotated with the secret key, whose name lacks this
# How often each was rotated. The program sets it from the settings before it declares a secret.
rotated: Mapping[str, int] = {}


class SecretArgs(Args):
    """How many bytes a secret has, and how often it was rotated."""

    bytes: int
    generation: int | None = None


class SecretProvider(Provider[SecretArgs]):
    """Draws the secret. It has no existence outside the state, so there is nothing to read."""

    def diff(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.DiffResult:
        """Replace it if its length changes; update it if its generation grows.

        A smaller generation changes nothing: lost settings must not lock anyone out.
        """
        before, after = SecretArgs.of(olds), SecretArgs.of(news)
        replaces = ["bytes"] if before.bytes != after.bytes else []
        later = (after.generation or 0) > (before.generation or 0)
        return dynamic.DiffResult(changes=later or bool(replaces), replaces=replaces)

    def make(self, args: SecretArgs) -> tuple[str, dict[str, Any]]:
        """Draw the secret from the operating system's source."""
        return secrets.token_hex(8), {"value": secrets.token_hex(args.bytes)}

    def update(self, _id: str, olds: dict[str, Any], news: dict[str, Any]) -> dynamic.UpdateResult:
        """Draw a new value, and keep the former one, which a store still needs for a while."""
        return dynamic.UpdateResult({**(self.create(news).outs or {}), "former": olds["value"]})


class Secret(Resource[SecretArgs], module="cluster", name="Secret"):
    """A random secret.

    Attributes:
        value: hexadecimal text, two characters a byte; a secret output.
        former: the value before the last rotation; None if there was none.
    """

    _kind = SecretProvider
    # Sorted, as the embedded engine has them: the CLI keeps their order.
    _secret: ClassVar = ["former", "value"]
    value: pulumi.Output[str]
    former: pulumi.Output[str | None]

    def __init__(self, name: str, length: int, opts: pulumi.ResourceOptions | None = None) -> None:
        """Declare a secret of `length` random bytes."""
        generation = rotated.get(rotated_as(name)) or None
        super().__init__(name, SecretArgs(bytes=length, generation=generation), opts)


def rotated_as(name: str) -> str:
    """Return the name by which a secret is rotated: both keys of a store's user go together."""
    return name.removesuffix(KEY)
