"""`python3 -m infra.gitops COMMAND`: the steps of the workflows in .github besides `make`.

    changed --base REF STACK...     the stacks that a change concerns, as JSON; with --pull NUMBER
                                    earlier comments on the others are taken back
    apart                           refuses stacks on standard input that no pull request has
    closed [--expired STACK...]     of stacks on standard input, the numbers of pull requests that
                                    are closed, or whose stack is among those that are expired
    comment NUMBER PAGE             writes or updates one comment of a pull request
    issue TITLE COMMAND...          runs a command; while it fails, an issue has its output
    stack NUMBER                    the name of a pull request's stack
    plan STACK COMMIT               the run and the artifact with a merged pull request's plan

Exit codes: 0, 1 with one message.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.gitops import changed
from infra.gitops.changed import GitError
from infra.gitops.github import REPOSITORY, GitHub, GithubError
from trainyard.access import markdown, terminal

ARTIFACT = "plan"
# As infra/review marks the page of a stack.
SAME = """<!-- trainyard: preview of {stack} -->
## {stack}: this pull request does not change it
"""
# The stack of a pull request. Repositories may share a state backend: each has names of its own.
REVIEW = "pr-{number}{repository}"
DIGITS = 8  # of the repository's hash in it
REVIEWS = re.compile(rf"pr-[1-9][0-9]*(-[0-9a-f]{{{DIGITS}}})?")  # of every repository


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    try:
        if options.command == "apart":
            return _apart(sys.stdin.read().split())
        if options.command == "closed":
            return _over(sys.stdin.read().split(), options.expired)
        terminal.print_value(_answer(options))
    except (GitError, GithubError) as error:
        terminal.warn(f"error: {error}")
        return 1
    except OSError as error:
        what = f"cannot read or start {error.filename} ({error.strerror})"
        terminal.warn(f"error: {what}")
        return 1
    return 0


def _answer(options: argparse.Namespace) -> str:
    if options.command == "changed":
        found = changed.since(options.base, options.stacks, Path.cwd())
        for stack in options.stacks if options.pull else ():
            if stack not in found:
                GitHub().comment(options.pull, SAME.format(stack=stack), new=False)
        return json.dumps(found)
    if options.command == "plan":
        return " ".join(map(str, GitHub().run_with(f"{ARTIFACT}-{options.stack}", options.commit)))
    if options.command == "stack":
        return _stack(options.number)
    if options.command == "comment":
        return f"comment {GitHub().comment(options.number, options.page.read_text())}"
    return _watched(options.title, options.run)


def _stack(number: int | str) -> str:
    """Return the name of a pull request's stack; by hand, without a repository, a plain one."""
    name = os.environ.get(REPOSITORY, "").lower()  # GitHub takes capital letters for small ones
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGITS]
    return REVIEW.format(number=number, repository=f"-{digest}" if name else "")


def _apart(stacks: Sequence[str]) -> int:
    """Return 1, with a message, if other stacks share the state backend of pull requests."""
    others = [stack for stack in stacks if not REVIEWS.fullmatch(stack)]
    if others:
        terminal.warn(
            f"error: the state backend also has {', '.join(others)}, whose states a pull request's "
            "code could write: give stacks of pull requests a bucket or prefix and a role of "
            "their own, with the variables REVIEW_BACKEND_URL and REVIEW_AWS_ROLE (docs/gitops.md)"
        )
    return int(bool(others))


def _over(stacks: Sequence[str], expired: Sequence[str]) -> int:
    """Print the pull requests of this repository whose stacks must end; 1 if one is unknown."""
    github = GitHub()
    pattern = re.compile(re.escape(_stack("NUMBER")).replace("NUMBER", "([1-9][0-9]*)"))
    numbers, failed = [], False
    for stack in stacks:
        if not (match := pattern.fullmatch(stack)):
            continue
        try:
            if stack in expired or github.is_closed(int(match[1])):
                numbers.append(match[1])
        except GithubError as error:
            terminal.warn(f"error: {stack} is kept: {error}")
            failed = True
    terminal.print_value(" ".join(numbers))
    return int(failed)


def _watched(title: str, command: Sequence[str]) -> str:
    """Run a command that exits with 0 when all is well; else an issue has its output."""
    github = GitHub()  # fails before the work if a variable is missing
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    terminal.pass_on(done.stdout)
    ended = f"{markdown.code(shlex.join(command))} ended with code {done.returncode}."
    page = f"{ended}\n\n{markdown.block(done.stdout)}"
    return f"issue {github.report(title, page, found=done.returncode != 0)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m infra.gitops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    each = commands.add_parser("changed", help="the stacks that a change concerns, as JSON")
    each.add_argument("--base", required=True, help="what the change is compared with")
    each.add_argument("--pull", type=int, metavar="NUMBER", help="number of its pull request")
    each.add_argument("stacks", nargs="*", metavar="STACK", help="all stacks")
    commands.add_parser("apart", help="refuse a state backend that has other stacks too")
    each = commands.add_parser("closed", help="the pull requests whose stacks are to end")
    each.add_argument(
        "--expired", nargs="*", default=[], metavar="STACK", help="stacks past their time"
    )
    each = commands.add_parser("stack", help="name of a pull request's stack")
    each.add_argument("number", type=int, help="number of the pull request")
    each = commands.add_parser("comment", help="write or update one comment")
    each.add_argument("number", type=int, help="number of the pull request")
    each.add_argument("page", type=Path, help="Markdown; its first line marks the comment")
    each = commands.add_parser("issue", help="keep an issue open while a command fails")
    each.add_argument("title", help="title of the issue")
    each.add_argument("run", nargs=argparse.REMAINDER, metavar="COMMAND", help="command to run")
    each = commands.add_parser("plan", help="run and artifact of a pull request's plan")
    each.add_argument("stack", help="name of the stack")
    each.add_argument("commit", help="commit of the merged pull request")
    return parser


if __name__ == "__main__":
    sys.exit(main())
