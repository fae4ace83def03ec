"""The results that a stack on this machine leaves when it is down."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from trainyard.access import outputs as names
from trainyard.access import user
from trainyard.client import fields
from trainyard.client import outputs as contract
from trainyard.client.console import warn
from trainyard.client.errors import DownError
from trainyard.client.outputs import StackOutputs


def read(stack: str | None, file: Path | None) -> StackOutputs:
    """Return the outputs of a stack; if it is down, no more than where it has left its results.

    Raises:
        DownError: it is down, and no results are on this machine.
        ClientError: as `outputs.read`.
    """
    try:
        return contract.read(stack, file)
    except DownError:
        if (found := of_stack(contract.chosen(stack))) is None:
            raise
        where = unquote(urlsplit(found.storage_url).path)
        warn(f"stack {found.stack!r} is down: what follows is in {where}, which it has left")
        return found


def of_stack(stack: str) -> StackOutputs | None:
    """Return where a stack that is down has left its results; None without any on this machine."""
    folder = _results(stack)
    if folder is None:
        return None
    known = {names.PROJECT: stack, names.STACK: stack, names.STORAGE_URL: folder.as_uri()}
    return contract.parse(json.dumps({**names.NOTHING, **known}), stack, str(folder))


def _results(stack: str) -> Path | None:
    """Return the folder of the results of a stack of this machine; None where none is."""
    from trainyard.access import settings_file  # noqa: PLC0415 - PyYAML is slow

    given: dict[str, Any] = {}
    with suppress(OSError, *fields.FAULTS):  # `up` says what is wrong with the settings
        content = settings_file.read(contract.checkout() / f"Pulumi.{stack}.yaml")
        given = {key.rpartition(":")[2]: value for key, value in content["config"].items()}
    if given.get("hosts"):
        return None
    default = user.folder("XDG_DATA_HOME", ".local/share") / "trainyard" / stack
    folder = Path(given.get("dataDir") or default) / "storage"
    return folder if folder.is_dir() else None
