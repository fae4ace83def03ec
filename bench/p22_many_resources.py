"""P22: an `up` that changes nothing of a program with many resources, next to the pulumi CLI's.

Both work in turn on one stack of dynamic resources that do nothing. The embedded engine takes the
CLI's place, so it must not be slower.
"""

import tempfile
from pathlib import Path

from bench.form import Form
from bench.measure import Ratio, in_turn
from bench.scratch import Program, pulumi_cli

ROUNDS = 5
COUNTS = (200, 1000)
FILES = {
    "Pulumi.yaml": """\
name: many
runtime: {name: python, options: {toolchain: pip, virtualenv: .venv}}
""",
    "things.py": """\
from pulumi.dynamic import CreateResult, DiffResult, Resource, ResourceProvider


class ThingProvider(ResourceProvider):
    def diff(self, _id, olds, news):
        return DiffResult(changes=olds["number"] != news["number"])

    def create(self, props):
        return CreateResult(str(props["number"]), props)


class Thing(Resource, module="many", name="Thing"):
    def __init__(self, name, number):
        super().__init__(ThingProvider(), name, {"number": number})
""",
}
MAIN = """\
from things import Thing

for number in range({count}):
    Thing(f"thing-{{number}}", number)
"""


def run(form: Form) -> list[Ratio]:
    """Return a ratio for each count of resources."""
    return [_ratio(form, count) for count in form.pick(COUNTS, (20,))]


def _ratio(form: Form, count: int) -> Ratio:
    with (
        pulumi_cli(optimized=not form.smallest) as cli,
        tempfile.TemporaryDirectory(prefix="ty-bench-") as folder,
    ):
        program = Program(Path(folder), FILES | {"__main__.py": MAIN.format(count=count)})
        program.engine("up", "--yes")
        ours, theirs = in_turn(
            form.rounds(ROUNDS),
            lambda: program.engine("up", "--yes", "--expect-no-changes"),
            lambda: program.pulumi(cli, "up", "--yes", "--skip-preview", "--expect-no-changes"),
        )
    return Ratio(
        name=f"P22 no-op up, {count:,} resources", ours=ours, plain=theirs, unit="s", goal=1.0
    )
