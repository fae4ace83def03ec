"""`train user`: who may use a stack's queue, each with a token of their own."""

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer

from trainyard.access import typed, users_file
from trainyard.access.terminal import agree
from trainyard.client import outputs as contract
from trainyard.client.command import Json, Outputs, Stack, reach
from trainyard.client.console import print_table, say, warn
from trainyard.client.errors import ClientError, writing

NO_QUEUE = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


class Action(StrEnum):
    """What to do."""

    add = "add"
    rm = "rm"
    list = "list"


class Role(StrEnum):
    """What a token may."""

    user = "user"
    teacher = "teacher"


def user(
    context: typer.Context,
    action: Annotated[Action, typer.Argument(help="What to do with users.")],
    names: Annotated[list[str] | None, typer.Argument(help="Names of users.")] = None,
    role: Annotated[
        Role,
        typer.Option(help="With add: teachers see and stop all jobs, and add and remove users."),
    ] = Role.user,
    file: Annotated[
        Path | None,
        typer.Option(help="With add: new file for the user's address and token (default: print)."),
    ] = None,
    files: Annotated[
        Path | None, typer.Option(help="With add: folder for such a file NAME.json of each user.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With rm: do not ask.")] = False,
    as_json: Json = False,
    stack: Stack = None,
    outputs: Outputs = None,
) -> None:
    """Give people tokens of their own for a stack's queue, end these, and list who has one."""
    from trainyard.client import rows
    from trainyard.client.dashboard import Dashboard

    stack_outputs = contract.read(stack, outputs)
    dashboard = Dashboard(reach(context, stack_outputs))
    if action is Action.list:
        found = rows.of_users(_asked(stack_outputs, dashboard.get, rows.USERS))
        columns = ("name", "role", "since", "seen")
        empty = "only the stack's own token: `train user add NAME` makes one for a user"
        print_table(found, columns, as_json=as_json, whole=("name",), empty=empty)
        return
    if not names:
        raise ClientError(f"nobody is named: `train user {action} NAME`")
    if action is Action.rm:
        if len(names) > 1 and not yes:
            if not sys.stdin.isatty():
                raise ClientError("no token was ended: nobody can be asked; add --yes")
            if not agree(f"End the tokens of {len(names)} users?"):
                raise ClientError("no token was ended")
        _asked(stack_outputs, dashboard.post, f"{rows.USERS}/end", {"names": names})
        say(f"ended: {', '.join(names)}; their jobs stay, and teachers can stop them")
        return
    if file and (files or len(names) > 1):
        raise ClientError("--file is for one user: give --files FOLDER, with a file for each")
    targets = {name: file for name in names if file}
    targets |= {name: files / f"{name}.json" for name in names if files}
    for target in targets.values():
        if target.exists():
            raise ClientError(f"{target} exists: move it away, or name another place")
    if files:
        with writing(files, "name another folder"):
            files.mkdir(mode=0o700, parents=True, exist_ok=True)
    tokens = _asked(stack_outputs, dashboard.post, rows.USERS, {"names": names, "role": role})
    url = stack_outputs.dashboard_url
    for name, target in targets.items():
        text = json.dumps({"address": url, "token": tokens[name]})
        with writing(
            target, f"the token of {name} is lost: `train user rm {name}`, then add again"
        ):
            users_file.replace(target, f"{text}\n", mode=0o600)
    if targets:
        wrote = ", ".join(map(str, targets.values()))
        say(f"wrote {wrote}: each {role} runs train attach with theirs")
        return
    shown = [{"name": name, "token": token} for name, token in tokens.items()]
    print_table(shown, ("name", "token"), as_json=as_json, whole=("name", "token"))
    warn(f"nobody shows a token again; it is for train attach {url} --token-file FILE")


def _asked(outputs: contract.StackOutputs, ask: Callable[..., Any], *asked: object) -> Any:
    """Return the queue's answer; ClientError if there is no queue, or it refuses."""
    from trainyard.client.dashboard import RefusedError

    try:
        return ask(*asked)
    except RefusedError as refused:
        if refused.status not in NO_QUEUE:
            raise ClientError(refused.text[:1000]) from None
        raise ClientError(
            f"stack {outputs.stack!r} has no queue, which knows users: run "
            f"`{typed.command('train config set queue true')}`, then `make up` (docs/queue.md)"
        ) from None
