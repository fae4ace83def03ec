"""The shelf: its machines are the files in its folder."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pulumi

from infra.machines import identity
from infra.machines.holdings import INSTANCE, Holding

PRICE = 1.5  # $/h of a machine


def folder() -> Path:
    if "SHELF" not in os.environ:
        raise pulumi.RunError("no shelf: set SHELF to its folder")
    return Path(os.environ["SHELF"])


def machines() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in folder().iterdir()}


def put(machine: str, content: dict[str, Any]) -> None:
    (folder() / f"{machine}.json").write_text(json.dumps(content))


class ShelfAccount:
    """All machines on the shelf; see holdings.Account."""

    def __init__(self, _key: str | None) -> None:
        folder()

    def holdings(self) -> list[Holding]:
        return [
            Holding(
                kind=INSTANCE,
                id=machine,
                name=machine,
                type="file",
                price=PRICE,
                **identity.fields(content["tags"] | {identity.END: content["end"]}),
            )
            for machine, content in machines().items()
        ]

    def is_gone(self, instance: str) -> bool:
        return instance not in machines()

    def end(self, instances: Sequence[str]) -> None:
        for machine in instances:
            (folder() / f"{machine}.json").unlink(missing_ok=True)
