"""P1 and P3 of the docker runtime, and what its containers take while they are idle.

Beside cold `up` and `destroy` a script that makes, starts, waits for and removes the same
containers with docker's own commands. All images are there before.
"""

from __future__ import annotations

from bench.idle import idle
from bench.measure import Ratio, SkippedError, Usage, in_turn, seconds
from bench.plain_docker import PlainContainers
from bench.scratch import docker_is_missing, make_images, scratch_stack

ROUNDS = 5


def run() -> list[Ratio | Usage]:
    """Both ratios, from the same rounds.

    Raises:
        SkippedError: no Docker Engine.
    """
    if missing := docker_is_missing():
        raise SkippedError(missing)
    make_images()
    with scratch_stack("docker") as stack:
        stack.engine("up", "--yes")  # builds what has to be built once
        containers = PlainContainers(stack.state().resources)
        usage = idle(containers.names, stack.prefix)
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
            starts.append(containers.start())
            stops.append(containers.stop())
            return starts[-1]

        try:
            in_turn(ROUNDS, ours, plain)
        except BaseException:
            containers.discard()
            raise
    return [
        Ratio(name="P1 cold up, docker", ours=ups[1:], plain=starts[1:], unit="s", goal=1.3),
        Ratio(name="P3 destroy, docker", ours=downs[1:], plain=stops[1:], unit="s", goal=1.3),
        *usage,
    ]
