"""up, preview, refresh and destroy: load, run, write, report."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from rich.console import Console

from engine.crypto import Crypter
from engine.deployment import Deployment
from engine.display import Display
from engine.errors import EngineError
from engine.program import program_folder, run_program
from engine.project import Project, passphrase, read_settings
from engine.state import Backend, State
from engine.values import is_secret


class Operation:
    """One run of a command on a stack.

    Args:
        project: the project.
        stack: the stack's name.
        backend: where its state is.
        options: the command line.
    """

    def __init__(
        self, project: Project, stack: str, backend: Backend, options: argparse.Namespace
    ) -> None:
        self._project = project
        self._stack = stack
        self._backend = backend
        self._options = options
        self._dry_run = options.name == "preview"
        console = Console(stderr=options.json, highlight=False)
        self._display = Display(
            console, dry_run=self._dry_run, diff=options.diff, debug=options.debug
        )
        self._deployment: Deployment | None = None
        self._started = time.monotonic()
        self._stopped = False

    def run(self) -> bool:
        """Do it.

        Returns:
            True when all of it was done and, where that was asked for, nothing changed.

        Raises:
            EngineError: it could not begin; nothing was changed.
        """
        if self._dry_run:
            return self._run()
        with self._backend.lock(self._project.name, self._stack) as notes:
            for note in notes:
                self._display.message("warning", note, "")
            return self._run()

    def stop(self) -> None:
        """Begin no further step."""
        self._stopped = True
        self._display.message("warning", "stopping: finishing the steps in hand", "")
        if self._deployment is not None:
            self._deployment.stopping.set()

    def result(self) -> dict[str, Any]:
        """What was done, or would be, in the words of `pulumi preview --json`."""
        counts = {key: n for key, n in self._display.counts.items() if key != "outputs"}
        failures = self._deployment.failures if self._deployment is not None else []
        return {
            "steps": self._display.steps,
            "changeSummary": counts,
            "duration": int((time.monotonic() - self._started) * 1e9),
            "failures": failures,
        }

    def _run(self) -> bool:
        phrase = passphrase()
        settings = read_settings(self._project, self._stack)
        state = self._backend.load(self._project.name, self._stack, phrase)
        crypter = self._crypter(phrase, state, settings.salt)
        self._display.secrets |= {settings.config[key] for key in settings.secret_keys}
        self._display.secrets |= set(_secret_strings(state))
        if not self._dry_run:
            self._backend.back_up(self._project.name, self._stack)
        deployment = self._deployment = Deployment(
            project=self._project,
            stack=self._stack,
            config=settings.config,
            state=state,
            save=None if self._dry_run else self._saver(crypter),
            display=self._display,
            targets=self._options.target,
        )
        if self._stopped:
            deployment.stopping.set()
        with self._display.showing():
            self._steps(deployment, settings)
        self._close(deployment)
        return self._report(deployment)

    def _steps(self, deployment: Deployment, settings: Any) -> None:
        options = self._options
        with program_folder(self._project):
            if not self._dry_run:
                deployment.recover()
            if options.name == "refresh" or options.refresh:
                deployment.refresh()
            if options.name == "destroy" and not deployment.stopping.is_set():
                deployment.delete_unregistered()
        if options.name in ("up", "preview") and not deployment.stopping.is_set():
            run_program(deployment, self._project, self._stack, settings, dry_run=self._dry_run)
            if not deployment.stopping.is_set():
                with program_folder(self._project):
                    deployment.delete_unregistered()

    def _saver(self, crypter: Crypter) -> Any:
        def save(state: State) -> None:
            self._backend.save(self._project.name, self._stack, state, crypter)

        return save

    def _close(self, deployment: Deployment) -> None:
        if self._dry_run:
            return
        try:
            deployment.journal.flush()
            self._backend.archive(self._project.name, self._stack)
        except (EngineError, OSError) as error:
            deployment.fail("state", error)

    def _report(self, deployment: Deployment) -> bool:
        verb = f"{self._options.name} of {self._stack}"
        if deployment.failures:
            self._display.summary(f"{verb} failed ({', '.join(deployment.failures)})")
            return False
        if deployment.stopping.is_set():
            self._display.summary(f"{verb} canceled")
            return False
        self._display.summary(verb)
        if self._options.expect_no_changes and self._display.changed:
            print(f"error: {self._display.changed} changes, expected none", file=sys.stderr)  # noqa: T201
            return False
        return True

    def _crypter(self, phrase: str, state: State, salt: str) -> Crypter:
        """The crypter to write with: the settings file's salt first, as the CLI has it."""
        chosen = salt or state.salt
        return Crypter(phrase, chosen) if chosen else Crypter.fresh(phrase)


def _secret_strings(state: State) -> list[str]:
    found: list[str] = []

    def walk(value: Any, inside: bool) -> None:
        if isinstance(value, str) and inside:
            found.append(value)
        elif is_secret(value):
            walk(value["value"], True)
        elif isinstance(value, dict):
            for item in value.values():
                walk(item, inside)
        elif isinstance(value, list):
            for item in value:
                walk(item, inside)

    for entry in state.resources:
        for name in ("inputs", "outputs"):
            properties = entry.get(name, {})
            walk({k: v for k, v in properties.items() if not k.startswith("__")}, False)
    return found
