"""P1: cold `up` until every health check answers. P3: `destroy` until nothing is left.

Compared with a script that starts the same programs with the same flags in parallel and waits for
the same checks, and with the exit of the slowest program.
"""

from bench.form import Form
from bench.measure import Ratio
from bench.plain import PlainServices
from bench.rounds import ROUNDS, up_and_destroy
from bench.scratch import scratch_stack
from engine.state import State
from engine.values import reveal

LIMIT_MB = 300.0


def run(form: Form) -> list[Ratio]:
    """Return both ratios, and the engine's memory, from the same rounds."""
    with scratch_stack() as stack:
        rounds = up_and_destroy(form.rounds(ROUNDS), stack, _plain)
    return [
        rounds.ratio("P1 cold up", 1.3),
        rounds.ratio_of_end("P3 destroy", 1.3),
        Ratio(
            name="engine memory",
            ours=[up.peak_mb for up in rounds.up],
            plain=[LIMIT_MB],
            unit="MB",
            goal=1.0,
        ),
    ]


def _plain(state: State) -> list[PlainServices]:
    programs = [entry for entry in state.resources if entry["type"].endswith(":Program")]
    return [PlainServices([reveal(entry["inputs"]) for entry in programs])]
