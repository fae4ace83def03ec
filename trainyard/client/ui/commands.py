"""The page's buttons: each runs a command that the user could type, and shows it.

The commands run in processes of their own, in the folder of `train ui`. Their names come from the
cluster: they are arguments, never a shell's text, and none is taken for an option.
"""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.access import repository, typed
from trainyard.access.terminal import COLOUR, clean_log
from trainyard.client import outputs as contract
from trainyard.client import repeat
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job

MOST_KEPT = 50
TAIL_CHARACTERS = 100_000
END_S = 5.0
TRAIN = (sys.executable, "-m", "trainyard.client")


@dataclass(frozen=True, kw_only=True)
class Action:
    """A button."""

    action: str
    shown: str  # the command as the user can type it
    arguments: tuple[str, ...] = ()  # of the process; none if only the user can run it
    question: str = ""  # is asked before


def of_job(stack: str, job: Job) -> list[Action]:
    """Return the buttons of a job."""
    if job.status.ended or not job.submission_id:
        return []
    return [
        _train(
            "stop", stack, ("stop",), job.submission_id, question="Stop this job? Checkpoints stay."
        )
    ]


def of_run(stack: str, run: str, jobs: Sequence[Job], *, servable: bool) -> list[Action]:
    """Return the buttons of a run; its jobs are the newest first."""
    found = [action for job in jobs for action in of_job(stack, job)]
    found.append(_train("pull", stack, ("pull",), run))
    if servable:
        found.append(_train("serve", stack, ("serve",), run))
    if jobs and all(job.status.ended for job in jobs):
        found.append(_resume(stack, run, jobs[0]))
    return found


def of_service(stack: str, service: str) -> list[Action]:
    """Return the buttons of a service."""
    question = "Withdraw this service? It answers no more requests then."
    return [_train("withdraw", stack, ("serve", "--stop"), service, question=question)]


def of_stack(stack: str) -> list[Action]:
    """Return the buttons of a stack: none for an attached cluster, or without a checkout."""
    if contract.is_attached(stack) or not repository.is_checkout():
        return []
    arguments = (*TRAIN, "drift", "-s", stack)
    return [Action(action="drift", shown=typed.command("train drift", stack), arguments=arguments)]


def _train(
    action: str, stack: str, words: Sequence[str], name: str, *, question: str = ""
) -> Action:
    shown = typed.command(f"train {' '.join(words)} {typed.argument(name)}", stack)
    arguments = (*TRAIN, *words, "-s", stack, "--", name)
    return Action(action=action, shown=shown, arguments=arguments, question=question)


def _resume(stack: str, run: str, job: Job) -> Action:
    """Return the command that submits the run's last job again, which resumes the run."""
    try:
        script, values = repeat.script_of(job, None)
    except ClientError:  # a script of the user's own: no cluster says which file is uploaded
        words = ("train submit SCRIPT --name", run)
        return Action(action="resume", shown=typed.command(" ".join(words), stack))
    own = ("submit", script.job, "--name", run)
    options = ("-s", stack) if stack != typed.DEFAULT_STACK else ()
    shown = f"{typed.program('train')} {shlex.join([*own, *options, '--', *values])}"
    arguments = (*TRAIN, *own, "--no-wait", "-s", stack, "--", *values)
    return Action(action="resume", shown=shown, arguments=arguments)


@dataclass
class Running:
    """A command that was started; `code` is None while it runs."""

    number: int  # counts the commands of this server
    stack: str
    action: Action
    began: float  # seconds since 1970
    process: subprocess.Popen[str]
    code: int | None = None
    text: str = field(default="", repr=False)

    def take(self) -> None:
        """Reads the output to its end."""
        assert self.process.stdout is not None  # noqa: S101 - a pipe
        for line in self.process.stdout:
            self.text = (self.text + COLOUR.sub("", clean_log(line)))[-TAIL_CHARACTERS:]
        self.code = self.process.wait()

    def described(self) -> dict[str, object]:
        """Return what the page shows."""
        return {
            "number": self.number,
            "stack": self.stack,
            "action": self.action.action,
            "command": self.action.shown,
            "began": self.began,
            "code": self.code,
            "text": self.text,
        }


class Commands:
    """The commands that the page has started."""

    def __init__(self, file: Path | None) -> None:
        """Starts nothing; the file has the outputs of the stack, None: its state has."""
        given = {} if file is None else {contract.FILE_VARIABLE: str(file.absolute())}
        self._environment = os.environ | given
        self._found: list[Running] = []
        self._lock = threading.Lock()
        self._count = 0

    def start(self, stack: str, action: Action) -> Running:
        """Starts the command of a button.

        Raises:
            ClientError: only the user can run it, or it runs already.
        """
        if not action.arguments:
            raise ClientError(f"run this yourself, with the script's path: {action.shown}")
        with self._lock:
            if any(each.action == action and each.code is None for each in self._found):
                raise ClientError(f"this command runs already: {action.shown}")
            process = subprocess.Popen(
                action.arguments,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is for this program, which ends them
            )
            self._count += 1
            running = Running(self._count, stack, action, time.time(), process)
            self._found = [*self._found[-MOST_KEPT + 1 :], running]
        threading.Thread(target=running.take, daemon=True).start()
        return running

    def all(self) -> list[dict[str, object]]:
        """Return the commands, the newest first."""
        return [each.described() for each in reversed(self._found)]

    def last_drift(self, stack: str) -> dict[str, object] | None:
        """Return the last look for drift; None before the first."""
        found = (
            each.described()
            for each in reversed(self._found)
            if each.stack == stack and each.action.action == "drift"
        )
        return next(found, None)

    def close(self) -> None:
        """Interrupts commands that run: jobs keep running, and transfers can go on later."""
        running = [each.process for each in self._found if each.process.poll() is None]
        for process in running:
            _signal(process, signal.SIGINT)
        for process in running:
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[str], number: int) -> None:
    """Sends a signal to a command and what it started, as a terminal does."""
    with suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, number)
