"""`train config`, `output`, `stack`, `secrets` and `cancel`: the engine's commands of these names.

The engine knows their options. It gets all from the first word on as typed: click would take away a
`--`, after which a value such as `-x` is not an option.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

import typer

from trainyard.client import outputs as contract
from trainyard.client.command import Stack
from trainyard.client.console import say
from trainyard.client.errors import ClientError, guess
from trainyard.client.stack_program import name_of, run_here

SETTINGS = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
}


def config(context: typer.Context, stack: Stack = None) -> None:
    """Read or change the settings of a stack, in Pulumi.<stack>.yaml: set, get, rm or ls."""
    if not context.args:
        raise ClientError("`train config` needs an action: set, get, rm or ls")
    action, *rest = context.args  # each has the option
    changes = action == "set" and _key(rest)
    if changes:
        _check_name(changes)
    run_here("engine", "config", action, "-s", name_of(stack), *rest)
    if changes:
        say("`train preview` shows what this changes, and `train up` does it")


def output(context: typer.Context, stack: Stack = None) -> None:
    """Print the outputs of a stack, such as addresses and, with --show-secrets, passwords."""
    _run(context, stack)


def stack(context: typer.Context, stack: Stack = None) -> None:
    """List the stacks that have a state, remove one, or show its history: ls, rm or history."""
    _run(context, stack)


def secrets(context: typer.Context, stack: Stack = None) -> None:
    """Encrypt the settings and the state of a stack with a new key: rotate."""
    _run(context, stack)


def cancel(context: typer.Context, stack: Stack = None) -> None:
    """Remove the lock that a dead process left on a stack."""
    _run(context, stack)


def _key(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the name of a stack."""
    left = iter(words)
    for word in left:
        if word in ("-s", "--stack"):
            next(left, "")
        elif not word.startswith("-"):
            return word
    return ""


def _check_name(key: str) -> None:
    """Refuses a setting that the project does not have; those of providers are theirs."""
    from trainyard.access import settings_file

    namespace, _, own = key.rpartition(":")
    with suppress(OSError, ValueError):  # the engine says why
        project = settings_file.read(contract.checkout() / "Pulumi.yaml")
        known = list(project.get("config") or {})
        name = re.split(r"[.\[]", own)[0]
        if known and namespace in ("", project.get("name")) and name not in known:
            raise ClientError(
                f"no setting is called {name[:80]!r}: {guess(name, known)}"
                "docs/configuration.md has all"
            )


def _run(context: typer.Context, stack: str | None) -> None:
    run_here("engine", str(context.info_name), "-s", name_of(stack), *context.args)
