"""`train`: bring a stack up, submit jobs to its cluster, follow and stop them, look at runs."""

# ruff: noqa: PLC0415 - what few calls need, or is slow

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from trainyard.access import repository
from trainyard.client import commands, extras
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError

PACKAGES = (extras.DISTRIBUTION, "ray", "torch")  # a bug report needs their versions


class _Commands(Mapping[str, Any]):
    """The commands in the order of GROUPS; a command is made when it is first asked for."""

    def __init__(self) -> None:
        self._places = {
            name: (group, examples)
            for group, named in commands.GROUPS.items()
            for name, examples in named.items()
        }
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, *self._places[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class _Train(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()


app = typer.Typer(cls=_Train, help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Runs the command line; a user's error becomes one message and exit code 1.

    So does the loss or restart of the head during a command.
    """
    try:
        if (checkout := repository.another()) is not None:
            raise ClientError(
                f"this `train` is of {repository.ROOT}, and would not run the code of the checkout "
                f"{checkout}: run `make setup` there, then use {checkout}/.venv/bin/train"
            )
        app(
            prog_name="train"
        )  # or `python -m trainyard.client` would install a completion of `python`
    except Exception as error:
        if (told := _told(error)) is None:
            raise
        warn(f"error: {told}")
        sys.exit(1)


def _told(error: Exception) -> ClientError | None:
    """Return the error that the user is told; None for a fault of this program."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return extras.explained(error)
    from trainyard.client import unreachable

    return unreachable.explained(error)


def _made(name: str, group: str, examples: commands.Examples) -> Any:
    """Import the module of a command, and make it: its help begins with the examples."""
    own = name.replace("-", "_")
    module = import_module(f"{commands.__name__}.{commands.MODULES.get(name, own)}")
    one = typer.Typer(add_completion=False)
    settings = getattr(module, "SETTINGS", None)
    one.command(name, context_settings=settings)(getattr(module, own))
    made: Any = typer.main.get_command(one)
    made.rich_help_panel = group
    text = made.help or ""  # PYTHONOPTIMIZE=2 leaves out docstrings
    made.short_help, _, _ = text.partition("\n\n")
    width = max(len(given) for given, _ in examples)
    lines = (f"train {given:<{width}}   {effect}" for given, effect in examples)
    # A paragraph that keeps its lines, as its first character says.
    made.help = "\b" + "\n".join(lines) + f"\n\n{text}"
    return made


def _print_versions(context: typer.Context, asked: bool) -> None:
    if not asked or context.resilient_parsing:  # a shell's completion
        return
    from importlib import metadata

    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            say(f"{name} {metadata.version(name)}")
    raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True, help="Print versions and exit."
        ),
    ] = False,
) -> None:
    """Options before a command."""
