"""The long tests can be imported: one that cannot takes its whole part of CI with it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_long_test_is_collected():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "tests/integration"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
