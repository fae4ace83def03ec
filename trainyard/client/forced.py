"""`make up FORCE=1` names the jobs that a new head ends, and asks.

Without FORCE an `up` refuses to restart the head while jobs run. FORCE=yes does not ask.
`make rotate` calls this before it changes anything. Without FORCE it passes `--refuse`.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from trainyard.access.terminal import agree
from trainyard.client import outputs as contract
from trainyard.client import way
from trainyard.client.console import warn
from trainyard.client.dashboard import DashboardError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import JobServer


def main() -> None:
    """Asks; ends with 1 if the user declines or cannot be asked."""
    parser = argparse.ArgumentParser(prog="python -m trainyard.client.forced", description=__doc__)
    parser.add_argument("-s", "--stack", required=True)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--refuse", action="store_true", help="refuse if jobs would end")
    options = parser.parse_args()
    try:
        known = contract.of_state(options.stack)
        with way.tunnel(known, warn) or nullcontext() as opened:
            jobs = JobServer(opened.outputs if opened else known).jobs()
    except (ClientError, DashboardError) as error:
        warn(f"cannot tell which jobs run in stack {options.stack!r} ({error})")
        names = ["all that run there"]
    else:
        names = [job.label for job in jobs if not job.status.ended]
    if not names:
        return
    warn(f"a new head of stack {options.stack!r} ends these jobs: {', '.join(names)}")
    if options.refuse:
        sys.exit("error: wait for them, end them with train stop, or add FORCE=1")
    if options.yes:
        return
    if not sys.stdin.isatty():
        sys.exit("error: nobody can be asked: FORCE=yes goes on without")
    if not agree("Go on?"):
        sys.exit("nothing was changed")


if __name__ == "__main__":
    main()
