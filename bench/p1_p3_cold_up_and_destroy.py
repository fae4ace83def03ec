"""P1: cold `up` until every health check answers. P3: `destroy` until nothing is left.

Beside them a script that starts the same programs with the same flags in parallel and waits for the
same checks, and the slowest of those programs' own exit.
"""

from __future__ import annotations

from bench.measure import Ratio, in_turn, seconds
from bench.plain import PlainServices
from bench.scratch import ScratchStack, scratch_stack
from engine.values import reveal

ROUNDS = 5


def run() -> list[Ratio]:
    """Both ratios, from the same rounds."""
    with scratch_stack() as stack:
        stack.engine("up", "--yes")  # builds what has to be built once
        services = PlainServices(_programs(stack))
        stack.engine("destroy", "--yes")
        ups: list[float] = []
        downs: list[float] = []
        starts: list[float] = []
        stops: list[float] = []

        def ours() -> float:
            ups.append(seconds(stack.command("up", "--yes"), env=stack.environment))
            downs.append(seconds(stack.command("destroy", "--yes"), env=stack.environment))
            return ups[-1]

        def plain() -> float:
            starts.append(services.start())
            stops.append(services.stop())
            return starts[-1]

        in_turn(ROUNDS, ours, plain)
    return [
        Ratio(name="P1 cold up", ours=ups[1:], plain=starts[1:], unit="s", goal=1.3),
        Ratio(name="P3 destroy", ours=downs[1:], plain=stops[1:], unit="s", goal=1.3),
    ]


def _programs(stack: ScratchStack) -> list[dict[str, object]]:

    return [
        reveal(entry["inputs"])
        for entry in stack.state().resources
        if entry["type"].endswith(":Program")
    ]
