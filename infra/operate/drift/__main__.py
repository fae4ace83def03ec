"""`python -m infra.operate.drift -s STACK`: reports drift in all layers; changes nothing.

Exit codes: 0 no drift, 2 drift, 1 when the stack, or a part of it, could not be looked at.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import pulumi

from infra.operate import arguments
from infra.operate.drift.findings import HOSTS, INSTANCES, SERVICES, DriftReport, Finding
from infra.operate.drift.look import StackLook, look
from trainyard.access import terminal
from trainyard.access.terminal import clean

MACHINES = (INSTANCES, HOSTS)
# Endings of the names of resources without which no head answers.
HEAD_NEEDS = ("-ray-head", "-ray-head-ready", "-supervisor", "-network", "-ray", "-ray-ready")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    return arguments.run(lambda: _run(options), options.stack)


def _run(options: argparse.Namespace) -> int:
    folder = options.cwd.resolve()
    looked = look(folder, options.stack, services=options.health)
    if options.health:
        return _tell_faults(looked, options.stack)
    report = examine(folder, options.stack, looked)
    terminal.print_value(report.json() if options.json else report.text())
    return report.code


def examine(folder: Path, stack: str, looked: StackLook) -> DriftReport:
    """Return the report on a stack: its resources, outputs, machines and Ray nodes."""
    # `--health`, which `train info` asks, takes half the time without them.
    from infra.operate import dashboard  # noqa: PLC0415
    from infra.operate.drift import (  # noqa: PLC0415
        expected,
        machines,
        ray_nodes,
        rented,
        resources,
    )

    different, failures = resources.different(looked, stack)
    findings = [*resources.unfinished_steps(looked, stack), *different]
    findings += machines.full(looked.seen)
    findings += expected.differing(stack, looked.outputs, datetime.now(UTC))
    try:
        findings += rented.unknown(folder, looked.seen)
    except pulumi.RunError as error:
        failures.append(str(error))
    try:
        way = dashboard.way(looked.outputs, (each.props.get("host") for each in looked.seen))
        findings += ray_nodes.differing(stack, looked.outputs, way)
    except dashboard.AskError as error:
        if not _explain(findings):
            failures.append(str(error))
    return DriftReport(
        stack=stack,
        looked=len(looked.seen),
        findings=findings,
        failures=list(dict.fromkeys(failures)),
    )


def _tell_faults(looked: StackLook, stack: str) -> int:
    """Print each service's fault, a line each; return the exit code."""
    found = {
        each.fault or each.said or (f"{each.name} is gone" if each.gone else "")
        for each in looked.seen
    } - {""}
    if looked.outputs and not looked.seen:
        found = {f"{stack} has no services: the last refresh found none, and `make up` makes them"}
    terminal.print_value("".join(f"{clean(each)}\n" for each in sorted(found)), end="")
    return 2 if found else 0


def _explain(findings: Iterable[Finding]) -> bool:
    """Return whether findings say why Ray does not answer: its head, or a machine, is down."""
    return any(
        each.layer in MACHINES or (each.layer == SERVICES and each.name.endswith(HEAD_NEEDS))
        for each in findings
    )


class _Parser(argparse.ArgumentParser):
    """Exits with 1 for a wrong command line: argparse's own 2 means drift."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(1, f"error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("infra.operate.drift", __doc__, kind=_Parser)
    parser.add_argument(
        "--health", action="store_true", help="only the present faults of services, a line each"
    )
    parser.add_argument("-j", "--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
