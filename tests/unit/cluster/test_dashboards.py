"""The stack's own dashboard against Grafana's requirements."""

import itertools
import json
from typing import Any

import pytest

from cluster import dashboard

# Each takes a JSON apart into Grafana's own generated models and puts it together again.
models = pytest.importorskip(
    "grafana_foundation_sdk.models.dashboard",
    reason="the package grafana-foundation-sdk is not installed: make setup",
)
cog = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
PANELS = {
    kind: pytest.importorskip(f"grafana_foundation_sdk.models.{kind}")
    for kind in ("timeseries", "stat")
}
RAY_DASHBOARDS = {"rayDefaultDashboard", "rayTrainDashboard", "rayDataDashboard"}
URL = "http://host.example:8265"


@pytest.fixture(params=[True, False], ids=["store", "no-store"])
def board(request) -> dict[str, Any]:
    made = dashboard.dashboard(URL, of_store=request.param)
    text: dict[str, Any] = json.loads(json.dumps(made))
    return text


def _panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def _lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Return the parts that a model did not take over; parts that it adds are defaults."""
    if isinstance(given, dict):
        return [
            fault
            for key, value in given.items()
            for fault in (
                _lost(value, kept[key], f"{path}.{key}")
                if isinstance(kept, dict) and key in kept
                else [f"{path}.{key}"]
            )
        ]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(kept) != len(given):
            return [path]
        pairs = enumerate(zip(given, kept, strict=True))
        return [fault for i, (a, b) in pairs for fault in _lost(a, b, f"{path}[{i}]")]
    return [] if given == kept else [f"{path}: {given!r} != {kept!r}"]


def _again(model: Any, given: dict[str, Any]) -> Any:
    read = model.from_json(given)
    return json.loads(json.dumps(read, cls=cog.JSONEncoder))


def test_it_fits_grafanas_schema(board):
    assert _lost(board, _again(models.Dashboard, board)) == []
    for panel in _panels(board):
        module = PANELS[panel["type"]]
        options = panel["options"]
        assert _lost(options, _again(module.Options, options), panel["title"]) == []
        if custom := panel["fieldConfig"]["defaults"].get("custom"):
            assert _lost(custom, _again(module.FieldConfig, custom), panel["title"]) == []


def test_the_comparison_finds_what_the_schema_lacks(board):
    wrong = {**board, "colour": "red", "links": [{**board["links"][0], "tagz": []}]}
    assert _lost(wrong, _again(models.Dashboard, wrong)) == [".links[0].tagz", ".colour"]


def test_ids_titles_and_uids_are_unique(board):
    ids = [panel["id"] for panel in board["panels"]]
    titles = [panel["title"] for panel in _panels(board)]
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 1  # Grafana takes 0 for none
    assert len(set(titles)) == len(titles)
    for panel in _panels(board):
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
    assert board["uid"] == "trainyard"
    linked = [link["url"] for link in board["links"][1:]]
    assert sorted(linked) == sorted(f"/d/{uid}" for uid in RAY_DASHBOARDS)


def test_panels_fill_the_grid_without_overlap(board):
    cells = []
    for panel in board["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= dashboard.COLUMNS, panel["title"]
        cells += itertools.product(
            range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"])
        )
    assert len(set(cells)) == len(cells)
    bottom = max(y for _, y in cells) + 1
    # No holes either, but behind the first line where "Object store free" is left out of it.
    whole = any(panel["title"] == "Object store free" for panel in board["panels"])
    assert len(cells) == bottom * dashboard.COLUMNS - (0 if whole else 4 * 4)


def test_every_panel_asks_the_one_data_source(board):
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    sources = [panel["datasource"] for panel in _panels(board)]
    sources += [target["datasource"] for panel in _panels(board) for target in panel["targets"]]
    sources += [variables["node"]["datasource"]]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


def test_every_query_has_a_legend(board):
    for panel in _panels(board):
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert all(legends), panel["title"]
        assert len(set(legends)) == len(legends), panel["title"]


def test_every_panel_has_a_unit(board):
    units = {panel["fieldConfig"]["defaults"]["unit"] for panel in _panels(board)}
    # Names of Grafana's value formats; an unknown one would be written behind the number.
    known = {"short", "percent", "percentunit", "bytes", "Bps", "reqps", "watt", "celsius", "s"}
    assert units <= known


def test_the_file_is_as_grafanas_editor_saves_it():
    text = dashboard.FILE.read_text(encoding="utf-8")
    saved = json.loads(text)
    # Sorted keys: a saved dashboard differs only in its changes.
    assert text.rstrip() == json.dumps(saved, indent=2, sort_keys=True, ensure_ascii=False)
    assert "id" not in saved  # of one Grafana's database
    assert not saved["editable"]  # what is changed in the stack's Grafana ends with it
    rows = [panel for panel in saved["panels"] if panel["type"] == "row"]
    # A folded row holds its panels itself, where none would be left out for want of a store.
    assert not any(row["collapsed"] or row["panels"] for row in rows)


def test_only_the_address_of_the_ray_dashboard_differs_from_the_file():
    saved = json.loads(dashboard.FILE.read_text(encoding="utf-8"))
    assert saved["links"][0]["title"] == "Ray dashboard"
    assert saved["links"][0]["url"] == "http://127.0.0.1:8265"  # of a stack without settings
    saved["links"][0]["url"] = URL
    assert dashboard.dashboard(URL, of_store=True) == saved


def test_without_a_store_the_panels_that_stay_differ_in_number_and_place_only():
    def shown(*, of_store: bool) -> dict[str, Any]:
        made = dashboard.dashboard(URL, of_store=of_store)["panels"]
        return {(panel["type"], panel["title"]): {**panel, "id": 0, "gridPos": 0} for panel in made}

    every, some = shown(of_store=True), shown(of_store=False)
    assert {key: every[key] for key in some} == some


def test_panels_of_a_store_without_figures_are_left_out():
    every = dashboard.dashboard(URL, of_store=True)["panels"]
    some = dashboard.dashboard(URL, of_store=False)["panels"]
    assert "minio_" in json.dumps(every)
    assert "minio_" not in json.dumps(some)
    rows = [panel["title"] for panel in some if panel["type"] == "row"]
    assert rows == ["Now", "Nodes", "Jobs", "GPUs", "Monitoring"]
    left = {panel["title"] for panel in every} - {panel["title"] for panel in some}
    assert {"Object store", "Checkpoints", "Object store free", "Capacity"} <= left
