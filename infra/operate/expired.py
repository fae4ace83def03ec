"""`python -m infra.operate.expired`: the stacks of this project past their ttlHours, a line each.

It changes nothing, and asks no account: `python -m infra.operate.reap` says whether their machines
have ended.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from infra.operate import arguments, backend, states
from trainyard.access import terminal


def main() -> int:
    """Print the names; return 1 when a state cannot be read."""

    def act() -> int:
        terminal.print_value("\n".join(stacks(backend.project_folder(), datetime.now(UTC))))
        return 0

    return arguments.run(act)


def stacks(folder: Path, now: datetime) -> list[str]:
    """Return the names of a project's stacks that are past their time.

    Raises:
        pulumi.RunError: a state, or their place, cannot be read.
    """
    project = backend.project(folder)["name"]
    found = states.read_stacks(folder, backend.find(folder))
    return [
        each.name
        for each in found
        if each.project == project and each.expires and each.expires <= now
    ]


if __name__ == "__main__":
    sys.exit(main())
