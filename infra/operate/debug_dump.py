"""`python -m infra.operate.debug_dump -s STACK`: what is known of a stack here, for a bug report.

For `train debug-dump` alone, which reads it through a pipe and hides the secrets: it prints JSON of
`secrets`, all texts that must not be shown; `files`, values by name; and `unread`, why by name.
It changes nothing and takes no lock, so it also tells of an `up` that hangs.
"""

import sys
import time
from concurrent.futures import TimeoutError as LateError
from contextlib import redirect_stdout, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pulumi

from engine import outputs
from engine.display import Display
from engine.errors import EngineError
from engine.operation import secret_strings
from engine.passphrase import passphrase
from engine.program import program_folder
from engine.project import read_settings
from engine.state import Entry, State, is_managed, stack_outputs
from engine.values import mask, reveal
from infra.operate import arguments, health
from infra.operate.drift.look import context_of
from trainyard.access import parallel, terminal
from trainyard.access.state_bucket import BucketError

LOG_LINES = 5000  # of each service
SECONDS = 45.0  # for all services: one on a machine that is gone costs no other its log
OPERATIONS = 20


def main() -> int:
    """Run the command; return its exit code."""
    options = arguments.parser("infra.operate.debug_dump", __doc__).parse_args()

    def act() -> int:
        terminal.print_json(collect(options.cwd.resolve(), options.stack))
        return 0

    return arguments.run(act, options.stack)


def collect(folder: Path, stack: str) -> dict[str, Any]:
    """Return secrets, files and what is unread of a stack, which may be down.

    Raises:
        pulumi.RunError: its secrets cannot be read, so nothing could be hidden.
    """
    try:
        project, stack, backend = outputs.place(folder, stack)
        there = backend.exists(project.name, stack)
        state = backend.load(project.name, stack, passphrase()) if there else State()
        settings = read_settings(project, stack, state.salt)
        operations = {
            "in use by": backend.in_use_by(project.name, stack),
            "interrupted": [(each["type"], each["resource"]["urn"]) for each in state.pending],
            "newest first": backend.history(project.name, stack)[:OPERATIONS],
        }
    except (EngineError, BucketError) as error:
        raise pulumi.RunError(str(error)) from None
    secrets = [*settings.secrets, *secret_strings(state)]
    with suppress(EngineError):  # a stack without secrets needs none
        secrets.append(passphrase())
    files: dict[str, Any] = {
        "stack/settings.json": settings.config | dict.fromkeys(settings.secret_keys, "***"),
        "stack/operations.json": operations,
        "stack/outputs.json": mask(stack_outputs(state.resources)),
    }
    display = Display(dry_run=True, diff=False, debug=False, stack=stack)
    context = context_of(project, stack, state, settings, display)
    unread, until = dict[str, str](), time.monotonic() + SECONDS
    with program_folder(project), redirect_stdout(None):
        asked = {
            each["urn"].rpartition("::")[2]: parallel.start(
                copy_context().run, _look, context, each
            )
            for each in state.resources
            if is_managed(each) and health.is_service(each)
        }
        for name, answer in asked.items():
            file = f"services/{name}.log"
            try:
                files[file] = answer.result(max(0.0, until - time.monotonic()))
            except LateError:
                unread[file] = f"no answer within {SECONDS:g} s"
            except Exception as error:  # one service costs no other
                unread[file] = str(error) or type(error).__name__
    return {"secrets": secrets, "files": files, "unread": unread}


def _look(context: Any, entry: Entry) -> str:
    """Return what is wrong with a service, as a first line, and the end of its log."""
    provider, props = context.provider(entry["type"], entry["provider"]), reveal(entry["outputs"])
    found = provider.log(entry["id"], props, LOG_LINES)
    return "\n".join([f"health: {provider.fault(entry['id'], props) or 'well'}", *found, ""])


if __name__ == "__main__":
    sys.exit(main())
