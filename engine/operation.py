"""up, preview, refresh and destroy: load, run, write, report."""

import functools
import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from engine import history, plan
from engine.command.schema import hidden
from engine.context import Context
from engine.crypto import Crypter
from engine.deletion import delete
from engine.display import Display
from engine.errors import EngineError, LockedError
from engine.journal import Journal
from engine.live import recover, refresh
from engine.passphrase import passphrase
from engine.policy import Policies
from engine.program import program_folder, run_program
from engine.project import Project, StackSettings, read_settings
from engine.state import Backend, State
from trainyard.access import terminal
from trainyard.failpoints import reach

UNSEALED = (
    "the state has no seal of this engine. If the pulumi CLI wrote it last, all is well; otherwise "
    "somebody changed it: end this and restore a copy (docs/engine.md)"
)
RESUMING = "TRAINYARD_RESUMING"  # set by `train`: runs by the address of their node, as JSON
LOOK_SECONDS = 1.0  # between checks of an awaited lock


class Operation:
    """One run of a command on a stack; a `dry_run` plans only."""

    def __init__(
        self, project: Project, stack: str, backend: Backend, options: Namespace, *, dry_run: bool
    ) -> None:
        self._project = project
        self._stack = stack
        self._backend = backend
        self._options = options
        self._dry_run = dry_run
        diff, debug = options.diff, options.debug
        self._display = Display(
            dry_run=dry_run,
            diff=diff,
            debug=debug,
            stack=stack,
            runs=json.loads(os.environ.get(RESUMING, "{}")),
        )
        self._context: Context | None = None
        self._stopped = False

    def run(self) -> bool:
        """Run the operation.

        Returns:
            True when everything was done and, if that was asked for, nothing changed.

        Raises:
            EngineError: it could not begin; nothing was changed.
        """
        if self._dry_run:
            return self._run()
        with ExitStack() as held:
            for note in self._lock(held):
                self._display.message("warning", note, "")
            reach("lock.held")
            return self._run()

    def stop(self) -> None:
        self._stopped = True
        self._display.message("warning", "stopping: finishing the steps in hand", "")
        if self._context is not None:
            self._context.cancel()

    def _lock(self, held: ExitStack) -> list[str]:
        """Hold the stack, once its current holder has ended; notes on what was found."""
        until, waits = time.monotonic() + self._options.wait, False
        while True:
            try:
                return held.enter_context(self._backend.lock(self._project.name, self._stack))
            except LockedError as error:
                if self._stopped or time.monotonic() >= until:
                    raise
                if not waits:
                    text = f"{error}. Waiting for up to {self._options.wait:g} s"
                    self._display.message("warning", text, "")
                waits = True
            time.sleep(LOOK_SECONDS)

    def _load(self, phrase: str) -> State:
        state = self._backend.load(self._project.name, self._stack, phrase)
        self._display.hide(secret_strings(state))
        # An operation that asks first has reported it in its preview.
        if not state.sealed and (self._dry_run or self._options.yes):
            self._display.message("warning", UNSEALED, "")
        return state

    def _run(self) -> bool:
        options, started, phrase = self._options, time.time(), passphrase()
        state = self._load(phrase)
        settings = read_settings(self._project, self._stack, state.salt)
        self._display.hide(settings.secrets)

        @functools.cache
        def crypter() -> Crypter:
            # As in the CLI: the salt of the settings file, else the state's salt.
            salt = settings.salt or state.salt
            return Crypter(phrase, salt) if salt else Crypter.fresh(phrase)

        if settings.salt and settings.salt != state.salt:
            crypter()  # fails before any step if the passphrase is not the settings file's

        def save(changed: State) -> None:
            self._backend.save(self._project.name, self._stack, changed, crypter())

        journal = Journal(state, None if self._dry_run else save)
        context = self._context = Context(
            project=self._project,
            stack=self._stack,
            config=settings.config,
            journal=journal,
            display=self._display,
            dry_run=self._dry_run,
        )
        here: plan.Binding = {}
        if options.plan or options.save_plan:
            if state.pending:
                raise EngineError("a plan cannot contain interrupted steps: run refresh first")
            here = plan.binding(self._project, self._stack, settings, self._backend)
        if options.plan:
            context.planned = plan.read_plan(options.plan, here, functools.partial(Crypter, phrase))
        if options.policy_pack:
            pack, levels = options.policy_pack, options.policy_pack_config
            context.policies = Policies(pack, levels, self._display)
        if self._stopped:
            context.stopping.set()
        if self._dry_run:
            self._steps(context, settings, state.pending)
            if context.planned is not None:
                plan.refuse(context.planned, context.steps)
            if context.policies is not None:
                context.policies.enforce()
        else:
            self._backend.back_up(self._project.name, self._stack)
            self._steps(context, settings, state.pending)
            try:
                journal.flush()
                self._backend.archive(self._project.name, self._stack)
            except (EngineError, OSError) as error:
                context.fail("state", error)
            self._note(context, started)
        done = self._report(context)
        if done and options.save_plan:
            plan.write(options.save_plan, context.steps, here, crypter())
        return done

    def _note(self, context: Context, started: float) -> None:
        document = history.document(
            self._project.root,
            kind=self._options.name,
            started=started,
            succeeded=not context.failures and not context.stopping.is_set(),
            changes=self._display.counts,
        )
        try:
            self._backend.note(self._project.name, self._stack, document)
        except EngineError as error:  # finished steps stay
            self._display.message("warning", str(error), "")

    def _steps(
        self, context: Context, settings: StackSettings, interrupted: list[dict[str, Any]]
    ) -> None:
        options = self._options
        with program_folder(self._project):
            if not self._dry_run:
                recover(context, interrupted)
            if options.name == "refresh" or options.refresh:
                refresh(context)
        if options.name in ("up", "preview") and not context.stopping.is_set():
            run_program(context, settings)
        # Delete resources that the program did not register; in a destroy it registers none.
        if options.name != "refresh" and not context.stopping.is_set():
            with program_folder(self._project):
                delete(context, context.journal.olds)

    def _report(self, context: Context) -> bool:
        verb = f"{self._options.name} of {self._stack}"
        if context.failures:
            self._display.summary(f"{verb} failed ({', '.join(context.failures)})")
            return False
        if context.stopping.is_set():
            self._display.summary(f"{verb} canceled")
            return False
        self._display.summary(f"plan: {verb}" if self._dry_run else verb)
        if self._options.expect_no_changes and self._display.changed:
            terminal.warn(f"error: {self._display.changed} changes, expected none")
            return False
        return not self._display.lost


def secret_strings(state: State) -> Iterator[str]:
    """The texts in a state that must stay hidden."""
    for entry in state.resources:
        for name in ("inputs", "outputs"):
            yield from hidden(entry["type"], entry.get(name, {}))
