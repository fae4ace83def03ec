"""How tests start the engine: as its own command does, but that its key is derived in ten rounds.

Pulumi's million is half a second of processor time for each run. Where the pulumi CLI is on PATH it
reads the same states, and everybody counts to a million.
"""

import shutil

from engine import crypto

FEW = 10
PULUMIS = crypto.ROUNDS
ROUNDS = PULUMIS if shutil.which("pulumi") else FEW
PROGRAM = """
import runpy
from engine import crypto
crypto.ROUNDS = {rounds}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def module(name: str) -> list[str]:
    """Arguments of Python that run a module which reads and writes states, as `-m` does."""
    return ["-c", PROGRAM.format(rounds=ROUNDS, module=name)]
