#!/usr/bin/env python3
"""Ends this rented machine at its deadline, or when idle; cron runs it each minute, as root.

Reads /etc/trainyard/ttl.json: deadline (seconds since 1970), apiUrl, apiKey, instanceId, and with
idleEnd also idle: url and token of who knows whether the cluster is idle
(cluster/idle_watch.py), and last, whether this is the machine that it runs on. Without an answer
the deadline counts. Warns everybody who is logged in, and in the log, before. It has the standard
library only.
"""

import contextlib
import http.client
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

SETTINGS = Path("/etc/trainyard/ttl.json")
WARNED = Path("/run/trainyard-ttl")  # minutes of the last warning
LOG = Path("/var/log/trainyard-ttl.log")
ENDING = Path("/run/trainyard-ttl-ending")  # the cluster is idle: who knew may be gone by now
IDLE_WARNED = Path("/run/trainyard-ttl-idle")
IDLE_WARN_SECONDS = 300
WARN_MINUTES = (5, 10, 30, 60)
REQUEST_SECONDS = 30
NO_ANSWER = (OSError, http.client.HTTPException)
ANSWER_BYTES = 4 * 2**20  # of the idle watch; a job may listen in its place


def main() -> int:
    """Warn or end, whichever is due."""
    if not SETTINGS.exists():
        return 0
    settings = json.loads(SETTINGS.read_text())
    left = settings["deadline"] - time.time()
    if left <= 0:
        return end(settings, "the time of this machine is over")
    over = is_over(settings.get("idle"))
    if over or (over is None and ENDING.exists()):
        with contextlib.suppress(OSError):
            ENDING.touch()
        return end(settings, "the cluster is idle")
    if over is False:
        ENDING.unlink(missing_ok=True)  # it could not be ended, and somebody works again
    return warn(left / 60)


def is_over(idle: "dict[str, Any] | None") -> "bool | None":
    """Ask whether the cluster is idle for long enough; say so some minutes before.

    None stands for no answer.
    """
    if not idle:
        return None
    try:
        request = urllib.request.Request(  # noqa: S310 (written by the stack)
            idle["url"], headers={"Authorization": f"Bearer {idle['token']}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=REQUEST_SECONDS) as answer:
            found = json.loads(answer.read(ANSWER_BYTES))
        over, ends_in = found["end_head" if idle["last"] else "end"], found["ends_in"]
        soon = ends_in is not None and ends_in <= IDLE_WARN_SECONDS
    except (*NO_ANSWER, ValueError, LookupError, TypeError, RecursionError):
        return None
    if not soon:
        IDLE_WARNED.unlink(missing_ok=True)
    elif not IDLE_WARNED.exists():
        minutes = max(0, ends_in) / 60
        say(f"the cluster is idle and ends in {minutes:.0f} minutes: train keep 2h puts it off")
        with contextlib.suppress(OSError):
            IDLE_WARNED.touch()
    return over is True


def end(settings: "dict[str, Any]", why: str) -> int:
    """Terminate this machine."""
    request = urllib.request.Request(  # noqa: S310 (written by the stack)
        f"{settings['apiUrl']}/api/v1/instance-operations/terminate",
        data=json.dumps({"instance_ids": [settings["instanceId"]]}).encode(),
        headers={
            "Authorization": f"Bearer {settings['apiKey']}",
            "Content-Type": "application/json",
            "User-Agent": "trainyard",  # some gates in front of an API refuse urllib's own
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:  # noqa: S310
            say(f"{why}: terminating it ({answer.status})")
    except urllib.error.HTTPError as error:
        say(f"this machine cannot be terminated ({error.code}); trying again in a minute")
        return 1
    except NO_ANSWER as error:
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
    say(f"this machine ends in {left:.0f} minutes: train pull RUN saves a run; or set a later end")
    with contextlib.suppress(OSError):
        WARNED.write_text(str(due[0]))
    return 0


def say(text: str) -> None:
    """Tell all users who are logged in, and the log."""
    now = datetime.now(timezone.utc)  # noqa: UP017 (machines with Python 3.10 have no UTC)
    # A disk that is full keeps no machine from its end.
    with contextlib.suppress(OSError), LOG.open("a") as log:
        log.write(f"{now.isoformat(timespec='seconds')} {text}\n")
    try:
        subprocess.run(["wall", text], check=False)
    except OSError:
        print(text)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
