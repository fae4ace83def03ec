"""P1: cold `up` until every health check answers. P3: `destroy` until nothing is left.

Beside them a script that starts the same programs with the same flags in parallel and waits for the
same checks, and the slowest of those programs' own exit.
"""

from __future__ import annotations

from bench.measure import Ratio
from bench.plain import PlainServices
from bench.rounds import up_and_destroy
from bench.scratch import ScratchStack, scratch_stack
from engine.values import reveal


def run() -> list[Ratio]:
    """Both ratios, from the same rounds."""
    with scratch_stack() as stack:
        stack.engine("up", "--yes")  # builds what has to be built once
        services = PlainServices(_programs(stack))
        stack.engine("destroy", "--yes")
        return up_and_destroy(stack, services)


def _programs(stack: ScratchStack) -> list[dict[str, object]]:

    return [
        reveal(entry["inputs"])
        for entry in stack.state().resources
        if entry["type"].endswith(":Program")
    ]
