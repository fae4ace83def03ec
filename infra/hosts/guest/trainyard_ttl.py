#!/usr/bin/env python3
"""Ends this rented machine at its deadline; cron runs it each minute, as root.

Reads /etc/trainyard/ttl.json: deadline (seconds since 1970), apiUrl, apiKey, instanceId. Warns
everybody who is logged in, and in the log, before. It has the standard library only.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

SETTINGS = Path("/etc/trainyard/ttl.json")
WARNED = Path("/run/trainyard-ttl")  # minutes of the last warning
LOG = Path("/var/log/trainyard-ttl.log")
WARN_MINUTES = (5, 10, 30, 60)
REQUEST_SECONDS = 30


def main() -> int:
    """Warn or end, whichever is due."""
    if not SETTINGS.exists():
        return 0
    settings = json.loads(SETTINGS.read_text())
    left = settings["deadline"] - time.time()
    if left > 0:
        return warn(left / 60)
    request = urllib.request.Request(  # noqa: S310 (written by the stack)
        f"{settings['apiUrl']}/api/v1/instance-operations/terminate",
        data=json.dumps({"instance_ids": [settings["instanceId"]]}).encode(),
        headers={
            "Authorization": f"Bearer {settings['apiKey']}",
            "Content-Type": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:  # noqa: S310
            say(f"the time of this machine is over: terminating it ({answer.status})")
    except urllib.error.HTTPError as error:
        say(f"this machine cannot be terminated ({error.code}); trying again in a minute")
        return 1
    except OSError as error:
        say(f"this machine cannot be terminated ({error}); trying again in a minute")
        return 1
    return 0


def warn(left: float) -> int:
    """Say how many minutes are left, once for each bound."""
    due = [minutes for minutes in WARN_MINUTES if left <= minutes]
    if not due:
        WARNED.unlink(missing_ok=True)  # the deadline may have been put off
        return 0
    if WARNED.exists() and WARNED.read_text() == str(due[0]):
        return 0
    say(f"this machine ends in {left:.0f} minutes: train pull RUN saves a run; or raise ttlHours")
    WARNED.write_text(str(due[0]))
    return 0


def say(text: str) -> None:
    """Tell whoever is logged in, and the log."""
    with LOG.open("a") as log:
        now = datetime.now(timezone.utc)  # noqa: UP017 (machines with Python 3.10 have no UTC)
        log.write(f"{now.isoformat(timespec='seconds')} {text}\n")
    try:
        subprocess.run(["wall", text], check=False)
    except OSError:
        print(text)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
