"""Every query of every Grafana dashboard on the Prometheus of a running stack.

Grafana itself does not run: its variables are filled in here as it does.
"""

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ray.job_submission import JobSubmissionClient

from cluster import dashboard, grafana, monitoring
from tests import waiting

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RAY_FILES = {
    "data_grafana_dashboard.json",
    "data_llm_grafana_dashboard.json",
    "default_grafana_dashboard.json",
    "serve_deployment_grafana_dashboard.json",
    "serve_grafana_dashboard.json",
    "serve_llm_grafana_dashboard.json",
    "serve_llm_sglang_grafana_dashboard.json",
    "train_grafana_dashboard.json",
}
OWN = "trainyard"
RANGE_SECONDS, STEP_SECONDS = 1800, 15
DATA_SECONDS = 180  # MinIO counts what a bucket holds about once a minute
SCRAPE_SECONDS = int(monitoring.SCRAPE_INTERVAL.removesuffix("s"))

# Panels of Ray's default dashboard that have to show something while a job runs.
CORE = {
    "Node Count",
    "Cluster Utilization",
    "Node CPU Usage",
    "Node CPU Usage %",
    "Node Memory Usage (heap + object store)",
    "Node Disk Usage",
    "Node Network",
    "Logical CPUs Usage",
    "Object Store Memory Usage",
    "All Tasks by State",
    "Active Tasks by Name",
    "Running Tasks by Name",
    "All Actors by State",
    "Alive Actors by Name",
}
# In the stack's own dashboard all do, except these queries: they are about GPUs and trouble.
EMPTY = {
    ("Targets", "{{job}} down"),
    ("Errors", "5xx {{api}}"),
    ("Worker processes lost", "{{NodeAddress}}"),
}
# Panels of the Overview that the course looks at.
COURSE = Path(__file__).parents[3] / "docs/course.md"
OVERVIEW = re.findall(r"^\| Overview \| ([\w ]+) \|", COURSE.read_text(), re.MULTILINE)
# Panels that the Ray dashboard frames: its pages have the uids and numbers built in.
FRAMED = {
    "rayDefaultDashboard": {24, 41},
    "rayServeDashboard": {7, 8, 15, 20, 21, 22, 23, 24, 25},
    "rayServeDeploymentDashboard": {2, 3, 5},
}
# A variable as Grafana writes it: $name, ${name}, ${name:format}, [[name]] or [[name:format]].
VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}|\[\[(\w+)(?::\w+)?\]\]")
JOB = """
import os, time
import boto3, ray
from botocore.exceptions import ClientError

ray.init()
s3, bucket = boto3.client("s3"), os.environ["TRAINYARD_STORAGE_URL"].removeprefix("s3://")

@ray.remote(num_cpus=1)
def busy():
    time.sleep(0.5)

@ray.remote(num_cpus=0)
class Counter:
    def count(self):
        return 1

counter = Counter.remote()
while True:
    s3.put_object(Bucket=bucket, Key="dashboards/test", Body=b"x" * 100_000)
    s3.get_object(Bucket=bucket, Key="dashboards/test")["Body"].read()
    try:
        s3.get_object(Bucket=bucket, Key="dashboards/none")
    except ClientError:
        pass
    ray.get([counter.count.remote(), busy.remote()])
"""


class QueryError(Exception):
    """Prometheus refused a query."""


