"""The stack's own Grafana dashboard: dashboard.json, adapted to the stack.

Every query is on metrics that Ray 2.60 and MinIO really export. Metrics that they get wrong are
left out: `ray_finished_jobs_total` grows without jobs, `ray_cluster_active_nodes` keeps nodes that
are gone. Ray exports no figure for failed jobs: the Ray dashboard's job list has them. A submitted
job is an actor JobSupervisor, whose tasks are not the job's own. Ray reports the memory of GPUs in
MiB, whatever its help text says.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("dashboard.json")  # as Grafana's editor saves it
COLUMNS = 24  # width of Grafana's grid
STORE_PREFIX = "minio_"  # of the names of its metrics


def dashboard(ray_dashboard_url: str, *, of_store: bool) -> dict[str, Any]:
    """Return the dashboard, which links to Ray's, and may have figures of the object store."""
    board: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    board["links"][0]["url"] = ray_dashboard_url
    if not of_store:
        board["panels"] = _without_store(board["panels"])
    return board


def _without_store(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return panels and rows that show something without a store's figures, moved together."""
    shown = [panel for panel in panels if STORE_PREFIX not in str(panel.get("targets"))]
    pairs = pairwise([*shown, {"type": "row"}])  # a row is empty if a row follows
    kept = [panel for panel, after in pairs if not panel["type"] == after["type"] == "row"]
    x = y = height = 0
    for number, panel in enumerate(kept, start=1):
        grid = panel["gridPos"]
        if x + grid["w"] > COLUMNS:
            x, y = 0, y + height
        panel["id"] = number
        grid["x"], grid["y"], height = x, y, grid["h"]
        x += grid["w"]
    return kept
