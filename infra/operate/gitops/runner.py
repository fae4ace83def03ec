"""The steps of a runner for `make plan` and `make review-…`, with the embedded engine."""

import argparse
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from subprocess import PIPE, CalledProcessError

from infra.operate.gitops import GitopsError
from infra.operate.gitops.github import REPOSITORY, GitHub
from trainyard.access import terminal

WAIT = ("--yes", "--wait", "10m")  # for another run that has the stack's lock
# If the preview fails, the page says so: an earlier page would show a plan that does not exist.
NO_PLAN = """<!-- trainyard: preview of {stack} -->
## {stack}: no plan, the preview failed
The log of its run says why.
"""
# The stack of a pull request. Repositories may share a state backend: each has names of its own.
REVIEW = "pr-{number}{repository}"
DIGITS = 8  # of the repository's hash in it
REVIEWS = re.compile(rf"pr-[1-9][0-9]*(-[0-9a-f]{{{DIGITS}}})?")  # of every repository


def ready(given: argparse.Namespace) -> None:
    """Check that states outlive the runner, and write the SSH key for the machines."""
    # The defaults are on the runner's own disk, which may be gone after the job.
    for name in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"):
        if not os.environ.get(name):
            raise GitopsError(
                f"{name} is empty: set the variable {given.states}_BACKEND_URL and the secret "
                f"{given.states}_CONFIG_PASSPHRASE of the repository (docs/gitops.md)"
            )
    if key := os.environ.get("SSH_KEY"):
        path = Path.home() / ".ssh/trainyard-runner.pem"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(f"{key}\n")


def plan(given: argparse.Namespace) -> None:
    """Save a plan, and its page even if a rule refuses it."""
    stack, page = given.stack, given.out / "page.md"
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    page.write_text(NO_PLAN.format(stack=stack))
    if given.unlock:
        _run("engine", "cancel", "-s", stack)
    if given.refresh and stack in _stacks():
        _run("engine", "refresh", "-s", stack, *WAIT)
    file = str(given.out / "plan.json")
    _run("engine", "preview", "-s", stack, "--save-plan", file)
    try:
        page.write_text(_run("infra.operate.review", "-s", stack, file, *given.rules, stdout=PIPE))
    except CalledProcessError as error:
        if error.output:
            page.write_text(error.output)
        raise


def up(given: argparse.Namespace) -> None:
    """Bring the stack of a pull request up, in a state backend that has only such stacks."""
    stack = review_stack(given.number)
    if others := [name for name in _stacks() if not REVIEWS.fullmatch(name)]:
        raise GitopsError(
            f"the state backend also has {', '.join(others)}, whose states a pull request's "
            "code could write: give stacks of pull requests a bucket or prefix and a role of "
            "their own, with the variables REVIEW_BACKEND_URL and REVIEW_AWS_ROLE (docs/gitops.md)"
        )
    shutil.copy("Pulumi.review.yaml", f"Pulumi.{stack}.yaml")
    _run("engine", "up", "-s", stack, *WAIT, "--refresh", *given.rules)


def down(given: argparse.Namespace) -> None:
    """End the stack of a pull request, if there is one."""
    stack = review_stack(given.number)
    shutil.copy("Pulumi.review.yaml", f"Pulumi.{stack}.yaml")
    if stack in _stacks():
        _run("engine", "destroy", "-s", stack, *WAIT)
        _run("engine", "stack", "rm", "-s", stack, "--yes")


def sweep(given: argparse.Namespace) -> None:
    """End this repository's stacks of closed requests, and all stacks past their ttlHours."""
    stacks, expired, failed = _stacks(), "", False
    try:
        expired = _run("infra.operate.expired", stdout=PIPE)
    except CalledProcessError:
        failed = True
    github = GitHub()
    pattern = re.compile(review_stack("0").replace("pr-0", "pr-([1-9][0-9]*)"))
    for match in filter(None, map(pattern.fullmatch, stacks)):
        given.number = match[1]
        try:
            if match[0] in expired.split() or github.is_closed(int(match[1])):
                down(given)
        # One that cannot be judged or ended does not keep the others running.
        except (GitopsError, CalledProcessError) as error:
            terminal.warn(f"error: {match[0]} is kept: {error}")
            failed = True
    if failed:
        raise GitopsError("not all stacks could be judged and ended: see above")


def review_stack(number: str) -> str:
    """Return the name of a pull request's stack; by hand, without a repository, a plain one."""
    if not number.isdecimal():
        raise GitopsError("name the pull request: NUMBER=12")
    name = os.environ.get(REPOSITORY, "").lower()  # GitHub takes capital letters for small ones
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGITS]
    return REVIEW.format(number=int(number), repository=f"-{digest}" if name else "")


def _stacks() -> list[str]:
    return _run("engine", "stack", "ls", stdout=PIPE).splitlines()


def _run(*command: str, stdout: int | None = None) -> str:
    """Run a module in the environment; an error tells that it failed, and its output."""
    terminal.warn(shlex.join(("python", "-m", *command)))
    with subprocess.Popen([".venv/bin/python", "-m", *command], stdout=stdout, text=True) as run:

        def end(*_: object) -> None:
            run.terminate()
            raise KeyboardInterrupt

        signal.signal(signal.SIGTERM, end)
        try:
            said = run.communicate()[0] or ""
        except KeyboardInterrupt:
            run.communicate()  # it has the signal too, and ends in its own time
            raise
    if run.returncode:
        raise CalledProcessError(run.returncode, command, said)
    return said
