"""`python -m tests.fakes.machines` makes the parts of machines: then no test waits for them."""

import sys
from pathlib import Path

from tests.fakes.machines import root, uv_cache

HOST = Path(__file__).parents[3] / "requirements" / "host.txt"


def main() -> int:
    """Make the root file systems and fetch a host's packages into this machine's uv cache."""
    try:
        for packages in (root.PACKAGES, root.WITH_DOCKER):
            with root.held(packages):
                pass
    except root.NoMachinesError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    uv_cache.fill(HOST)
    return 0


sys.exit(main())
