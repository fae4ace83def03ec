"""The modules of the checkout that `train up` and others run as processes, as `make` does.

This package does not import them: an installed client lacks them.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from trainyard.access import repository
from trainyard.client import outputs as contract
from trainyard.client.errors import ClientError

LAUNCH, SALT = "engine.launch", "infra.operate.checkout"
FORCE = {"TRAINYARD_FORCE": "1"}

Pack = Annotated[
    Path | None,
    typer.Option("--policy-pack", help="Folder of rules to keep, such as infra/operate/policy."),
]
Levels = Annotated[
    Path | None,
    typer.Option("--policy-pack-config", help="JSON file with the levels of the rules."),
]
NewHead = Annotated[
    bool,
    typer.Option("--force", help="Ask, then restart Ray's head although jobs run."),
]
Unasked = Annotated[bool, typer.Option("--yes", help="With --force: do not ask.")]


def name_of(stack: str | None) -> str:
    """Return the name of the stack that a command is about.

    Raises:
        ClientError: this client has no Pulumi program.
    """
    _require_program()
    return contract.chosen(stack)


def options(**given: str | Path | bool | None) -> list[str]:
    """Return the options of a module by their names; those that were not given are left out."""
    found = []
    for name, value in given.items():
        text = str(value.absolute()) if isinstance(value, Path) else value
        if text:
            option = f"--{name.replace('_', '-')}"
            # In one word: the value may begin with a dash.
            found.append(option if text is True else f"{option}={text}")
    return found


def run_here(module: str, *arguments: str) -> None:
    """Run a module that takes the project's folder by an option; see `run`."""
    _require_program()
    run(module, "-C", str(contract.checkout()), *arguments)


def run(module: str, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
    """Run a module of the checkout in the project's folder.

    Raises:
        typer.Exit: it fails; with its code, or as shells report a signal.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    environment, folder = os.environ | (variables or {}), contract.checkout()
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # came while the module started

    def pass_on(number: int, _: object) -> None:
        early.append(number) if process is None else process.send_signal(number)

    # A terminal sends Ctrl-C to both: the module ends as it must, and this command after it.
    before = signal.signal(signal.SIGINT, lambda *_: None), signal.signal(signal.SIGTERM, pass_on)
    try:
        process = subprocess.Popen(command, cwd=folder, env=environment)
        for number in early:
            process.send_signal(number)
        code = process.wait()
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    if code:
        raise typer.Exit(code if code > 0 else 128 - code)


def _require_program() -> None:
    if repository.is_checkout():
        return
    here = repository.around()
    get = f"go to the checkout {here}" if here else "clone the Trainyard repository"
    use = here / ".venv/bin/train" if here else ".venv/bin/train"
    raise ClientError(
        "this `train` was installed without the Pulumi program of the stacks, which is in a "
        f"checkout only: {get}, run `make setup` there, and use its {use}"
    )
