"""Lines of a session's log for the client: one JSON object each.

session: {"event": "ended", "run": 2, "code": 1, "seconds": 0.41}
"""

import json
from typing import Any

MARK = "session: "
READY = "ready"  # torch and Ray are imported
STARTED = "started"  # a run; `run` is its number from 1
ENDED = "ended"  # a run; `code` is its exit code, None if another run replaced it
DEBUGGER = "debugger"  # a run waits for one; at `host` and `port` of the cluster, in `folder`

# Fields of each record. Any job can print such a line: without a field, it is output.
FIELDS: dict[str, dict[str, type | tuple[type, ...]]] = {
    READY: {},
    STARTED: {"run": int},
    ENDED: {"run": int, "code": (int, type(None)), "seconds": (int, float)},
    DEBUGGER: {"host": str, "port": int, "folder": str},
}


def print_record(event: str, **fields: Any) -> None:
    """Prints a record."""
    print(f"{MARK}{json.dumps({'event': event, **fields})}", flush=True)  # noqa: T201 - the job's log


def parse(line: str) -> dict[str, Any] | None:
    """Return the record of a line; None if it has none."""
    if not line.startswith(MARK):
        return None
    try:
        found = json.loads(line.removeprefix(MARK))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(event := found.get("event"), str):
        return None
    fields = FIELDS.get(event)
    if fields is None or not found.keys() >= fields.keys():
        return None
    fits = all(isinstance(found[name], kind) for name, kind in fields.items())
    return found if fits and (event != DEBUGGER or 0 < found["port"] < 2**16) else None
