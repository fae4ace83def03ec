"""The results of a run at its job's end: accuracies as a table, and the picture."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainyard.access import user
from trainyard.access.bounded import MIB
from trainyard.access.outputs import TRACKING_URL
from trainyard.client import history
from trainyard.client.console import print_table, say, warn
from trainyard.client.errors import ClientError, writing
from trainyard.client.history import RunRecord
from trainyard.client.outputs import StackOutputs
from trainyard.client.store import open_store
from trainyard.json_values import number
from trainyard.report import curves
from trainyard.store.objects import Store
from trainyard.tracking import run_folder

MOST_STEPS = 12  # in a table
USED = ("what", "peak", "mean", "over time")
OF_JOB = ("CPU", "memory", "GPU", "GPU memory")  # figures of what a run has used; others: machines'
SPEEDS = ("disk read", "disk written", "sent", "received")
MOST_USED = 200  # figures
BARS, WIDTH = "▁▂▃▄▅▆▇█", 30  # of a curve
ACCURACIES = {"train_acc": "training", "valid_acc": "validation", "test_acc": "test"}


def tell(outputs: StackOutputs, name: str) -> None:
    """Prints the table of a run and the path of its curves; nothing for a job without a run."""
    if not outputs.shows_runs:
        return
    try:
        store = open_store(outputs)
        run = history.find_run(store, name)
        if run is None or not run.metrics:
            return
        print_table(*table(run), as_json=False)
        picture = _cache(name)
        save_curves(store, run, picture)
    except (ClientError, OSError, ModuleNotFoundError) as error:  # a client may lack matplotlib
        warn(f"warning: no results of run {name}: {error}; see train show {name}")
        return
    home = Path.home()
    say(f"curves: {f'~/{picture.relative_to(home)}' if picture.is_relative_to(home) else picture}")


def table(
    run: RunRecord, most: int = history.MOST_FIGURES
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return rows and columns of a run's figures: each epoch, or some of the steps it logged."""
    numbered = [*enumerate(run.metrics, start=1)]
    every = 1 if run.epochs else -(-len(numbered) // MOST_STEPS) or 1
    chosen = numbered[::-every][::-1]  # with the last one
    first = "epoch" if run.epochs else "step"
    found = history.figures(run.metrics, most)
    names = [*filter(found.__contains__, ACCURACIES), *(n for n in found if n not in ACCURACIES)]
    rows = [
        {first: history.epochs(run, number) if run.epochs else row.get("step", "")}
        | {ACCURACIES.get(name, name): _shown(name, row.get(name)) for name in names}
        for number, row in chosen
    ]
    return rows, [first, *(ACCURACIES.get(name, name) for name in names)]


def best(run: RunRecord) -> str:
    """Return a run's best value and its epoch or step; "" without one."""
    if not (found := history.best(run)):
        return ""
    at = next(iter(run_folder.best_first(run.metrics, run.goals)))
    row = run.metrics[at]
    return f"{found}, {curves.along(row)} {curves.epoch_of(row, at)}"


def used(run: RunRecord) -> list[dict[str, str]]:
    """Return rows by USED: peak, mean and curve of each figure in what a run has used."""
    found = []
    for name in dict.fromkeys([*OF_JOB, *history.figures(run.usage, MOST_USED)]):
        known = [number(row.get(name)) for row in run.usage]
        if values := [value for value in known if value is not None and value >= 0]:
            every, most = -(-len(values) // WIDTH), max(values)
            peaks = [max(values[first : first + every]) for first in range(0, len(values), every)]
            curve = "".join(BARS[int(peak / (most or 1) * (len(BARS) - 1))] for peak in peaks)
            amounts = (_amount(name, each) for each in (most, sum(values) / len(values)))
            found.append(dict(zip(USED, (name, *amounts, curve), strict=True)))
    return found


def peaks(use: Iterable[Mapping[str, str]]) -> str:
    """Return what the jobs of a run have used at most, of the rows of `used`."""
    return ", ".join(f"{row['what']} {row['peak']}" for row in use if row["what"] in OF_JOB)


def _amount(name: str, value: float) -> str:
    if name.endswith(("CPU", "GPU")):
        return f"{value:.1f}" if name == "CPU" else f"{value:.0f} %"
    if name.endswith(SPEEDS):
        return f"{value / MIB:.1f} MiB/s"
    return f"{value / MIB / 1024:.2f} GiB"


def _shown(name: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return ""
    return f"{value:.1%}" if name in ACCURACIES and isinstance(value, float) else f"{value:.4g}"


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
    picture = picture or curves.of_run(run.name, run.config, run.metrics, run.goals)
    with writing(target, "name another file"):
        target.write_bytes(picture)


def tracked_at(outputs: StackOutputs, store: Store, name: str) -> str:
    """Return the address of a run's page in the stack's MLflow; "" without one."""
    url = next((each.url for each in outputs.services if each.output == TRACKING_URL), "")
    ids = tracked_ids(store, name) if url else []
    return f"{url}/#/experiments/{ids[0]}/runs/{ids[1]}" if ids else ""


def tracked_ids(store: Store, name: str) -> list[str]:
    """Return the ids of a run's experiment and of its run in MLflow; none without them."""
    [known] = run_folder.whole_records(store.get(f"{name}/{run_folder.TRACKED}"))[:1] or [{}]
    ids = [str(known.get(key, "")) for key in ("experiment_id", "run_id")]
    # Anyone can write the file.
    return ids if all(re.fullmatch(r"[0-9a-z]{1,64}", each) for each in ids) else []


def _cache(name: str) -> Path:
    """Return the file of this machine for a run's picture, in a folder that exists."""
    path = user.folder("XDG_CACHE_HOME", ".cache") / "trainyard" / "curves" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
