"""Command lines of this package's modules: all take the project's folder, most take a stack."""

import argparse
from collections.abc import Callable
from pathlib import Path

import pulumi

from infra.operate.checkout import ROOT
from trainyard.access import terminal


def parser(
    module: str,
    about: str | None,
    *,
    stack: str | None = "dev",
    kind: type[argparse.ArgumentParser] = argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """Return a parser with -C and -s, described by the first line of `about`.

    `stack` is the default of -s: "" if it has to be given, None for a module of all stacks.
    """
    made = kind(prog=f"python -m {module}", description=about, allow_abbrev=False)
    where = "folder of the project (default: this checkout)"
    made.add_argument("-C", "--cwd", type=Path, default=ROOT, help=where)
    if stack is not None:
        named = f"name of the stack{f' (default: {stack})' if stack else ''}"
        made.add_argument("-s", "--stack", default=stack, required=not stack, help=named)
    return made


def run(command: Callable[[], int], stack: str = "") -> int:
    """Return the exit code of a command: 1, and one message, for an error that is foreseen."""
    try:
        return command()
    except pulumi.RunError as error:
        terminal.warn(f"error: {error}", stack)
        return 1
