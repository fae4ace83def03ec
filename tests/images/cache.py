"""Puts the object stores' programs of the images that tests use into the cache of stacks.

They are built of the same sources with the same flags, and building them takes minutes each.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from infra.machines import go_build
from infra.machines.go_programs import STORES


def main() -> int:
    """Copy each program out of its image."""
    for name, program in STORES.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / name
            container = _docker("create", f"trainyard-test/{name}")
            try:
                _docker("cp", f"{container}:/usr/local/bin/{name}", str(copy))
            finally:
                _docker("rm", container)
            go_build.adopt(copy, program.path)
    return 0


def _docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
