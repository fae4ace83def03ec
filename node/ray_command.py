"""The program `ray` without the commands that no node needs, which a node runs in its place.

They load pandas, FastAPI and more: 1.5 of the 1.8 s of a processor that `ray start` needs to load,
and 75 MB for as long as the node runs. Ray itself goes on without what it cannot load.

This module is a file of every node that the stack starts, and needs only Ray.
"""

import sys

FILE = "ray_command.py"
# Modules of `ray serve`, `ray list` and `ray job`.
UNUSED = ("ray.serve.scripts", "ray.util.state.state_cli", "ray.dashboard.modules.job.cli")


def main() -> None:
    """Run the command line."""
    for name in UNUSED:
        sys.modules[name] = None  # type: ignore[assignment]
    # Not at the top: it would load them, and a stack's program reads this module without Ray.
    from ray.scripts import scripts  # noqa: PLC0415

    scripts.cli(prog_name="ray")


if __name__ == "__main__":
    main()
