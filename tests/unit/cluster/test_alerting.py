"""When an alert fires, and Alertmanager's configuration."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import alerting
from cluster.alerting import Alerting
from tests import promtools, ran
from tests.unit.cluster.conftest import stack

HOOK = "https://chat.example/hooks/canary"


def _of(figure: str, node: str = "b") -> str:
    return f'ray_node_{figure}{{instance="{node}"}}'


WELL = {_of("cpu_utilization", node): "5x120" for node in "abc"}
LOST = _of("manager_unexpected_worker_failure_total")


def test_the_webhook_is_a_secret(runtime, deploy):  # F35
    made = stack(runtime, of_services={alerting.WEBHOOK: HOOK})

    def program() -> Any:
        declared = Alerting("alerting", made)
        return [declared.url, dict(runtime.placed["alertmanager"].secrets)]

    url, secrets = deploy(program)
    assert url == "http://host.example:9093"
    assert HOOK in secrets["alertmanager.yml"]
    service = runtime.placed["alertmanager"]
    assert "canary" not in f"{service.arguments} {service.environment} {service.files}"
    # It looks for no other Alertmanagers.
    assert "--cluster.listen-address=" in service.arguments


@promtools.needs("amtool")
def test_alertmanager_accepts_its_configuration(tmp_path):
    config = tmp_path / "alertmanager.yml"
    config.write_text(alerting.configuration(HOOK))
    ran.output([promtools.find("amtool"), "check-config", config])


@promtools.needs("promtool")
@pytest.mark.parametrize(
    ("series", "minute", "names"),
    [
        (WELL, 60, []),
        ({}, 5, ["RayHeadDown"]),
        # A node's figures end with it.
        ({**WELL, _of("cpu_utilization", "c"): "5x9 stale"}, 10, []),
        ({**WELL, _of("cpu_utilization", "c"): "5x9 stale"}, 11, ["RayNodeDown"]),
        ({**WELL, LOST: "_x4 1x60"}, 6, ["RayWorkerProcessLost"]),
        ({**WELL, LOST: "0x4 1x60"}, 20, []),
        ({**WELL, _of("disk_free"): "9x60", _of("disk_usage"): "91x60"}, 6, ["DiskAlmostFull"]),
        ({**WELL, _of("mem_used"): "96x60", _of("mem_total"): "100x60"}, 6, ["MemoryAlmostFull"]),
        ({**WELL, _of("gpus_utilization"): "1x130"}, 119, ["GpusIdle"]),
        ({**WELL, _of("gpus_utilization"): "80 1x130"}, 59, []),
        ({**WELL, "trainyard_ends_idle_seconds": "300x60"}, 9, []),
        ({**WELL, "trainyard_ends_idle_seconds": "300x5 290x60"}, 9, ["StackEndsIdle"]),  # B27
    ],
)
def test_an_alert_fires_when_it_should(tmp_path, series, minute, names):
    _check(tmp_path, alerting.rules(3, ""), series, minute, names)


@promtools.needs("promtool")
@pytest.mark.parametrize(("minute", "names"), [(89, []), (91, ["StackEndsSoon"])])
def test_half_an_hour_before_the_end_is_an_alert(tmp_path, minute, names):  # D3
    rules = alerting.rules(3, "1970-01-01T02:00:00+00:00")  # the test's clock begins in 1970
    _check(tmp_path, rules, WELL, minute, names)


def _check(
    tmp_path: Path, rules: str, series: dict[str, str], minute: int, names: list[str]
) -> None:
    (tmp_path / "rules.yml").write_text(rules)
    every = [rule["alert"] for rule in yaml.safe_load(rules)["groups"][0]["rules"]]
    given = [{"series": name, "values": values} for name, values in series.items()]
    query = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names]
    assert set(names) <= set(every)
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": given,
                "promql_expr_test": [
                    {"expr": query, "eval_time": f"{minute}m", "exp_samples": samples}
                ],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    ran.output([promtools.find("promtool"), "test", "rules", "test.yml"], cwd=tmp_path)
