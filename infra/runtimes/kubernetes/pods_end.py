"""Ends a stack's pods at a time; runs in a pod of the stack, which needs Ray and no other package.

    python pods_end.py SETTINGS

First it has the runs on the cluster store a checkpoint and leave, for at most `drainSeconds`. Then
it deletes what makes pods, and at last what made its own. Claims, Secrets and all other objects
stay, so `up` makes only what is missing. It asks the node's clock each second, and Kubernetes
starts it again where it was killed.
"""

import json
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from typing import Any

FILE = "pods_end.py"
LOOK_SECONDS = 1.0
API_SECONDS = 15.0  # of one request
SERVER = "https://kubernetes.default.svc"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# What the cluster will answer next time, too.
FINAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
JOBS = "/jobs/"  # one that has ended has no pods left to end, and is not run again

Ask = Callable[[str, str], dict[str, Any] | None]


def text() -> str:
    """Return the content of this module's file."""
    return Path(__file__).read_text()


def main(settings: dict[str, Any]) -> None:
    """Wait for the end, then end all."""
    end = datetime.fromisoformat(settings["end"])
    seconds = float(settings["drainSeconds"])
    say(f"the pods of this stack end at {end.astimezone(UTC).isoformat()}")
    wait_until(end.timestamp() - seconds)
    if (left := min(seconds, end.timestamp() - time.time())) > 0:
        say(f"runs store a checkpoint and leave, for at most {left:.0f} s")
        # Whatever becomes of it, and wherever the clock is set meanwhile, the end comes.
        Thread(target=drain, args=(settings["leave"], left), daemon=True).start()
    wait_until(end.timestamp())
    say("the reservation is over: all pods end")
    delete(settings["objects"], ask)


def drain(leave: list[str], seconds: float) -> None:
    """Run the script that has the runs leave; say so if it fails."""
    try:
        subprocess.run([sys.executable, *leave, "drain", f"{seconds:g}"], check=True)
    except (OSError, subprocess.SubprocessError) as error:
        say(f"the workers could not be drained ({error}): runs have their last checkpoints")


def wait_until(moment: float) -> None:
    """Wait until the clock has reached a time, in seconds since 1970."""
    while (left := moment - time.time()) > 0:
        time.sleep(min(left, LOOK_SECONDS))


def delete(paths: list[str], asked: Ask, sleep: Callable[[float], None] = time.sleep) -> None:
    """Delete objects, the last one when all others are deleted; an API that is away is waited for.

    Args:
        paths: where each object is in the API.
        asked: sends a request to the API, as `ask` does. An HTTPError is a refusal; after any other
            error the API is asked again.
        sleep: pauses for so many seconds.
    """
    for path in paths:
        while True:
            try:
                found = asked("GET", path) if JOBS in path else {}
                if found is not None and "completionTime" not in found.get("status", {}):
                    asked("DELETE", path)
            except urllib.error.HTTPError as error:
                if error.code in FINAL:
                    say(f"{path} stays, because this pod has no right to end it: {error}")
                    break
                say(f"{path}: {error}")
            except (OSError, HTTPException, ValueError) as error:  # away, or not an answer of it
                say(f"{path}: {error!r}")
            else:
                break
            sleep(LOOK_SECONDS)


def ask(method: str, path: str) -> dict[str, Any] | None:
    """Send a request to the API, and return its answer; None means that the object is gone."""
    request = urllib.request.Request(  # noqa: S310 - always https
        f"{SERVER}{path}",
        method=method,
        # Read each time: the kubelet renews it.
        headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"},
    )
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=API_SECONDS, context=trusted) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return None
        raise


def say(line: str) -> None:
    """Write a line to the pod's log."""
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC {line}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
