"""P2: an `up` that changes nothing, next to the least that any tool in Python has to do.

For the embedded engine that is to import pulumi and to read the stack's state, which includes
decrypting it; for the pulumi CLI it is its own `up` of an empty program.
"""

import sys
import tempfile
from pathlib import Path

from bench import measure
from bench.form import Form
from bench.measure import Ratio, Result, Skipped, SkippedError, in_turn
from bench.scratch import Program, ScratchStack, pulumi_cli

ROUNDS = 20
LIMIT_SECONDS = 3.0
UNCHANGED = ("up", "--yes", "--expect-no-changes")
# Reads the state of a project's stack, which an `up` has to read as well.
READ = """
import os, pathlib, sys, pulumi
from engine.state import Backend
backend = Backend(os.environ["PULUMI_BACKEND_URL"], pathlib.Path())
assert backend.load(*sys.argv[1:], os.environ["PULUMI_CONFIG_PASSPHRASE"]).resources
"""
EMPTY = {
    "Pulumi.yaml": """\
name: empty
runtime: {name: python, options: {toolchain: pip, virtualenv: .venv}}
""",
    "__main__.py": "",
}
CLI = "P2 no-op up, pulumi CLI"


def run(form: Form) -> list[Result]:
    """Return the ratio, the absolute bound of 3 s, and the CLI's ratio if a CLI is available."""
    with form.stack() as stack:
        read = [sys.executable, "-c", READ, "trainyard", stack.name]
        ours, plain = in_turn(
            form.rounds(ROUNDS),
            lambda: stack.engine(*UNCHANGED),
            lambda: measure.run(read, env=stack.environment).seconds,
        )
        ratios: list[Result] = [
            Ratio(name="P2 no-op up", ours=ours, plain=plain, unit="s", goal=1.5),
            Ratio(name="P2 absolute", ours=ours, plain=[LIMIT_SECONDS], unit="s", goal=1.0),
        ]
        try:
            return [*ratios, _of_the_cli(form, stack)]
        except SkippedError as error:
            return [*ratios, Skipped(CLI, str(error))]


def _of_the_cli(form: Form, stack: ScratchStack) -> Ratio:
    with (
        pulumi_cli(optimized=not form.smallest) as cli,
        tempfile.TemporaryDirectory(prefix="ty-bench-") as folder,
    ):
        empty = Program(Path(folder), EMPTY)
        empty.pulumi(cli, "stack", "init")
        empty.pulumi(cli, "up", "--yes", "--skip-preview")
        ours, plain = in_turn(
            form.rounds(ROUNDS),
            lambda: stack.pulumi(cli, *UNCHANGED, "--skip-preview"),
            lambda: empty.pulumi(cli, *UNCHANGED, "--skip-preview"),
        )
    return Ratio(name=CLI, ours=ours, plain=plain, unit="s", goal=1.5)
