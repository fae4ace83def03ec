"""The command line: pulumi's commands and flags, where they mean the same.

Exit codes as pulumi's: 0 done, 1 failed, 2 wrong usage.
"""

import argparse
import getpass
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from engine import history, outputs, users
from engine.crypto import Crypter
from engine.durations import SECOND, parse_duration
from engine.errors import EngineError
from engine.passphrase import is_set, make, passphrase, read_file
from engine.project import Project, StackSettings, read_settings
from engine.state import Backend, salt_of
from trainyard.access import terminal, users_file
from trainyard.access.state_bucket import BucketError

HIDDEN = "[secret]"


def main(argv: list[str] | None = None) -> int:
    """Run one command, by default that of the process's arguments; its exit code."""
    options = _parser().parse_args(argv)
    try:
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except EngineError as error:
        terminal.warn(f"error: {error}", options.stack)
    except BucketError as error:
        terminal.warn(
            f"error: {error.filename}: {error.strerror}; nothing was changed. Look at the address "
            "and the keys of the state backend (PULUMI_BACKEND_URL, AWS_ACCESS_KEY_ID)"
        )
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine",
        description="Runs a Pulumi program without the pulumi CLI. The state is "
        "Pulumi's own: either tool can take over the other's stack.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-C", "--cwd", type=Path, default=Path(), help="folder of the project (default: this one)"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, run: Callable[[argparse.Namespace], int], text: str, to: Any = commands
    ) -> Any:
        command = to.add_parser(name, help=text, description=text, allow_abbrev=False)
        command.set_defaults(command=run, name=name)
        command.add_argument("-s", "--stack", default="dev", help="stack's name (default: dev)")
        return command

    for name, text in (
        ("up", "create or update the resources of a stack"),
        ("preview", "show the changes that up would make"),
        ("refresh", "update the state to match the real resources"),
        ("destroy", "delete all resources of a stack"),
    ):
        command = add(name, _operate, text)
        command.add_argument("--diff", action="store_true", help="show which properties change")
        command.add_argument("-d", "--debug", action="store_true", help="show debug messages")
        command.set_defaults(plan=None, save_plan=None, policy_pack=None)
        if name == "preview":
            command.add_argument("--save-plan", type=Path, help="write the steps as a plan file")
        if name == "up":
            command.add_argument("--plan", type=Path, help="do only the steps of a plan file")
        if name in ("up", "preview"):
            command.add_argument("--policy-pack", type=Path, help="folder of rules to apply first")
            command.add_argument("--policy-pack-config", type=Path, help="JSON file of levels")
        if name != "preview":
            command.add_argument("-y", "--yes", action="store_true", help="do not ask")
            command.add_argument(
                "--wait",
                type=_seconds,
                default=0.0,
                metavar="5m",
                help="how long to wait for another operation on the stack (default: 0s)",
            )
        if name != "refresh":
            command.add_argument("-r", "--refresh", action="store_true", help="run refresh first")
        command.add_argument(
            "--expect-no-changes", action="store_true", help="fail when anything changes"
        )
    output = add("output", _output, "print the outputs of a stack")
    output.add_argument("property", nargs="?", help="print only this output")
    output.add_argument("-j", "--json", action="store_true", help="print JSON")
    output.add_argument("--show-secrets", action="store_true", help="print secrets in the clear")
    add("cancel", _cancel, "remove the lock that a dead process left on a stack")
    stack = add("stack", _stack, "list the stacks that have a state, or remove one")
    stack.add_argument(
        "action", choices=["ls", "rm", "history"], help="list stacks, remove one, show its history"
    )
    stack.add_argument("-j", "--json", action="store_true", help="history: print JSON")
    stack.add_argument("-y", "--yes", action="store_true", help="rm: do not ask")
    _add_config(commands, add)
    keys = add("secrets", _secrets, "encrypt a stack's secrets with a new key")
    keys.add_argument("action", choices=["rotate"], help="use a new key")
    keys.add_argument(
        "--new-passphrase-file",
        type=Path,
        metavar="FILE",
        help="file with the new passphrase (default: keep the passphrase)",
    )
    return parser


