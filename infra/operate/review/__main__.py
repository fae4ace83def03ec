"""`python -m infra.operate.review -s STACK PLAN`: a planned change as a page; nothing is changed.

`train preview --plan FILE` makes it. Exit codes: 0, 1 when a mandatory rule refuses the plan, or it
cannot be read.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.operate import arguments
from infra.operate.review import page
from infra.operate.review.planned import read_stack_plan
from trainyard.access import terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    return arguments.run(lambda: _run(options), options.stack)


def _run(options: argparse.Namespace) -> int:
    rules = options.policy_pack, options.policy_pack_config
    planned = read_stack_plan(options.cwd.resolve(), options.stack, options.plan, *rules)
    text = page.to_json(planned) if options.json else page.to_markdown(planned)
    terminal.print_value(text, end="")
    return int(page.is_refused(planned))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("infra.operate.review", __doc__)
    parser.add_argument("plan", type=Path, help="file that `train preview --plan` wrote")
    parser.add_argument("-j", "--json", action="store_true", help="print JSON, not Markdown")
    parser.add_argument("--policy-pack", type=Path, help="folder of rules to apply")
    parser.add_argument("--policy-pack-config", type=Path, help="JSON file of levels")
    return parser


if __name__ == "__main__":
    sys.exit(main())
