"""Starts the engine for tests as its own command does, but derives its keys in few rounds.

Pulumi's million is half a second of processor time for each run. The pulumi CLI counts to it, so
engines do the same in stacks that it works on, whose environment has VARIABLE.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from engine import crypto

FEW = 10
PULUMIS = crypto.ROUNDS
VARIABLE = "TRAINYARD_TEST_ROUNDS"
AS_THE_CLI = {VARIABLE: str(PULUMIS)}
ROUNDS = PULUMIS if shutil.which("pulumi") else FEW
PROGRAM = """
import os
import runpy
from engine import crypto, kept_key
kept_key.COST = 2
crypto.ROUNDS = int(os.environ.get({variable!r}, {rounds}))
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""


def module(name: str) -> list[str]:
    """Arguments of Python that run a module which reads and writes states, as `-m` does."""
    return ["-c", PROGRAM.format(rounds=ROUNDS, module=name, variable=VARIABLE)]


def rounds(environment: Mapping[str, str]) -> int:
    """The number of rounds that engines with an environment count."""
    return int(environment.get(VARIABLE, ROUNDS))


@contextmanager
def counting(environment: Mapping[str, str]) -> Iterator[None]:
    """Count here as engines with an environment."""
    before, crypto.ROUNDS = crypto.ROUNDS, rounds(environment)
    try:
        yield
    finally:
        crypto.ROUNDS = before