@dataclass(frozen=True)
class Prometheus:
    """The Prometheus of a stack, asked as Grafana asks it."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        return self._ask("query", query=expression)["result"]

    def over_time(self, expression: str) -> list[dict[str, Any]]:
        end = time.time()
        return self._ask(
            "query_range",
            query=expression,
            start=str(end - RANGE_SECONDS),
            end=str(end),
            step=str(STEP_SECONDS),
        )["result"]

    def label_values(self, label: str, selector: str | None) -> list[str]:
        match = {"match[]": selector} if selector else {}
        values: list[str] = self._ask(f"label/{label}/values", method="GET", **match)
        return values

    def _ask(self, path: str, method: str = "POST", **parameters: str) -> Any:
        encoded = urllib.parse.urlencode(parameters)
        url, body = f"{self.url}/api/v1/{path}", encoded.encode()
        if method == "GET":
            url, body = f"{url}?{encoded}", None
        try:
            with urllib.request.urlopen(url, data=body, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise QueryError(json.load(error)["error"]) from None


def _walk(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """All panels, including panels inside of folded rows."""
    for panel in panels:
        yield panel
        yield from _walk(panel.get("panels", []))


def _targets(board: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    panels = list(_walk(board["panels"]))
    repeated = [panel["title"] for panel in panels if panel.get("repeat")]
    assert not repeated, f"repeated panels have variables of their own: {repeated}"
    return [(panel, target) for panel in panels for target in panel.get("targets", [])]


def _fill_in(text: str, variables: dict[str, str]) -> str:
    """Replace variables by their values; one that is not known is an error."""

    def value(found: re.Match[str]) -> str:
        name = next(group for group in found.groups() if group)
        if name not in variables:
            raise QueryError(f"no variable {name} for {text}")
        return variables[name]

    return VARIABLE.sub(value, text)


def _builtin() -> dict[str, str]:
    look_back = max(STEP_SECONDS + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)
    return {
        "__interval": f"{STEP_SECONDS}s",
        "__interval_ms": str(STEP_SECONDS * 1000),
        "__range": f"{RANGE_SECONDS}s",
        "__range_s": str(RANGE_SECONDS),
        "__range_ms": str(RANGE_SECONDS * 1000),
        "__rate_interval": f"{look_back}s",
    }


def _variables(board: dict[str, Any], source: Prometheus) -> dict[str, str]:
    """Fill in a dashboard's variables: all values where that is a choice, or the first one."""
    filled = _builtin()
    for variable in board["templating"]["list"]:
        kind, query = variable["type"], variable.get("query")
        if kind == "datasource":
            value = grafana.DATASOURCE
        elif variable.get("includeAll"):
            value = variable.get("allValue") or ".*"
        elif kind == "query":
            text = query if isinstance(query, str) else query["query"]
            found = re.fullmatch(r"label_values\((?:(.+),\s*)?(\w+)\)", _fill_in(text, filled))
            assert found, f"a kind of variable that is not known here: {query}"
            value = source.label_values(found[2], found[1])[0]
        else:
            assert kind in {"custom", "interval"}, kind
            value = str(variable["current"]["value"])
        filled[variable["name"]] = value
    return filled


def _faults(board: dict[str, Any], source: Prometheus) -> list[str]:
    """Run all queries of a dashboard; Prometheus' errors for the refused ones."""
    faults = []
    variables = _variables(board, source)
    for panel, target in _targets(board):
        try:
            run = source.query if target.get("instant") else source.over_time
            run(_fill_in(target["expr"], variables))
        except QueryError as error:
            faults.append(f"{panel['title']}: {error}")
    return faults


def _without_data(
    board: dict[str, Any], source: Prometheus
) -> tuple[set[str], set[tuple[str, str]]]:
    """Return panels, and single queries, that have nothing to show now."""
    variables = _variables(board, source)
    empty, filled = set(), set()
    for panel, target in _targets(board):
        if source.query(_fill_in(target["expr"], variables)):
            filled.add(panel["title"])
        else:
            empty.add((panel["title"], target["legendFormat"]))
    return {panel["title"] for panel, _ in _targets(board)} - filled, empty


@pytest.fixture(scope="module")
def stack(stack_with_minio) -> Any:
    return stack_with_minio


@pytest.fixture(scope="module")
def outputs(stack) -> dict[str, Any]:
    result: dict[str, Any] = stack.outputs()
    return result


@pytest.fixture(scope="module")
def prometheus(outputs) -> Prometheus:
    return Prometheus(outputs["prometheusUrl"])


@pytest.fixture(scope="module")
def boards(stack, outputs) -> dict[str, dict[str, Any]]:
    """Every dashboard: the running head's, and the stack's own."""
    head = stack.folder / "ray-head" / "ray" / "session_latest"
    files = (head / "metrics" / "grafana" / "dashboards").iterdir()
    found: dict[str, dict[str, Any]] = {file.name: json.loads(file.read_text()) for file in files}
    return found | {OWN: dashboard.dashboard(outputs["dashboardUrl"], of_store=True)}


