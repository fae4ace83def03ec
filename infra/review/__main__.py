"""`python -m infra.review -s STACK PLAN`: a planned change as a page; nothing is changed.

`preview --save-plan` makes the plan. Exit codes: 0, 1 when a mandatory rule refuses the plan, or it
cannot be read.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra import arguments
from infra.review import page
from infra.review.planned import ReviewError, read
from trainyard.access import terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    try:
        planned = read(
            options.cwd.resolve(),
            options.stack,
            options.plan,
            options.policy_pack,
            options.policy_pack_config,
        )
    except ReviewError as error:
        terminal.warn(f"error: {error}", options.stack)
        return 1
    terminal.print_value(
        page.to_json(planned) if options.json else page.to_markdown(planned), end=""
    )
    return int(page.refused(planned))


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("infra.review", __doc__)
    parser.add_argument("plan", type=Path, help="file that preview --save-plan wrote")
    parser.add_argument("-j", "--json", action="store_true", help="print JSON, not Markdown")
    parser.add_argument("--policy-pack", type=Path, help="folder of rules to apply")
    parser.add_argument("--policy-pack-config", type=Path, help="JSON file of levels")
    return parser


if __name__ == "__main__":
    sys.exit(main())
