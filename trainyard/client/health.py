"""What is wrong with the services of a stack: one question for all commands, asked where one fails.

Programs of this machine are looked at here, in a tenth of a second. `infra.operate.drift` answers
for all others, and says what is wrong, as a process: it loads Pulumi and asks the stack's places.
"""

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from trainyard.access import repository
from trainyard.client import outputs as contract
from trainyard.client.outputs import StackOutputs

LIMIT_S = 120  # machines that do not answer take their time
KEPT_S = 15.0  # pages ask again and again
ILL = 2  # its exit code

_asking = threading.Lock()
_kept: dict[tuple[Path, str], tuple[float, list[str] | None]] = {}


def of(outputs: StackOutputs) -> list[str] | None:
    """Return what is wrong, a line for each service; None where that is not known.

    So it is of an attached cluster, and of outputs from a file: their stack may be another one.
    """
    return None if outputs.folder is None else ask(outputs.folder, outputs.stack)


def ask(folder: Path, stack: str) -> list[str] | None:
    """Return the same of a stack of a project's folder; an answer counts for some seconds."""
    with _asking:  # requests that fail together ask once
        until, found = _kept.get((folder, stack), (0.0, None))
        if time.monotonic() >= until:
            found = _ask(folder, stack) if repository.is_checkout() else None
            _kept[folder, stack] = time.monotonic() + KEPT_S, found
        return found


def remedy(outputs: StackOutputs) -> str:
    """Return what to do if a part of the cluster does not answer."""
    if outputs.attached:
        return f"start that Ray, or change its address with `train attach -s {outputs.stack}`"
    found = of(outputs)
    if found is None:
        return "run `make up`"
    if not found:
        return "its services run, so it is busy or has just restarted: try again in a moment"
    return f"{'; '.join(found)}. Mend that, then `make up` brings it back"


def _ask(folder: Path, stack: str) -> list[str] | None:
    contract.checkout_first()
    with suppress(Exception):  # whatever goes wrong, the process below says it in one line
        from infra.operate import health  # noqa: PLC0415 - with psutil and the engine

        if health.all_well(folder, stack):
            return []
    question = [sys.executable, "-P", "-m", "infra.operate.drift", "--health"]
    try:
        done = contract.run_in_checkout([*question, "-C", str(folder), "-s", stack], LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.splitlines() if done.returncode in (0, ILL) else None
