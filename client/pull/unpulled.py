"""`make down` names runs that end with the machines: `python -m client.pull.unpulled -s lambda`.

It says nothing of stacks without an end time, whose results stay. A store that is gone holds the
destroy up for some seconds, and never keeps it from running.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import TimeoutError as FutureTimeoutError

from client import history, parallel, way
from client import outputs as contract
from client.console import warn
from client.errors import ClientError
from client.pull import marks
from client.store import Store, open_store
from training.checkpoint_files import MANIFEST, PREFIX

DEADLINE_S = 15.0
PAUSE_S = 10  # on a terminal, to think again


def main() -> None:
    """Warns; ends with 130 where the user thinks again."""
    parser = argparse.ArgumentParser(prog="python -m client.pull.unpulled", description=__doc__)
    parser.add_argument("-s", "--stack", required=True)
    stack = parser.parse_args().stack
    try:
        names = parallel.start(_of_stack, stack).result(DEADLINE_S)
    except FutureTimeoutError:
        reason = f"no answer within {DEADLINE_S:g} s"
        warn(f"warning: which runs of stack {stack!r} were not pulled is not known ({reason})")
        return
    except Exception as error:  # whatever it is, the machines must end
        warn(f"warning: which runs of stack {stack!r} were not pulled is not known ({error})")
        return
    except KeyboardInterrupt:
        sys.exit(130)
    if not names:
        return
    warn(
        f"warning: these runs were not pulled, and end with the machines of stack {stack!r}: "
        f"{', '.join(names)}; bring one home with `train pull RUN -s {stack}`"
    )
    if sys.stderr.isatty():
        warn(f"the stack ends in {PAUSE_S} s; Ctrl-C keeps it")
        try:
            time.sleep(PAUSE_S)
        except KeyboardInterrupt:
            sys.exit(130)


def unpulled(store: Store) -> list[str]:
    """Names of the runs of which something was neither pulled nor replicated.

    Raises:
        ClientError: the store cannot be read.
    """
    return [run.name for run in history.list_runs(store) if not _is_home(store, run)]


def _is_home(store: Store, run: history.RunRecord) -> bool:
    """Whether a mark names the newest checkpoint that was stored whole, and all epochs."""
    stored = sorted(name for name in store.folders(run.name) if name.startswith(PREFIX))
    whole = (name for name in reversed(stored) if store.get(f"{run.name}/{name}/{MANIFEST}"))
    mark = marks.Mark(next(whole, ""), len(run.metrics))
    return any(marks.read(store, run.name, name) == mark for name in marks.ALL)


def _of_stack(stack: str) -> list[str]:
    try:
        outputs = contract.read(stack)
    except ClientError:  # it is not up, and destroy says so
        return []
    if outputs.expires_at is None:
        return []
    tunnel = way.tunnel(outputs, warn)
    if tunnel is None:
        return unpulled(open_store(outputs))
    with tunnel as opened:
        return unpulled(open_store(opened.outputs))


if __name__ == "__main__":
    main()
