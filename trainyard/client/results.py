"""The results of a run at its job's end: accuracies as a table, and the picture."""

from __future__ import annotations

import os
from pathlib import Path

from trainyard import run_folder
from trainyard.client import history
from trainyard.client.console import print_table, say, warn
from trainyard.client.errors import ClientError
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import open_store
from trainyard.objects import Store

ACCURACIES = {
    "train_acc": "training",
    "valid_acc": "validation",
    "test_acc": "test",
}


def tell(outputs: StackOutputs, name: str) -> None:
    """Prints the table of a run and the path of its curves; nothing for a job without a run."""
    if outputs.keeps_files_away or not outputs.storage_url:
        return
    try:
        store = open_store(outputs)
        run = history.find_run(store, name)
        if run is None or not run.metrics:
            return
        rows = [
            {"epoch": history.epochs(run, number)}
            | {
                title: f"{epoch[key]:.1%}"
                for key, title in ACCURACIES.items()
                if isinstance(epoch.get(key), float)
            }
            for number, epoch in enumerate(run.metrics, start=1)
        ]
        print_table(rows, tuple(dict.fromkeys(key for row in rows for key in row)), as_json=False)
        picture = _save_curves(store, name)
    except (ClientError, OSError) as error:
        warn(f"warning: no table of run {name}: {error}; see train show {name}")
        return
    if picture is not None:
        say(f"curves: {picture}")


def _save_curves(store: Store, name: str) -> Path | None:
    """The picture as a file of this machine; None if the run has none."""
    content = store.get(f"{name}/{run_folder.CURVES}")
    if content is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # as the specification has it
        cache = Path.home() / ".cache"
    path = cache / "trainyard" / "curves" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
