"""P29: forty clients of one stack at once, as in a course: all are served, each about as cheaply.

One that is not served ends the benchmark without figures.
"""

from concurrent.futures import ThreadPoolExecutor

from bench import measure
from bench.form import Form
from bench.measure import Ratio

CLIENTS = 40
ROUNDS = 5
GOAL = 4.0  # times the processor of one alone


def run(form: Form) -> list[Ratio]:
    """Return the ratio."""
    clients = form.pick(CLIENTS, 4)
    with form.stack() as stack, ThreadPoolExecutor(clients) as pool:

        def list_jobs(_: int) -> float:
            command = stack.train("list")
            return measure.run(command, env=stack.environment, cwd=stack.project).processor

        alone = [list_jobs(0) for _ in range(form.rounds(ROUNDS) + 1)]
        together = list(pool.map(list_jobs, range(clients)))
    return [
        Ratio(
            name=f"P29 {clients} clients at once",
            ours=together,
            plain=alone[1:] or alone,  # the first one warms up
            unit="CPU s",
            goal=GOAL,
            note="processor seconds of `train list`, each of those at once beside one alone",
        )
    ]
