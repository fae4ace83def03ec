"""The commands of a stack's life: `train up`, `train down` and others; `make` calls them too.

Each runs modules of the checkout, which this package does not import, in processes of their own.
"""

# ruff: noqa: PLC0415 - a command imports what it needs, since most of it is slow

from __future__ import annotations

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
from trainyard.client.command import Json, Stack
from trainyard.client.console import print_facts, warn
from trainyard.client.errors import ClientError

LAUNCH, SALT = "engine.launch", "infra.checkout"
FORCE = {"TRAINYARD_FORCE": "1"}
# The engine knows the options of these commands. It gets all from the first word on as typed:
# click would take away a `--`, after which a value such as `-x` is not an option.
PASSED_ON = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
}
app = typer.Typer()

Pack = Annotated[
    Path | None,
    typer.Option("--policy-pack", help="Folder of rules to keep, such as infra/policy."),
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


@app.command()
def up(
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Do only what this file of `preview` holds.")
    ] = None,
    policy_pack: Pack = None,
    policy_pack_config: Levels = None,
    find_ports: Annotated[
        bool,
        typer.Option("--find-ports", help="First set a portOffset with which all ports are free."),
    ] = False,
    force: NewHead = False,
    yes: Unasked = False,
    stack: Stack = None,
) -> None:
    """Bring a stack up, or change it as its settings say; show its addresses."""
    name = _name(stack)
    if force:
        from trainyard.client import losses

        losses.agree_to_a_new_head(name, yes=yes)
    if find_ports:
        _run_here("infra.find_ports", "-s", name)
    _run(
        LAUNCH,
        *("up", "-s", name, *_path("--plan", plan), *_rules(policy_pack, policy_pack_config)),
        variables=FORCE if force else {},
    )
    _show_addresses(name)


@app.command()
def preview(
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Show which properties change, and files line by line."),
    ] = False,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="File to write the plan to; `up` does it, and `review` reads."),
    ] = None,
    policy_pack: Pack = None,
    policy_pack_config: Levels = None,
    stack: Stack = None,
) -> None:
    """Show what `up` would change."""
    rules = _rules(policy_pack, policy_pack_config)
    _run(
        LAUNCH,
        *("preview", "-s", _name(stack), *_flags(diff=diff), *_path("--plan", plan), *rules),
    )


