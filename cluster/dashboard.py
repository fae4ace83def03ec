"""The stack's own Grafana dashboard, as Grafana's JSON.

Every query is on metrics that Ray 2.60 and MinIO really export. What they export but get wrong is
left out: `ray_finished_jobs_total` grows without jobs, `ray_cluster_active_nodes` keeps nodes that
are gone. Ray exports no figure for failed jobs: the Ray dashboard's job list has them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

UID = "trainyard"
COLUMNS = 24  # width of Grafana's grid
ROW_HEIGHT = 1
PANEL_HEIGHT = {"stat": 4, "timeseries": 8}
SCHEMA_VERSION = 41  # of the JSON; Grafana migrates older ones when it loads them
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
RAY_DASHBOARDS = {  # uids of those of Ray's that are looked at most
    "Ray cluster": "rayDefaultDashboard",
    "Ray Train": "rayTrainDashboard",
    "Ray Data": "rayDataDashboard",
}

STORE_PREFIX = "minio_"  # of the names of figures

# A submitted job is an actor of this class: waiting for a node, alive, or dead when it has ended.
JOBS = 'ray_actors{Name="JobSupervisor",Source="gcs",State=~"%s"}'
WAITING = "PENDING_CREATION|DEPENDENCIES_UNREADY"
# Tasks of the jobs themselves, without those of Ray's own that run them.
TASKS = 'ray_tasks{Name!~".*JobSupervisor.*"}'
MIB = 1024 * 1024  # bytes: Ray reports the memory of GPUs in MiB, whatever its help text says


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel.

    Attributes:
        title: unique in the dashboard.
        queries: PromQL by legend.
        unit: Grafana's name of the unit.
        width: of 24 columns.
        kind: "timeseries" or "stat".
        description: shown behind the panel's "i".
        highest: top of the scale; None fits it to the data.
        alarm: value from which a stat turns red; None for one that never does.
        stacked: whether its lines add up.
    """

    title: str
    queries: dict[str, str] = field(default_factory=dict)
    unit: str
    width: int = 8
    kind: str = "timeseries"
    description: str = ""
    highest: float | None = None
    alarm: float | None = None
    stacked: bool = False

    @property
    def is_of_store(self) -> bool:
        """Whether it shows figures of the object store."""
        return any(STORE_PREFIX in query for query in self.queries.values())


def _stat(title: str, query: str, unit: str, **more: Any) -> Panel:
    return Panel(title=title, queries={title: query}, unit=unit, width=4, kind="stat", **more)


def _rate(metric: str, label: str) -> str:
    return f"sum by ({label}) (rate({metric}[$__rate_interval]))"


