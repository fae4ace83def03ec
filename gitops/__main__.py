"""`python3 -m gitops COMMAND`: what the workflows in .github do beside `make`.

    changed --base REF STACK...     the stacks that a change concerns, as JSON; with --pull NUMBER
                                    earlier comments on the others are taken back
    closed                          of stacks on standard input, the closed pull requests' numbers
    comment NUMBER PAGE             writes or updates one comment of a pull request
    issue TITLE COMMAND...          runs a command; while it fails, an issue has what it says
    plan STACK COMMIT               the run and the artifact with a merged pull request's plan

Exit codes: 0, 1 with one message.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from gitops import changed
from gitops.changed import GitError
from gitops.github import GitHub, GithubError

ARTIFACT = "plan"
# As infra/review marks the page of a stack.
SAME = """<!-- trainyard: preview of {stack} -->
## {stack}: this pull request does not change it
"""
REVIEW = re.compile(r"pr-(?P<number>[1-9][0-9]*)")  # the stack of a pull request


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    options = _parser().parse_args(argv)
    try:
        print(_answer(options))  # noqa: T201
    except (GitError, GithubError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    except OSError as error:
        what = f"cannot read or start {error.filename} ({error.strerror})"
        print(f"error: {what}", file=sys.stderr)  # noqa: T201
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
    if options.command == "closed":
        stacks = filter(None, map(REVIEW.fullmatch, sys.stdin.read().split()))
        numbers = [int(each["number"]) for each in stacks]
        github = GitHub()
        return " ".join(str(number) for number in numbers if github.is_closed(number))
    if options.command == "comment":
        return f"comment {GitHub().comment(options.number, options.page.read_text())}"
    return _watched(options.title, options.run)


def _watched(title: str, command: Sequence[str]) -> str:
    """Run a command that exits with 0 when all is well; an issue has what it says otherwise."""
    github = GitHub()  # what lacks for the issue is said before the work
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    sys.stderr.write(done.stdout)
    page = f"`{shlex.join(command)}` ended with code {done.returncode}.\n\n```\n{done.stdout}```\n"
    return f"issue {github.report(title, page, found=done.returncode != 0)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m gitops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    each = commands.add_parser("changed", help="the stacks that a change concerns, as JSON")
    each.add_argument("--base", required=True, help="what the change is compared with")
    each.add_argument("--pull", type=int, metavar="NUMBER", help="the pull request it is of")
    each.add_argument("stacks", nargs="*", metavar="STACK", help="all that there are")
    commands.add_parser("closed", help="the pull requests that are closed and have a stack")
    each = commands.add_parser("comment", help="write or update one comment")
    each.add_argument("number", type=int, help="of the pull request")
    each.add_argument("page", type=Path, help="Markdown; its first line marks the comment")
    each = commands.add_parser("issue", help="keep an issue open while a command fails")
    each.add_argument("title", help="of the issue")
    each.add_argument("run", nargs=argparse.REMAINDER, metavar="COMMAND", help="what looks")
    each = commands.add_parser("plan", help="where the plan of a pull request is")
    each.add_argument("stack", help="name of the stack")
    each.add_argument("commit", help="that the pull request was merged as")
    return parser


if __name__ == "__main__":
    sys.exit(main())