@app.command()
def down(
    yes: Annotated[
        bool, typer.Option("--yes", help="End runs that were not pulled without a question.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="End running jobs too, without a question.")
    ] = False,
    stack: Stack = None,
) -> None:
    """End a stack: show its jobs, users, runs and costs, ask if something is lost, then end it.

    Results stay, except on rented machines.
    """
    name = _name(stack)
    from trainyard.client import losses

    losses.agree_to_the_end(name, yes=yes, force=force)
    _run(LAUNCH, "destroy", "-s", name)
    _run(SALT, name)


@app.command()
def refresh(stack: Stack = None) -> None:
    """Update the stack's state to what runs; exit with 2 if a service is not well."""
    name = _name(stack)
    _run(LAUNCH, "refresh", "-s", name)
    _run(SALT, name)
    from trainyard.client import health

    for fault in (faults := health.ask(contract.checkout(), name) or []):
        warn(f"error: {fault}")
    if faults:
        raise typer.Exit(health.ILL)


@app.command()
def drift(as_json: Json = False, stack: Stack = None) -> None:
    """Report how the stack differs from its state, and change nothing; exit with 2 if it does."""
    _run_here("infra.drift", "-s", _name(stack), *_flags(json=as_json))


@app.command()
def review(
    plan: Annotated[Path, typer.Argument(help="File that `train preview --plan` wrote.")],
    policy_pack: Pack = None,
    policy_pack_config: Levels = None,
    as_json: Json = False,
    stack: Stack = None,
) -> None:
    """Show what a plan changes, costs and opens, as a page for a pull request."""
    rules = _rules(policy_pack, policy_pack_config)
    where = ("-s", _name(stack), *_flags(json=as_json))
    _run_here("infra.review", *where, *rules, str(plan.absolute()))


@app.command()
def rotate(
    secret: Annotated[
        str | None,
        typer.Argument(help="Name of the secret that gets a new value (default: list them all)."),
    ] = None,
    policy_pack: Pack = None,
    policy_pack_config: Levels = None,
    force: NewHead = False,
    yes: Unasked = False,
    stack: Stack = None,
) -> None:
    """List a stack's secrets, or give one a new value and bring the stack up with it."""
    name = _name(stack)
    if secret is None:
        _run_here("infra.rotate", "-s", name)
        return
    asked = _flags(force=force, yes=force and yes)
    _run_here("infra.rotate", "-s", name, f"--secret={secret}", *asked)
    rules = _rules(policy_pack, policy_pack_config)
    _run(LAUNCH, "up", "-s", name, *rules, variables=FORCE if force else {})


@app.command()
def scale(
    once: Annotated[bool, typer.Option("--once", help="Run `up` at most once.")] = False,
    stack: Stack = None,
) -> None:
    """Launch and end the rented machines of a group as Ray requests, until Ctrl-C."""
    _run_here("infra.scale", "-s", _name(stack), *_flags(once=once))


@app.command()
def reap(
    names: Annotated[
        list[str] | None, typer.Argument(help="With --end: names of the orphans (default: all).")
    ] = None,
    owner: Annotated[
        str, typer.Option(help="Owner of the orphans (default: you on this machine).")
    ] = "",
    end: Annotated[bool, typer.Option("--end", help="End the orphans after a question.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    expired: Annotated[
        bool, typer.Option("--expired", help="End this project's stacks past their ttlHours.")
    ] = False,
    past_end: Annotated[
        bool, typer.Option("--past-end", help="End your machines past their end, whoever has them.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List rented machines and files that no stack knows; exit with 1 if there are any."""
    if names and not end:
        raise ClientError(f"{names[0]!r} is an orphan to end: add --end, which asks first")
    flags = _flags(yes=yes, expired=expired, past_end=past_end, json=as_json)
    ended = ("--end", *(names or [])) if end else ()
    _run_here("infra.reap", *_text("--owner", owner), *flags, *ended)


def _engine(context: typer.Context, stack: Stack = None) -> None:
    """Run the engine's command of the same name with all other arguments."""
    name, rest = str(context.info_name), context.args
    action = rest[:1] if name == "config" else []  # each of its actions has the option
    if name == "config" and not action:
        raise ClientError("`train config` needs an action: set, get, rm or ls")
    _run_here("engine", name, *action, "-s", _name(stack), *rest[len(action) :])


# They are the engine's.
for _command, _help in {
    "config": "Read or change the settings of a stack, in Pulumi.<stack>.yaml: set, get, rm or ls.",
    "output": "Print the outputs of a stack, such as addresses and, with --show-secrets, "
    "passwords.",
    "stack": "List the stacks that have a state, remove one, or show its history: ls, "
    "rm or history.",
    "secrets": "Encrypt the settings and the state of a stack with a new key: rotate.",
    "cancel": "Remove the lock that a dead process left on a stack.",
}.items():
    app.command(_command, help=_help, context_settings=PASSED_ON)(_engine)


def _show_addresses(stack: str) -> None:
    from trainyard.client import info

    try:
        outputs = contract.of_state(stack)
    except ClientError as error:
        warn(f"warning: cannot show the addresses: {error}")
        return
    print_facts("", info.addresses(outputs))
    print_facts("next:", info.first_steps(outputs))


def _name(stack: str | None) -> str:
    """The name of the stack.

    Raises:
        ClientError: this client has no Pulumi program.
    """
    _require_program()
    return stack or os.environ.get(contract.STACK_VARIABLE) or contract.DEFAULT_STACK


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


def _run_here(module: str, *arguments: str) -> None:
    """Run a module that takes the project's folder by an option."""
    _require_program()
    _run(module, "-C", str(contract.checkout()), *arguments)


def _run(module: str, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
    """Run a module of the checkout in the project's folder.

    Raises:
        typer.Exit: it fails; with its code, or as shells report a signal.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    # A terminal sends Ctrl-C to both: the module ends as it must, and this command after it.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        process = subprocess.Popen(
            command, cwd=contract.checkout(), env=os.environ | (variables or {})
        )
        others = signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        code = process.wait()
        signal.signal(signal.SIGTERM, others)
    finally:
        signal.signal(signal.SIGINT, before)
    if code:
        raise typer.Exit(code if code > 0 else 128 - code)


def _path(option: str, path: Path | None) -> list[str]:
    return [] if path is None else [f"{option}={path.absolute()}"]


def _text(option: str, value: str) -> list[str]:
    return [f"{option}={value}"] if value else []  # which may begin with a dash


def _rules(pack: Path | None, levels: Path | None) -> list[str]:
    return [*_path("--policy-pack", pack), *_path("--policy-pack-config", levels)]


def _flags(**given: bool) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, asked in given.items() if asked]
