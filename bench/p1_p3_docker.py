"""P1 and P3 of the docker runtime, and what its containers take while they are idle.

Beside cold `up` and `destroy` a script that makes, starts, waits for and removes the same
containers with docker's own commands. All images are there before.
"""

from __future__ import annotations

from bench.idle import idle
from bench.measure import Ratio, SkippedError, Usage
from bench.plain_docker import PlainContainers
from bench.rounds import up_and_destroy
from bench.scratch import docker_is_missing, make_images, scratch_stack


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
        try:
            ratios = up_and_destroy(stack, containers, ", docker")
        except BaseException:
            containers.discard()
            raise
    return [*ratios, *usage]
