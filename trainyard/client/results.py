"""The results of a run at its job's end: accuracies as a table, and the picture."""

from __future__ import annotations

import re
from pathlib import Path

from trainyard.access import user
from trainyard.access.outputs import TRACKING_URL
from trainyard.client import history
from trainyard.client.console import print_table, say, warn
from trainyard.client.errors import ClientError, writing
from trainyard.client.history import RunRecord
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import open_store
from trainyard.report import curves
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

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
        picture = _cache(name)
        save_curves(store, run, picture)
    except (ClientError, OSError, ModuleNotFoundError) as error:  # a client may lack matplotlib
        warn(f"warning: no results of run {name}: {error}; see train show {name}")
        return
    home = Path.home()
    say(f"curves: {f'~/{picture.relative_to(home)}' if picture.is_relative_to(home) else picture}")


def save_curves(store: Store, run: RunRecord, target: Path) -> None:
    """Writes the picture of a run to a file as PNG.

    A run that has ended has one in the store, and a search while it runs too. That of another run
    is drawn here.

    Raises:
        ClientError: the run has no epoch yet, the file's name ends for another format, or it cannot
            be written.
    """
    if target.suffix.lower() != ".png":
        raise ClientError(f"curves are a PNG image: name the file {target.stem}.png, not {target}")
    picture = store.get(f"{run.name}/{run_folder.CURVES}")
    if picture is None and not run.metrics:
        raise ClientError(f"run {run.name!r} has no epoch to draw yet: `train logs {run.name} -f`")
    picture = picture or curves.of_run(run.name, run.config, run.metrics)
    with writing(target, "name another file"):
        target.write_bytes(picture)


def tracked_at(outputs: StackOutputs, store: Store, name: str) -> str:
    """Return the address of a run's page in the stack's MLflow; "" without one."""
    url = next((each.url for each in outputs.services if each.output == TRACKING_URL), "")
    content = store.get(f"{name}/{run_folder.TRACKED}") if url else None
    [known] = run_folder.whole_records(content)[:1] or [{}]
    ids = [str(known.get(key, "")) for key in ("experiment_id", "run_id")]
    if not all(re.fullmatch(r"[0-9a-z]{1,64}", each) for each in ids):  # anyone can write the file
        return ""
    return f"{url}/#/experiments/{ids[0]}/runs/{ids[1]}"


def _cache(name: str) -> Path:
    """Return the file of this machine for a run's picture, in a folder that exists."""
    path = user.folder("XDG_CACHE_HOME", ".cache") / "trainyard" / "curves" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
