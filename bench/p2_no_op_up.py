"""P2: an `up` that changes nothing, beside the least that any tool in Python has to do.

The plain way imports pulumi and reads the stack's state, which includes decrypting it.
"""

from __future__ import annotations

import sys

from bench import measure
from bench.form import Form
from bench.measure import Ratio, in_turn

ROUNDS = 20
LIMIT_SECONDS = 3.0
# Of a stack of a project that an `up` has to read as well.
READ = """
import os, pathlib, sys, pulumi
from engine.state import Backend
backend = Backend(os.environ["PULUMI_BACKEND_URL"], pathlib.Path())
assert backend.load(*sys.argv[1:], os.environ["PULUMI_CONFIG_PASSPHRASE"]).resources
"""


def run(form: Form) -> list[Ratio]:
    """The ratio, and the absolute bound of 3 s."""
    with form.stack() as stack:
        up = stack.command("up", "--yes", "--expect-no-changes")
        read = [sys.executable, "-c", READ, "trainyard", stack.name]
        ours, plain = in_turn(
            form.rounds(ROUNDS),
            lambda: measure.run(up, env=stack.environment).seconds,
            lambda: measure.run(read, env=stack.environment).seconds,
        )
    return [
        Ratio(name="P2 no-op up", ours=ours, plain=plain, unit="s", goal=1.5),
        Ratio(name="P2 absolute", ours=ours, plain=[LIMIT_SECONDS], unit="s", goal=1.0),
    ]
