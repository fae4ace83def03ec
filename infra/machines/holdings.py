"""The contents of a cloud account, for `python -m infra.operate.reap`; states are not asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

INSTANCE = "instance"


@dataclass(frozen=True, kw_only=True)
class Holding:
    """One thing in an account.

    Attributes:
        kind: instance, or another word of the cloud's, such as key or ruleset.
        price: $/h; only instances have one.
        mark: id of the stack that it is marked with, "" when it is not ours.
        backend: id of the state backend that it is marked with, "" for none.
        end: when it should end, as set at its launch, in ISO 8601; "" for never.
    """

    kind: str
    id: str
    name: str
    type: str = ""
    region: str = ""
    price: float = 0.0
    owner: str = ""
    stack: str = ""
    mark: str = ""
    backend: str = ""
    end: str = ""


class Account(Protocol):
    """An account, as the holder of an API key sees it; a call raises a RunError where it fails."""

    def holdings(self) -> list[Holding]:
        """Return its contents."""

    def is_gone(self, instance: str) -> bool:
        """Return whether an instance has ended, or is unknown."""

    def end(self, instances: Sequence[str]) -> None:
        """End instances, and wait until they have ended."""
