"""`python3 -m infra.operate.gitops COMMAND`: the steps of the workflows in .github besides `make`.

`make` calls ready, preview, up, down and sweep on a runner, after `make setup`. Exit codes: 0, 1
with one message.
"""

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.operate.gitops import GitopsError, changed, runner
from infra.operate.gitops.github import GitHub
from trainyard.access import markdown, terminal

ARTIFACT = "plan"
DEPLOY = "deploy.yml"
DRIFTED = 2  # exit code of the drift report
# As infra/operate/review marks the page of a stack.
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
    except GitopsError as error:
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
    return _watched(options.title, options.run, options.repair)


def _watched(title: str, command: Sequence[str], repair: str) -> str:
    """Run a command that exits with 0 when all is well; else an issue has its output.

    A stack to repair is deployed again if the command has found drift.
    """
    github = GitHub()  # fails before the work if a variable is missing
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    terminal.pass_on(done.stdout)
    ended = f"{markdown.code(shlex.join(command))} ended with code {done.returncode}."
    page = f"{ended}\n\n{markdown.block(done.stdout)}"
    told = f"issue {github.report(title, page, found=done.returncode != 0)}"
    if not repair or done.returncode != DRIFTED:
        return told
    github.start(DEPLOY, stack=repair)
    return f"{told}; {DEPLOY} begins to repair {repair}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m infra.operate.gitops",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, allow_abbrev=False)

    each = add("changed", "the stacks that a change concerns, as JSON")
    each.add_argument("--base", required=True, help="commit that the change is compared with")
    each.add_argument("--pull", type=int, metavar="NUMBER", help="number of its pull request")
    each.add_argument("stacks", nargs="*", metavar="STACK", help="all stacks")
    each = add("comment", "write or update one comment")
    each.add_argument("number", type=int, help="number of the pull request")
    each.add_argument("page", type=Path, help="Markdown; its first line marks the comment")
    each = add("issue", "keep an issue open while a command fails")
    each.add_argument("--repair", default="", metavar="STACK", help="deploy it after drift")
    each.add_argument("title", help="title of the issue")
    each.add_argument("run", nargs=argparse.REMAINDER, metavar="COMMAND", help="command to run")
    each = add("plan", "run and artifact of a pull request's plan")
    each.add_argument("stack", help="name of the stack")
    each.add_argument("commit", help="commit of the merged pull request")
    each = add("ready", "check a runner, and take its SSH key")
    each.add_argument("states", help="prefix of the states' variables: PULUMI or REVIEW")
    each.set_defaults(act=runner.ready)
    each = add("preview", "save a plan and its page")
    each.add_argument("--unlock", action="store_true", help="first remove a lost runner's lock")
    each.add_argument("--refresh", action="store_true", help="first compare with what runs")
    each.add_argument("stack", help="name of the stack")
    each.add_argument("out", type=Path, help="folder of both")
    each.add_argument("rules", nargs="*", help="options of the engine, after --")
    each.set_defaults(act=runner.plan)
    each = add("up", "bring the stack of a pull request up")
    each.add_argument("number", help="number of the pull request")
    each.add_argument("rules", nargs="*", help="options of the engine, after --")
    each.set_defaults(act=runner.up)
    each = add("down", "end the stack of a pull request")
    each.add_argument("number", help="number of the pull request")
    each.set_defaults(act=runner.down)
    each = add("sweep", "end stacks of pull requests that are over")
    each.set_defaults(act=runner.sweep)
    return parser


if __name__ == "__main__":
    sys.exit(main())