def _add_config(commands: Any, add: Callable[..., Any]) -> None:
    text = "read or change the settings of a stack, in Pulumi.<stack>.yaml"
    actions = commands.add_parser(
        "config", help=text, description=text, allow_abbrev=False
    ).add_subparsers(required=True, metavar="ACTION")
    for name, run, text in (
        ("set", _config_set, "set a setting"),
        ("get", _config_get, "print a setting, a secret in the clear"),
        ("rm", _config_rm, "remove a setting from the file"),
        ("ls", _config_ls, "list the settings, secrets hidden"),
    ):
        command = add(name, run, text, actions)
        if name == "ls":
            command.add_argument("--show-secrets", action="store_true", help="print secrets too")
            continue
        command.add_argument("--path", action="store_true", help="KEY is a path like head.cpus")
        if name == "set":
            command.add_argument("--secret", action="store_true", help="encrypt the value")
        command.add_argument("key", metavar="KEY", help="name of the setting")
        if name == "set":
            shown = "the value (default: asked for, or read from standard input)"
            command.add_argument("value", metavar="VALUE", nargs="?", help=shown)


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _operate(options: argparse.Namespace) -> int:
    # Only these commands need the SDK: the others answer at once.
    from engine.operation import Operation  # noqa: PLC0415

    project, stack, backend = _place(options)
    settings_file = project.root / f"Pulumi.{stack}.yaml"
    makes = options.name in ("up", "preview") and settings_file.exists()
    if not makes and not backend.exists(project.name, stack):
        raise outputs.unknown_stack(project, stack, backend)
    if options.name == "destroy":
        users.refuse_used(backend, project.name, stack)
    is_preview = options.name == "preview"
    if not is_preview and not options.yes:
        _require_somebody()
    if not is_preview and (options.plan or options.policy_pack or not options.yes):
        # What a plan does not hold, or a policy refuses, is refused before anything is touched.
        if not Operation(project, stack, backend, options, dry_run=True).run():
            return 1
        if not options.yes:
            _confirm(f"{options.name} the stack {stack}?")
    operation = Operation(project, stack, backend, options, dry_run=is_preview)
    with _stop_on_signal(operation.stop):
        return 0 if operation.run() else 1


def _output(options: argparse.Namespace) -> int:
    project, stack, backend = _place(options)
    found = outputs.read(project, stack, backend, secrets=options.show_secrets)
    if options.property is not None:
        if options.property not in found:
            known = ", ".join(sorted(found)) or "none"
            raise EngineError(f"stack {stack} has no output {options.property!r}; it has: {known}")
        value = found[options.property]
        is_text = isinstance(value, str) and not options.json
        terminal.print_value(value if is_text else terminal.as_json(value, indent=2))
    elif options.json:
        terminal.print_json(found, indent=2)
    else:
        for key, value in sorted(found.items()):
            shown = value if isinstance(value, str) else terminal.as_json(value)
            terminal.print_value(f"{key:24} {shown}")
    return 0


def _cancel(options: argparse.Namespace) -> int:
    project, stack, backend = _place(options)
    for who in (removed := backend.unlock(project.name, stack)):
        terminal.say(f"removed the lock of {who}")
    if not removed:
        terminal.say(f"no lock on {stack}")
    return 0


def _stack(options: argparse.Namespace) -> int:
    project, stack, backend = _place(options)
    if options.action == "ls":
        for name in backend.stacks(project.name):
            terminal.say(name)
        return 0
    if options.action == "history":
        found = backend.history(project.name, stack)
        if options.json:
            terminal.print_json(found, indent=2)
        else:
            terminal.say("\n".join(map(history.line, found)))
        return 0
    _require_empty(project, stack, backend)
    if not options.yes:
        _require_somebody()
        _confirm(f"remove the stack {stack} with its backups?")
    with backend.lock(project.name, stack):
        _require_empty(project, stack, backend)  # by now nobody else changes it
        backend.remove(project.name, stack)
    return 0


