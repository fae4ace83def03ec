"""Commands in messages, as the user can type them: with the path of this environment's programs.

Messages name them in backquotes: `train runs`, `train cancel`, `make up`.
"""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

DEFAULT_STACK = "dev"
COMMAND = re.compile(
    r"`(?:(?:train|python -m) [a-z]|make (?:up|down|preview|refresh|drift|monitoring)\b)[^`]*`"
)
OF_NO_STACK = re.compile(
    r"train (?:new|init|cluster-file|reap)\b|python -m (?!engine|infra)|.*stack ls"
)


def program(name: str) -> str:
    """Return how to type a program of this Python's environment: by name if it is on PATH."""
    path = Path(sys.executable).parent / name
    found = shutil.which(name)
    if found and Path(found).absolute() == path:
        return name
    here = Path.cwd()
    # The Pulumi program runs in a folder below that of its user.
    if (shell := os.environ.get("PWD")) and here.is_relative_to(shell):
        here = Path(shell)
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def argument(name: str) -> str:
    """Return a name of others as an argument of a command, which no shell or option changes."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)


def command(text: str, stack: str = DEFAULT_STACK) -> str:
    """Return one command as the user can type it.

    Args:
        text: as `train …`, `python -m …` or `make …`.
        stack: the stack that it is about, if the text does not name one.
    """
    first, _, rest = text.partition(" ")
    other = "" if stack == DEFAULT_STACK or OF_NO_STACK.match(text) else stack
    if first != "make":
        option = f" -s {other}" if other and not re.search(r" (-s|--stack) ", text) else ""
        words, dashes, last = rest.partition(" -- ")  # nothing after them is an option
        return f"{program(first)} {words}{option}{dashes}{last}"
    return f"{text} STACK={other}" if other and "STACK=" not in text else text


def commands(text: str, stack: str = DEFAULT_STACK) -> str:
    """Return a message whose commands the user can type; see `command`."""
    return COMMAND.sub(lambda found: f"`{command(found[0][1:-1], stack)}`", text)
