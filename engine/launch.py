"""Run the pulumi CLI if it is on PATH, else this engine, for the Makefile's `up` and `down`.

Both get the same passphrase and the same state, so a stack can be begun with one and ended with the
other. The user's own settings (PULUMI_CONFIG_PASSPHRASE, PULUMI_BACKEND_URL, a login) are kept.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine import policy, users
from engine.errors import EngineError
from engine.passphrase import FILE, PHRASE, default_file, make, read_file
from engine.project import Project
from engine.recorded import name_kind
from engine.state import Backend
from trainyard.access import settings_file, state_folder, terminal
from trainyard.access.state_bucket import BucketError

# If the settings have lost the salt of their secrets, the CLI takes the state's.
SALT_OF_STATE = {"PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true"}
PLANS = {"PULUMI_EXPERIMENTAL": "true"}  # without it the CLI does not list its flags for plans


def main() -> None:
    """Replace this process with the better of the two engines, with one command."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.launch", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("command", choices=["up", "preview", "refresh", "destroy"])
    parser.add_argument("-s", "--stack", default="dev")
    parser.add_argument("--diff", action="store_true", help="show which properties change")
    parser.add_argument("--plan", default="", help="a file: preview writes it, up does only that")
    parser.add_argument("--policy-pack", default="", help="folder of rules that up must keep")
    parser.add_argument("--policy-pack-config", default="", help="JSON file: levels of the rules")
    options = parser.parse_args()
    if options.plan and options.command not in ("up", "preview"):
        parser.error(f"{options.command} takes no --plan")
    cli = shutil.which("pulumi") is not None
    try:
        environment = SALT_OF_STATE | os.environ | _passphrase() | _backend(cli=cli)
        if cli and options.command == "destroy":
            _refuse_used(options.stack)
        if cli and options.policy_pack:
            _check_pack(Path(options.policy_pack), options.policy_pack_config)
    except EngineError as error:
        terminal.warn(f"error: {error}", options.stack)
        sys.exit(1)
    arguments = _arguments(options)
    if not cli:
        terminal.say("pulumi is not on PATH: running the embedded engine")
        command = [sys.executable, "-m", "engine", *arguments]
    else:
        terminal.say("running the pulumi CLI")
        if options.command in ("up", "preview"):
            select = ["pulumi", "stack", "select", "--create", options.stack]
            if (code := subprocess.run(select, env=environment, check=False).returncode) != 0:
                sys.exit(code)
        if options.command != "preview":  # which loads no provider of the state
            _name_kinds(options.stack, environment)
        command = ["pulumi", *arguments]
        environment |= PLANS if options.plan else {}
    # In place of this process: signals go straight to the engine.
    os.execvpe(command[0], command, environment)  # noqa: S606


def _arguments(options: argparse.Namespace) -> list[str]:
    """The arguments, the same for both engines."""
    arguments = [options.command, "--stack", options.stack]
    if options.command != "preview":
        arguments.append("--yes")
    if options.plan:
        arguments += ["--save-plan" if options.command == "preview" else "--plan", options.plan]
    if options.diff:
        arguments.append("--diff")
    for name in ("policy_pack", "policy_pack_config"):
        if value := getattr(options, name):
            arguments += [f"--{name.replace('_', '-')}", value]
    return arguments


def _passphrase() -> dict[str, str]:
    """This user's own passphrase file if none is set; made on first use."""
    if PHRASE in os.environ:
        return {}
    # The CLI would take an empty file for the passphrase "": check it here for both.
    named = Path(os.environ.get(FILE) or default_file()).expanduser()
    if named == default_file():
        make()
    if named.is_file():  # a pipe can be read only once
        read_file(named)
    return {FILE: str(named)}


def _backend(*, cli: bool) -> dict[str, str]:
    """The login, if neither the environment nor the project names a backend."""
    if os.environ.get(state_folder.URL) or Project.find(Path.cwd()).backend_url:
        return {}
    try:
        return {state_folder.URL: state_folder.logged_in()}
    except state_folder.LoginError as error:
        if cli:
            return {}  # the CLI can
        raise EngineError(str(error)) from None


def _refuse_used(stack: str) -> None:
    """Refuse to end a stack that others use, if this engine can read the states."""
    project = Project.find(Path.cwd())
    with suppress(BucketError):  # the CLI tells why
        try:
            backend = Backend.of(project)
        except EngineError:  # a backend that only the CLI reads
            return
        users.refuse_used(backend, project.name, stack)


def _name_kinds(stack: str, environment: dict[str, str]) -> None:
    """Record providers by their kinds, since the CLI cannot load a class that has moved."""

    def count_changed(latest: dict[str, Any]) -> int:
        return sum(map(name_kind, latest.get("resources") or []))

    def pulumi(command: str, **more: Any) -> subprocess.CompletedProcess[str]:
        call = ["pulumi", "stack", command, "--stack", stack]
        return subprocess.run(call, env=environment, text=True, check=False, **more)

    # The CLI takes seconds to tell, and tells why a state cannot be read.
    with suppress(EngineError, OSError):
        project = Project.find(Path.cwd())
        if not count_changed(Backend.of(project).read_raw(project.name, stack)):
            return
    exported = pulumi("export", capture_output=True)
    if exported.returncode != 0:
        return
    state = json.loads(exported.stdout)
    # An import would forget interrupted steps.
    if state["deployment"].get("pending_operations") or not count_changed(state["deployment"]):
        return
    if (code := pulumi("import", input=json.dumps(state)).returncode) != 0:
        sys.exit(code)


def _check_pack(folder: Path, config: str) -> None:
    """Check for faults that the CLI would hang on, or ignore."""
    try:
        runtime = settings_file.read(folder / "PulumiPolicy.yaml")["runtime"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise EngineError(
            f"{folder} is not a policy pack: its PulumiPolicy.yaml: {error}"
        ) from None
    options = runtime.get("options") or {} if isinstance(runtime, dict) else {}
    if named := options.get("virtualenv"):
        python = folder / named / "bin" / "python"
        if not python.exists():
            raise EngineError(
                f"the policy pack {folder} has no {python}: make its environment, "
                "for infra/operate/policy by `make policy`"
            )
    if config and (folder / "rules.py").exists():
        policy.levels(Path(config), {rule.name for rule in policy.rules(folder)})


if __name__ == "__main__":
    main()
