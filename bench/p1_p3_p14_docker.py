"""P1 and P3 of the docker runtime, P14, and the usage of its containers while they are idle.

Cold `up` and `destroy` next to two plain ways to the same containers and checks: a script of
docker's own commands (P1, P3), and docker-compose, as the course has it (P14). All images exist
before.
"""

import shutil

from bench.form import Form
from bench.idle import idle
from bench.measure import Result, Skipped, Usage
from bench.plain_compose import ComposedContainers
from bench.plain_docker import Declared, PlainContainers
from bench.rounds import ROUNDS, Plain, up_and_destroy
from bench.scratch import need_docker, scratch_stack
from engine.state import State


def run(form: Form) -> list[Result]:
    """Return the ratios, from the same rounds.

    Raises:
        SkippedError: no Docker Engine.
    """
    need_docker()
    command = shutil.which("docker-compose")
    usages: list[Usage] = []
    with scratch_stack("docker") as stack:

        def plain(state: State) -> list[Plain]:
            declared = Declared.of(state.resources)
            names = [container["name"] for container, _ in declared.containers]
            usages.extend(idle(names, stack.prefix, form.pick(30.0, 1.0)))
            ways: list[Plain] = [PlainContainers(declared)]
            if command:
                folder = stack.project.parent / "compose"
                ways.append(ComposedContainers(declared, command, folder))
            return ways

        rounds = up_and_destroy(form.rounds(ROUNDS), stack, plain)
    results: list[Result] = [
        rounds.ratio("P1 cold up, docker", 1.3),
        rounds.ratio_of_end("P3 destroy, docker", 1.3),
    ]
    if command:
        results.append(rounds.ratio("P14 up, compose", 1.2, 1))
        results.append(rounds.ratio_of_end("P14 destroy, compose", 2.0, 1))
    else:
        missing = "no docker-compose on PATH (apt-get install docker-compose)"
        results.append(Skipped("P14 compose", missing))
    return [*results, *usages]