NODE = '{instance=~"$node"}'
ROWS: tuple[tuple[str, Sequence[Panel]], ...] = (
    (
        "Now",
        (
            _stat("Nodes alive", "count(ray_node_cpu_utilization)", "short"),
            _stat(
                "CPUs in use",
                'sum(ray_resources{Name="CPU",State="USED"})'
                ' / (sum(ray_resources{Name="CPU"}) > 0)',
                "percentunit",
                description="Share of the CPUs that Ray hands out to jobs.",
            ),
            _stat("Jobs running", f"sum({JOBS % 'ALIVE'}) or vector(0)", "short"),
            _stat("Jobs waiting", f"sum({JOBS % WAITING}) or vector(0)", "short"),
            _stat(
                "Object store free",
                "minio_cluster_capacity_usable_free_bytes"
                " / minio_cluster_capacity_usable_total_bytes",
                "percentunit",
            ),
            _stat("Targets down", "count(up == 0) or vector(0)", "short", alarm=1),
        ),
    ),
    (
        "Nodes",
        (
            Panel(
                title="CPU",
                queries={"{{RayNodeType}} {{ip}}": f"ray_node_cpu_utilization{NODE}"},
                unit="percent",
                highest=100,
            ),
            Panel(
                title="Memory",
                queries={
                    "{{RayNodeType}} {{ip}}": f"100 * ray_node_mem_used{NODE}"
                    f" / ray_node_mem_total{NODE}"
                },
                unit="percent",
                highest=100,
            ),
            Panel(
                title="Disk",
                queries={
                    "{{RayNodeType}} {{ip}}": f"100 * ray_node_disk_usage{NODE}"
                    f" / (ray_node_disk_usage{NODE} + ray_node_disk_free{NODE})"
                },
                unit="percent",
                highest=100,
            ),
            Panel(
                title="Nodes alive over time",
                queries={"{{RayNodeType}}": "count by (RayNodeType) (ray_node_cpu_utilization)"},
                unit="short",
                stacked=True,
            ),
            Panel(
                title="Network",
                queries={
                    "in {{ip}}": f"ray_node_network_receive_speed{NODE}",
                    "out {{ip}}": f"ray_node_network_send_speed{NODE}",
                },
                unit="Bps",
            ),
            Panel(
                title="Shared memory for objects",
                queries={
                    "used {{NodeAddress}}": f"ray_object_store_used_memory{NODE}",
                    "free {{NodeAddress}}": f"ray_object_store_available_memory{NODE}",
                },
                unit="bytes",
                description="Ray's own object store in the memory of each node; not MinIO.",
            ),
        ),
    ),
    (
        "Jobs",
        (
            Panel(
                title="Jobs",
                queries={
                    "running": f"sum({JOBS % 'ALIVE'}) or vector(0)",
                    "waiting": f"sum({JOBS % WAITING}) or vector(0)",
                    "ended": f"sum({JOBS % 'DEAD'}) or vector(0)",
                },
                unit="short",
                description="Ended jobs are those that succeeded, failed or were stopped since the "
                "head started: Ray does not tell them apart here, its dashboard does.",
            ),
            Panel(
                title="Tasks",
                queries={"{{State}}": f"clamp_min(sum by (State) ({TASKS}), 0)"},
                unit="short",
                description="Tasks and actor calls of all jobs by state.",
            ),
            Panel(
                title="Worker processes lost",
                queries={
                    "{{NodeAddress}}": "sum by (NodeAddress)"
                    " (ray_node_manager_unexpected_worker_failure_total)",
                    "all nodes": "sum(ray_node_manager_unexpected_worker_failure_total)"
                    " or vector(0)",
                },
                unit="short",
                description="Processes that ended unexpectedly, killed by the kernel for instance.",
            ),
            Panel(
                title="CPUs handed out",
                queries={
                    "in use": 'sum(ray_resources{Name="CPU",State="USED"})',
                    "of": 'sum(ray_resources{Name="CPU"})',
                },
                unit="short",
            ),
            Panel(
                title="GPUs handed out",
                queries={
                    "in use": 'sum(ray_resources{Name="GPU",State="USED"}) or vector(0)',
                    "of": 'sum(ray_resources{Name="GPU"}) or vector(0)',
                },
                unit="short",
            ),
            Panel(
                title="Actors",
                queries={"{{State}}": 'sum by (State) (ray_actors{Source="gcs"})'},
                unit="short",
            ),
        ),
    ),
    (
        "GPUs",
        (
            Panel(
                title="GPU utilization",
                queries={
                    "{{ip}} GPU {{GpuIndex}} {{GpuDeviceName}}": f"ray_node_gpus_utilization{NODE}"
                },
                unit="percent",
                highest=100,
                description="Empty where no node has a GPU.",
            ),
            Panel(
                title="GPU memory",
                queries={
                    "used {{ip}} GPU {{GpuIndex}}": f"ray_node_gram_used{NODE} * {MIB}",
                    "free {{ip}} GPU {{GpuIndex}}": f"ray_node_gram_available{NODE} * {MIB}",
                },
                unit="bytes",
                description="Empty where no node has a GPU.",
            ),
            Panel(
                title="GPU power",
                queries={"{{ip}} GPU {{GpuIndex}}": f"ray_node_gpu_power_milliwatts{NODE} / 1000"},
                unit="watt",
                width=4,
                description="Empty where no GPU reports it.",
            ),
            Panel(
                title="GPU temperature",
                queries={"{{ip}} GPU {{GpuIndex}}": f"ray_node_gpu_temperature_celsius{NODE}"},
                unit="celsius",
                width=4,
                description="Empty where no GPU reports it.",
            ),
        ),
    ),
    (
        "Object store",
        (
            Panel(
                title="Capacity",
                queries={
                    "used": "minio_cluster_capacity_usable_total_bytes"
                    " - minio_cluster_capacity_usable_free_bytes",
                    "of": "minio_cluster_capacity_usable_total_bytes",
                },
                unit="bytes",
            ),
            Panel(
                title="Requests",
                queries={"{{api}}": _rate("minio_s3_requests_total", "api")},
                unit="reqps",
            ),
            Panel(
                title="Errors",
                queries={
                    "4xx {{api}}": _rate("minio_s3_requests_4xx_errors_total", "api"),
                    "5xx {{api}}": _rate("minio_s3_requests_5xx_errors_total", "api"),
                    "rejected": _rate("minio_s3_requests_rejected_auth_total", "job"),
                },
                unit="reqps",
                description="4xx is mostly a look for what is not there; rejected ones had no "
                "valid key.",
            ),
        ),
    ),
    (
        "Checkpoints",
        (
            Panel(
                title="Traffic of the bucket",
                queries={
                    "written {{bucket}}": _rate("minio_bucket_traffic_received_bytes", "bucket"),
                    "read {{bucket}}": _rate("minio_bucket_traffic_sent_bytes", "bucket"),
                },
                unit="Bps",
            ),
            Panel(
                title="Written and read so far",
                queries={
                    "written {{bucket}}": "sum by (bucket) (minio_bucket_traffic_received_bytes)",
                    "read {{bucket}}": "sum by (bucket) (minio_bucket_traffic_sent_bytes)",
                },
                unit="bytes",
                description="Since MinIO started.",
            ),
            Panel(
                title="Size of the bucket",
                queries={"{{bucket}}": "sum by (bucket) (minio_bucket_usage_total_bytes)"},
                unit="bytes",
                description="As MinIO's scanner counted it last, a minute or more ago.",
            ),
        ),
    ),
    (
        "Monitoring",
        (
            Panel(
                title="Targets",
                queries={
                    "{{job}} up": "count by (job) (up == 1)",
                    "{{job}} down": "count by (job) (up == 0)",
                },
                unit="short",
            ),
            Panel(
                title="Time to scrape",
                queries={"{{job}}": "max by (job) (scrape_duration_seconds)"},
                unit="s",
            ),
            Panel(
                title="Samples scraped",
                queries={"{{job}}": "sum by (job) (scrape_samples_scraped)"},
                unit="short",
            ),
        ),
    ),
)


