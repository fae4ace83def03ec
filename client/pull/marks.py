"""Which runs are at home: a mark in the store, which each machine and `make down` can see."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from client.store import Store

MARK = "pulled.json"


@dataclass(frozen=True)
class Mark:
    """What of a run was pulled last, by whoever.

    Attributes:
        checkpoint: its name; "" where the run had none.
        epochs: records in the run's metrics.
    """

    checkpoint: str
    epochs: int

    def dump(self) -> bytes:
        """As it lies in the store."""
        return json.dumps(asdict(self)).encode()


def read(store: Store, run: str) -> Mark | None:
    """The mark of a run; None where it has none that can be read.

    Raises:
        ClientError: the store cannot be read.
    """
    try:
        found = json.loads(store.get(f"{run}/{MARK}") or b"null")
        return Mark(str(found["checkpoint"]), int(found["epochs"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
