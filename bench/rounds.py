"""Cold `up` and `destroy` of a stack, in turn with the plain way to the same services."""

from __future__ import annotations

from typing import Protocol

from bench.measure import Ratio, in_turn, seconds
from bench.scratch import ScratchStack

ROUNDS = 5


class Plain(Protocol):
    """The same services without a stack."""

    def start(self) -> float:
        """Start all and wait until every health check answers; seconds that it took."""

    def stop(self) -> float:
        """End all; seconds that it took."""


def up_and_destroy(stack: ScratchStack, plain: Plain, label: str = "") -> list[Ratio]:
    """P1 and P3, from the same rounds; the first one warms up and is dropped.

    Args:
        stack: one that is down and has all that it needs.
        plain: what it is compared with.
        label: what is put behind the names of the ratios.
    """
    ups: list[float] = []
    downs: list[float] = []
    starts: list[float] = []
    stops: list[float] = []

    def ours() -> float:
        ups.append(seconds(stack.command("up", "--yes"), env=stack.environment))
        downs.append(seconds(stack.command("destroy", "--yes"), env=stack.environment))
        return ups[-1]

    def theirs() -> float:
        starts.append(plain.start())
        stops.append(plain.stop())
        return starts[-1]

    in_turn(ROUNDS, ours, theirs)
    return [
        Ratio(name=f"P1 cold up{label}", ours=ups[1:], plain=starts[1:], unit="s", goal=1.3),
        Ratio(name=f"P3 destroy{label}", ours=downs[1:], plain=stops[1:], unit="s", goal=1.3),
    ]
