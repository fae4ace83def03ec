"""`python -m infra.operate.manifests -s STACK`: a stack on Kubernetes as YAML.

No cluster is asked and nothing is changed there. Exit codes: 0, 1 when the stack has no manifests.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from infra.operate import arguments
from infra.operate.manifests import files, program
from trainyard.access import terminal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = arguments.parser("infra.operate.manifests", __doc__)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--to", type=Path, help="folder for one file per object (default: stdout)")
    way.add_argument("--helm-values", action="store_true", help="values for KubeRay's chart")
    options = parser.parse_args(argv)

    def act() -> int:
        found = program.run(options.stack, options.cwd.resolve())
        if options.helm_values:
            text = files.values(options.stack, found)
        elif options.to:
            names = files.write(options.stack, found, options.to)
            text = "".join(f"wrote {options.to / name}\n" for name in names)
        else:
            text = files.stream(options.stack, found)
        terminal.print_value(text, end="")
        return 0

    return arguments.run(act, options.stack)


if __name__ == "__main__":
    sys.exit(main())
