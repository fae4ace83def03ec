"""Marks of pulled and copied runs in the store, where `make down` looks too."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from trainyard.client import fields
from trainyard.resume.checkpoint_files import PREFIX
from trainyard.store.objects import Store

MARK = "pulled.json"
REPLICATED = "replicated.json"  # by the service that copies (node/replicate.py)
ALL = (MARK, REPLICATED)


@dataclass(frozen=True)
class PullMark:
    """The part of a run that was pulled or copied last, by any user."""

    checkpoint: str  # its name; "" where the run had none
    epochs: int  # records in the run's metrics
    # number of files of a search's trials; a search has no checkpoint or epochs before it ends
    files: int = 0

    def dump(self) -> bytes:
        """Return the mark as the store has it."""
        return json.dumps(asdict(self)).encode()


def inner(names: Iterable[str]) -> int:
    """Return the number of files in a run's folders, not checkpoints (node/replicate.py too)."""
    return sum(
        len(parts) > 1 and not any(part.startswith((".", PREFIX)) for part in parts)
        for parts in (name.split("/") for name in names)
    )


def read(store: Store, run: str, name: str = MARK) -> PullMark | None:
    """Return a mark of a run; None if it has no readable one.

    Raises:
        ClientError: the store cannot be read.
    """
    try:
        found = json.loads(store.get(f"{run}/{name}") or b"null")
        return PullMark(str(found["checkpoint"]), int(found["epochs"]), int(found["files"]))
    except fields.FAULTS:
        return None