def _require_empty(project: Project, stack: str, backend: Backend) -> None:
    if resources := outputs.raw_state(project, stack, backend).get("resources"):
        raise EngineError(f"stack {stack} still has {len(resources)} resources; run destroy first")


def _config_set(options: argparse.Namespace) -> int:
    from engine.config import SettingsFile  # noqa: PLC0415 - imports ruamel.yaml

    project, stack, backend = _settings_place(options)
    value = _read_value(options) if options.value is None else options.value
    with users_file.exclusive(project.root):
        settings = SettingsFile(project, stack)
        crypter = None
        if options.secret:
            salt = settings.salt or _state_salt(project, stack, backend)
            if not salt and not is_set():
                make()
            crypter = Crypter(passphrase(), salt) if salt else Crypter.fresh(passphrase())
        settings.set(options.key, value, path=options.path, crypter=crypter)
        settings.write()
    return 0


def _read_value(options: argparse.Namespace) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.read().removesuffix("\n")
    question = f"{options.key}: "
    return getpass.getpass(question) if options.secret else input(question)


def _config_get(options: argparse.Namespace) -> int:
    from engine import config  # noqa: PLC0415 - as above

    project, settings = _read_all(options)
    terminal.print_value(config.get(settings, project, options.key, path=options.path))
    return 0


def _config_rm(options: argparse.Namespace) -> int:
    from engine.config import SettingsFile  # noqa: PLC0415 - as above

    project, stack, _ = _settings_place(options)
    with users_file.exclusive(project.root):
        settings = SettingsFile(project, stack)
        settings.remove(options.key, path=options.path)
        settings.write()
    return 0


def _config_ls(options: argparse.Namespace) -> int:
    project, settings = _read_all(options, hidden=None if options.show_secrets else HIDDEN)
    for key, value in sorted(settings.config.items()):
        terminal.print_value(f"{key.removeprefix(f'{project.name}:'):24} {value}".rstrip())
    return 0


def _read_all(
    options: argparse.Namespace, hidden: str | None = None
) -> tuple[Project, StackSettings]:
    project, stack, backend = _settings_place(options)
    salt = "" if hidden else _state_salt(project, stack, backend)
    return project, read_settings(project, stack, salt, hidden=hidden)


def _settings_place(options: argparse.Namespace) -> tuple[Project, str, Backend]:
    project, stack, backend = _place(options)
    if not (project.root / f"Pulumi.{stack}.yaml").is_file():
        outputs.raw_state(project, stack, backend)  # a stack without settings of its own
    return project, stack, backend


def _state_salt(project: Project, stack: str, backend: Backend) -> str:
    if not backend.exists(project.name, stack):
        return ""
    return salt_of(backend.read_raw(project.name, stack))


def _secrets(options: argparse.Namespace) -> int:
    from engine import rotate  # noqa: PLC0415 - as above

    project, stack, backend = _place(options)
    outputs.raw_state(project, stack, backend)
    old = passphrase()
    file = options.new_passphrase_file
    done = rotate.rotate(project, stack, backend, old, read_file(file) if file else old)
    terminal.say(
        f"{stack}: {done.resources} resources and {done.settings} settings are encrypted again. "
        f"{done.backups} copies of earlier states, and earlier commits of Pulumi.{stack}.yaml, "
        "still open with the former key: change secrets that must not be read"
    )
    if file:
        terminal.say(f"from now on: PULUMI_CONFIG_PASSPHRASE_FILE={file}")
    return 0


def _place(options: argparse.Namespace) -> tuple[Project, str, Backend]:
    return outputs.place(options.cwd, options.stack)


def _require_somebody() -> None:
    if not sys.stdin.isatty():
        raise EngineError("--yes is needed where nobody can be asked")


def _confirm(question: str) -> None:
    if not terminal.agree(question):
        raise EngineError("nothing was changed")


@contextmanager
def _stop_on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the operation after the steps in hand; a second one at once."""

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler)
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