def dashboard(ray_dashboard_url: str, *, of_store: bool) -> dict[str, Any]:
    """Return the dashboard.

    Args:
        ray_dashboard_url: URL of the Ray dashboard, for browsers.
        of_store: whether Prometheus has figures of the object store.
    """
    links = [_link("Ray dashboard", ray_dashboard_url, keep_time=False)]
    links += [_link(title, f"/d/{uid}", keep_time=True) for title, uid in RAY_DASHBOARDS.items()]
    return {
        "uid": UID,
        "title": "Trainyard",
        "description": "Nodes, jobs, GPUs, object store and checkpoints of this stack.",
        "tags": ["trainyard"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,  # one crosshair for all panels
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": links,
        "annotations": {"list": []},
        "templating": {"list": [_datasource_variable(), _node_variable()]},
        "panels": _panels(of_store=of_store),
    }


def _panels(*, of_store: bool) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for title, every in ROWS:
        members = [panel for panel in every if of_store or not panel.is_of_store]
        if not members:
            continue
        grid = {"h": ROW_HEIGHT, "w": COLUMNS, "x": 0, "y": y}
        row = {"type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []}
        panels.append({"id": len(panels) + 1, **row})
        y += ROW_HEIGHT
        x = 0
        for panel in members:
            if x + panel.width > COLUMNS:
                x, y = 0, y + PANEL_HEIGHT[panel.kind]
            grid = {"h": PANEL_HEIGHT[panel.kind], "w": panel.width, "x": x, "y": y}
            panels.append({"id": len(panels) + 1, "gridPos": grid, **_panel(panel)})
            x += panel.width
        y += PANEL_HEIGHT[members[-1].kind]
    return panels


def _panel(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarm is not None:
        steps.append({"color": "red", "value": panel.alarm})
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.highest is not None:
        defaults["max"] = panel.highest
    if panel.kind == "stat":
        options: dict[str, Any] = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "area",
            "textMode": "value",
            "justifyMode": "auto",
            "orientation": "auto",
        }
    else:
        options = {
            "legend": {
                "calcs": ["lastNotNull", "max"],
                "displayMode": "table",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
        stacking = {"group": "A", "mode": "normal" if panel.stacked else "none"}
        defaults["custom"] = {"fillOpacity": 10, "showPoints": "never", "stacking": stacking}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATASOURCE,
                "expr": query,
                "legendFormat": legend,
                "range": True,
                "instant": False,
            }
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _link(title: str, url: str, *, keep_time: bool) -> dict[str, Any]:
    return {
        "type": "link",
        "title": title,
        "url": url,
        "icon": "external link",
        "tooltip": "",
        "tags": [],
        "asDropdown": False,
        "targetBlank": True,
        "includeVars": False,
        "keepTime": keep_time,
    }


def _datasource_variable() -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
        "hide": 2,  # there is only one
        "refresh": 1,
    }


def _node_variable() -> dict[str, Any]:
    query = "label_values(ray_node_cpu_utilization, instance)"
    return {
        "type": "query",
        "name": "node",
        "label": "Node",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "node"},
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,  # at each change of the time range: nodes come and go
        "sort": 1,
    }
