"""Which runs are at home or copied: marks in the store, where `make down` looks too."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from client.store import Store

MARK = "pulled.json"
REPLICATED = "replicated.json"  # by the service that copies (cluster/replicate.py)
ALL = (MARK, REPLICATED)


@dataclass(frozen=True)
class Mark:
    """What of a run was pulled or copied last, by whoever.

    Attributes:
        checkpoint: its name; "" where the run had none.
        epochs: records in the run's metrics.
    """

    checkpoint: str
    epochs: int

    def dump(self) -> bytes:
        """As it lies in the store."""
        return json.dumps(asdict(self)).encode()


def read(store: Store, run: str, name: str = MARK) -> Mark | None:
    """A mark of a run; None where it has none that can be read.

    Args:
        store: of the stack.
        run: its name.
        name: of the mark.

    Raises:
        ClientError: the store cannot be read.
    """
    try:
        found = json.loads(store.get(f"{run}/{name}") or b"null")
        return Mark(str(found["checkpoint"]), int(found["epochs"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
