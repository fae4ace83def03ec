"""P2: an `up` that changes nothing, beside the least that any tool in Python has to do.

The plain way imports pulumi and reads the stack's state, which includes decrypting it.
"""

from __future__ import annotations

import sys

from bench.measure import Ratio, in_turn, peak_memory_mb, seconds
from bench.scratch import scratch_stack

ROUNDS = 20
LIMIT_SECONDS = 3.0
LIMIT_MB = 300.0

READ = """
import os, pathlib, sys, pulumi
from engine.state import Backend
backend = Backend(os.environ["PULUMI_BACKEND_URL"], pathlib.Path())
assert backend.load("trainyard", sys.argv[1], os.environ["PULUMI_CONFIG_PASSPHRASE"]).resources
"""


def run() -> list[Ratio]:
    """The ratio, the absolute bound of 3 s, and the engine's memory in a cold `up`."""
    with scratch_stack() as stack:
        memory = peak_memory_mb(stack.command("up", "--yes"), env=stack.environment)
        up = stack.command("up", "--yes", "--expect-no-changes")
        read = [sys.executable, "-c", READ, stack.name]
        ours, plain = in_turn(
            ROUNDS,
            lambda: seconds(up, env=stack.environment),
            lambda: seconds(read, env=stack.environment),
        )
    return [
        Ratio(name="P2 no-op up", ours=ours, plain=plain, unit="s", goal=1.5),
        Ratio(
            name="P2 no-op up, absolute",
            ours=ours,
            plain=[LIMIT_SECONDS],
            unit="s",
            goal=1.0,
            note="beside the bound",
        ),
        Ratio(
            name="engine memory",
            ours=[memory],
            plain=[LIMIT_MB],
            unit="MB",
            goal=1.0,
            note="peak of a cold up, beside the bound",
        ),
    ]