@pytest.fixture(scope="module")
def job(outputs, tmp_path_factory) -> Iterator[None]:
    """A job that is busy until the tests are over."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.py").write_text(JOB)
    headers = {"Authorization": f"Bearer {outputs['rayToken']}"}
    jobs = JobSubmissionClient(outputs["dashboardUrl"], headers=headers)
    job = jobs.submit_job(entrypoint="python job.py", runtime_env={"working_dir": str(folder)})
    yield
    assert jobs.get_job_status(job) == "RUNNING", jobs.get_job_logs(job)
    jobs.stop_job(job)
    waiting.wait_for("the job's end", lambda: jobs.get_job_status(job).is_terminal(), 30)


def test_every_dashboard_is_looked_at(boards):
    assert set(boards) == RAY_FILES | {OWN}
    uids = [board["uid"] for board in boards.values()]
    assert len(set(uids)) == len(uids)


@pytest.mark.parametrize("name", sorted(RAY_FILES | {OWN}))
@pytest.mark.usefixtures("job")
def test_prometheus_understands_every_query(boards, prometheus, name):
    assert _targets(boards[name])
    assert _faults(boards[name], prometheus) == []


def _wait_for_all(wait_for: Callable[..., Any], missing: Callable[[], set[Any]]) -> None:
    """Wait until nothing is missing; name what still is."""
    found: set[Any] = set()

    def complete() -> bool:
        nonlocal found
        found = missing()
        if found:
            time.sleep(1)  # to ask everything takes longer than the usual pause between two looks
        return not found

    try:
        wait_for(complete, DATA_SECONDS)
    except TimeoutError:
        pytest.fail(f"without data: {sorted(found)}")


@pytest.mark.usefixtures("job")
def test_core_panels_have_data(boards, prometheus, wait_for):
    board = boards["default_grafana_dashboard.json"]
    assert {panel["title"] for panel, _ in _targets(board)} >= CORE
    _wait_for_all(wait_for, lambda: CORE & _without_data(board, prometheus)[0])


@pytest.mark.usefixtures("job")
def test_every_query_of_the_stacks_own_dashboard_has_data(boards, prometheus, wait_for):
    gpus = {
        (panel["title"], target["legendFormat"])
        for panel, target in _targets(boards[OWN])
        if panel["title"].startswith("GPU ")
    }
    _wait_for_all(wait_for, lambda: _without_data(boards[OWN], prometheus)[1] - gpus - EMPTY)


@pytest.mark.usefixtures("job")
def test_the_stacks_own_dashboard_says_what_is_so(boards, prometheus, wait_for):
    variables = _variables(boards[OWN], prometheus)
    queries = {
        (panel["title"], target["legendFormat"]): _fill_in(target["expr"], variables)
        for panel, target in _targets(boards[OWN])
    }

    def value(title: str, legend: str) -> float:
        return sum(float(found["value"][1]) for found in prometheus.query(queries[title, legend]))

    wait_for(lambda: value("Jobs running", "Jobs running") >= 1, 60)
    wait_for(lambda: value("Written and read so far", "written {{bucket}}") >= 100_000, 60)
    wait_for(lambda: value("Targets down", "Targets down") == 0, 60)
    assert value("Nodes alive", "Nodes alive") == 2
    assert 0 < value("Object store free", "Object store free") < 1


@pytest.mark.skipif(not shutil.which("chromium"), reason="chromium is not on PATH")
def test_the_page_of_a_built_prometheus_draws_a_query_and_the_panels(prometheus, tmp_path):
    # The address that links of alerts have.
    address = f"{prometheus.url}/graph?g0.expr=ray_node_mem_used"
    with urllib.request.urlopen(address, timeout=10) as answer:
        if b"/assets/dashboard.json" not in answer.read():
            pytest.skip("this Prometheus is not built here, and has its makers' page")
    waiting.wait_for("memory", lambda: prometheus.query("ray_node_mem_used"), 60)
    options = ("--headless", "--no-sandbox", f"--user-data-dir={tmp_path}", "--dump-dom")
    done = subprocess.run(
        # Virtual time stands still while requests are answered.
        ["chromium", *options, "--virtual-time-budget=5000", address],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    shown = done.stdout.partition("<main>")[2].partition("</main>")[0]
    titles = re.split("<h2>(.*?)</h2>", shown)
    sections = dict(zip(titles[1::2], titles[2::2], strict=True))
    assert '<polyline points="' in sections["Query"], shown
    assert '<polyline points="' in sections["Nodes"], shown
    assert re.search(r"None of \d+ rules|<td>", sections["Alerts"]), shown
    assert 'class="trouble"' not in shown


def test_what_the_ray_dashboard_frames_is_there(boards):  # D12
    panels = {
        board["uid"]: {panel["id"] for panel in _walk(board["panels"])} for board in boards.values()
    }
    for uid, framed in FRAMED.items():
        assert framed <= panels[uid], uid
    (ray,) = [board for board in boards.values() if board["uid"] == "rayDefaultDashboard"]
    overview = {each["title"] for each in _walk(ray["panels"]) if each["id"] in FRAMED[ray["uid"]]}
    assert {*OVERVIEW} == overview  # D49
    assert {*OVERVIEW} <= CORE
    linked = {link["url"] for link in boards[OWN]["links"] if link["url"].startswith("/")}
    assert linked
    assert linked <= {f"/d/{uid}" for uid in panels}
