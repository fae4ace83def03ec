"""`train`: bring a stack up, submit jobs to its cluster, follow and stop them, look at runs."""

# ruff: noqa: PLC0415 - what few calls need, or is slow

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from trainyard.access import repository
from trainyard.client import commands, extras
from trainyard.client.console import say, warn
from trainyard.client.errors import ClientError

PACKAGES = (extras.DISTRIBUTION, "ray", "torch")  # a bug report needs their versions


class _Commands(Mapping[str, Any]):
    """The commands in the order of GROUPS; a command is made when it is first asked for."""

    def __init__(self) -> None:
        self._examples = {
            name: examples for named in commands.GROUPS.values() for name, examples in named.items()
        }
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _made(name, self._examples[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._examples)

    def __len__(self) -> int:
        return len(self._examples)


class _Coercion:
    """Gives a parameter's values their type. Typer's own imports pydantic, even for None."""

    def __init__(self, param: Any, typers: Callable[[], Any]) -> None:
        self._kind = param.type_descriptor.annotation
        self._typers = typers

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return a value as the command takes it; typer's error if it is not one."""
        if self._kind in (str, Path) and isinstance(value, str):
            return self._kind(value)
        if value is None and param.nargs == 1:
            return () if param.multiple else None
        return self._typers().coerce(value, param=param, ctx=ctx)


class _Quick:
    """A command or group whose parameters have that coercion."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for param in found:
            if "get_runtime_param" not in vars(param):
                param.get_runtime_param = partial(_Coercion, param, param.get_runtime_param)
        return found


class _Command(_Quick, TyperCommand):
    """One command."""


class _Train(_Quick, TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Commands()

    def format_commands(self, _context: Any, formatter: Any) -> None:
        """Write the first sentence of each command by its group; none of them is made for it."""
        width = max(map(len, self.commands))
        for group, named in commands.GROUPS.items():
            with formatter.section(group):
                texts = {name: _module(name)[1].__doc__ or "" for name in named}
                formatter.write_dl(
                    [(f"{name:<{width}}", _first(text)) for name, text in texts.items()]
                )


# Without rich: its import takes as long as the help of all commands.
app = typer.Typer(
    cls=_Train,
    help=__doc__,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
        if sys.argv[1:2] == ["page"]:  # of cluster/page.py, as a process; users have `train ui`
            from trainyard.client.ui import service

            return service.main(sys.argv[2:])
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


def _module(name: str) -> tuple[ModuleType, Any]:
    """Import the module of a command; return it, and the command's function."""
    own = name.replace("-", "_")
    module = import_module(f"{commands.__name__}.{commands.MODULES.get(name, own)}")
    return module, getattr(module, own)


def _first(text: str) -> str:
    """Return the first paragraph of a docstring, which PYTHONOPTIMIZE=2 leaves out."""
    return " ".join(text.partition("\n\n")[0].split())


def _made(name: str, examples: commands.Examples) -> Any:
    """Make a command: its help begins with the examples."""
    module, function = _module(name)
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    settings = getattr(module, "SETTINGS", None)
    one.command(name, cls=_Command, context_settings=settings)(function)
    made: Any = typer.main.get_command(one)
    text = made.help or ""
    made.short_help = _first(text)
    width = max(len(given) for given, _ in examples)
    lines = (f"train {given:<{width}}   {effect}" for given, effect in examples)
    # A paragraph that keeps its lines, as the first of them says.
    made.help = "\b\n" + "\n".join(lines) + f"\n\n{text}"
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
