"""Cold `up` and `destroy` of a stack, in turn with plain ways to the same services."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bench import measure
from bench.measure import Done, Ratio
from bench.scratch import ScratchStack
from engine.state import State

ROUNDS = 5


class Plain(Protocol):
    """The same services without a stack."""

    def start(self) -> float:
        """Start all and wait until every health check answers; return the seconds."""

    def stop(self) -> float:
        """End all; return the seconds."""

    def discard(self) -> None:
        """Remove all of it, in whatever state it is."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """Figures of all counted rounds.

    Attributes:
        up, destroy: of ours.
        start, stop: seconds of each plain way.
    """

    up: list[Done]
    destroy: list[Done]
    start: list[list[float]]
    stop: list[list[float]]

    def ratio(self, name: str, goal: float, way: int = 0) -> Ratio:
        """Return the ratio of bringing all up."""
        return _ratio(name, goal, self.up, self.start[way])

    def ratio_of_end(self, name: str, goal: float, way: int = 0) -> Ratio:
        """Return the ratio of ending all."""
        return _ratio(name, goal, self.destroy, self.stop[way])


def up_and_destroy(
    rounds: int,
    stack: ScratchStack,
    plain: Callable[[State], Sequence[Plain]],
) -> Rounds:
    """Bring all up and down in turn; the first round, which makes missing builds, is not counted.

    Args:
        rounds: how many are counted; with 0 the first one.
        stack: one that is down.
        plain: makes the plain ways from the state of the stack while it is up.
    """
    ups: list[Done] = []
    downs: list[Done] = []
    ways: Sequence[Plain] = ()
    starts: list[list[float]] = []
    stops: list[list[float]] = []
    for _ in range(rounds + 1):
        ups.append(measure.run(stack.command("up", "--yes"), env=stack.environment))
        if not ways:
            ways = plain(stack.state())
        downs.append(measure.run(stack.command("destroy", "--yes"), env=stack.environment))
        starts.append([])
        stops.append([])
        for way in ways:
            try:
                starts[-1].append(way.start())
                stops[-1].append(way.stop())
            except BaseException:
                way.discard()
                raise
    counted = slice(1, None) if rounds else slice(None)
    return Rounds(
        up=ups[counted],
        destroy=downs[counted],
        start=[list(each) for each in zip(*starts[counted], strict=True)],
        stop=[list(each) for each in zip(*stops[counted], strict=True)],
    )


def _ratio(name: str, goal: float, ours: Sequence[Done], plain: list[float]) -> Ratio:
    return Ratio(name=name, ours=[one.seconds for one in ours], plain=plain, unit="s", goal=goal)
