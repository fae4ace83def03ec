"""`python3 -m infra.gitops COMMAND`: the steps of the workflows in .github besides `make`.

`make` calls ready, preview, up, down and sweep on a runner, after `make setup`. Exit codes: 0, 1
with one message.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.gitops import changed, runner
from infra.gitops.changed import GitError
from infra.gitops.github import GitHub, GithubError
from infra.gitops.runner import RunnerError
from trainyard.access import markdown, terminal

ARTIFACT = "plan"
# As infra/review marks the page of a stack.
SAME = """<!-- trainyard: preview of {stack} -->
## {stack}: this pull request does not change it
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    try:
        if "act" in options:
            options.act(options)
        else:
            terminal.print_value(_answer(options))
    except (GitError, GithubError, RunnerError) as error:
        terminal.warn(f"error: {error}")
        return 1
    except subprocess.CalledProcessError:
        return 1  # the program has said why
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
        return terminal.as_json(found)
    if options.command == "plan":
        return " ".join(map(str, GitHub().run_with(f"{ARTIFACT}-{options.stack}", options.commit)))
    if options.command == "comment":
        return f"comment {GitHub().comment(options.number, options.page.read_text())}"
    return _watched(options.title, options.run)


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
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    each = commands.add_parser(
        "changed", help="the stacks that a change concerns, as JSON", allow_abbrev=False
    )
    each.add_argument("--base", required=True, help="commit that the change is compared with")
    each.add_argument("--pull", type=int, metavar="NUMBER", help="number of its pull request")
    each.add_argument("stacks", nargs="*", metavar="STACK", help="all stacks")
    each = commands.add_parser("comment", help="write or update one comment", allow_abbrev=False)
    each.add_argument("number", type=int, help="number of the pull request")
    each.add_argument("page", type=Path, help="Markdown; its first line marks the comment")
    each = commands.add_parser(
        "issue", help="keep an issue open while a command fails", allow_abbrev=False
    )
    each.add_argument("title", help="title of the issue")
    each.add_argument("run", nargs=argparse.REMAINDER, metavar="COMMAND", help="command to run")
    each = commands.add_parser(
        "plan", help="run and artifact of a pull request's plan", allow_abbrev=False
    )
    each.add_argument("stack", help="name of the stack")
    each.add_argument("commit", help="commit of the merged pull request")
    each = commands.add_parser(
        "ready", help="check a runner, and take its SSH key", allow_abbrev=False
    )
    each.add_argument("states", help="prefix of the states' variables: PULUMI or REVIEW")
    each.set_defaults(act=runner.ready)
    each = commands.add_parser("preview", help="save a plan and its page", allow_abbrev=False)
    each.add_argument("--unlock", action="store_true", help="first remove a lost runner's lock")
    each.add_argument("--refresh", action="store_true", help="first compare with what runs")
    each.add_argument("stack", help="name of the stack")
    each.add_argument("out", type=Path, help="folder of both")
    each.add_argument("rules", nargs="*", help="options of the engine, after --")
    each.set_defaults(act=runner.plan)
    each = commands.add_parser(
        "up", help="bring the stack of a pull request up", allow_abbrev=False
    )
    each.add_argument("number", help="number of the pull request")
    each.add_argument("rules", nargs="*", help="options of the engine, after --")
    each.set_defaults(act=runner.up)
    each = commands.add_parser("down", help="end the stack of a pull request", allow_abbrev=False)
    each.add_argument("number", help="number of the pull request")
    each.set_defaults(act=runner.down)
    each = commands.add_parser(
        "sweep", help="end stacks of pull requests that are over", allow_abbrev=False
    )
    each.set_defaults(act=runner.sweep)
    return parser


if __name__ == "__main__":
    sys.exit(main())
