"""When an alert fires, and Alertmanager's configuration."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import alerting
from cluster.alerting import Alerting, AlertingArgs
from tests import promtools

HOOK = "https://chat.example/hooks/canary"
WELL = {f'ray_node_cpu_utilization{{instance="{node}"}}': "5x120" for node in "abc"}


def test_the_webhook_is_a_secret(runtime: Any, deploy: Callable[..., Any]) -> None:  # F35
    args = AlertingArgs(runtime=runtime, port=9093, webhook=HOOK)

    def program() -> Any:
        declared = Alerting("alerting", args)
        return [declared.url, dict(runtime.placed["alertmanager"].secrets)]

    url, secrets = deploy(program)
    assert url == "http://host.example:9093"
    assert HOOK in secrets["alertmanager.yml"]
    service = runtime.placed["alertmanager"]
    assert "canary" not in f"{service.arguments} {service.environment} {service.files}"
    # It looks for no other Alertmanagers.
    assert "--cluster.listen-address=" in service.arguments


@promtools.needs("amtool")
def test_alertmanager_accepts_its_configuration(tmp_path: Path) -> None:
    config = tmp_path / "alertmanager.yml"
    config.write_text(alerting.configuration(HOOK))
    done = subprocess.run(
        [promtools.find("amtool"), "check-config", str(config)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@promtools.needs("promtool")
@pytest.mark.parametrize(
    ("series", "minute", "names"),
    [
        (WELL, 60, []),
        ({}, 5, ["RayHeadDown"]),
        # A node's figures end with it.
        ({**WELL, 'ray_node_cpu_utilization{instance="c"}': "5x9 stale"}, 10, []),
        ({**WELL, 'ray_node_cpu_utilization{instance="c"}': "5x9 stale"}, 11, ["RayNodeDown"]),
        (
            {
                **WELL,
                'ray_node_manager_unexpected_worker_failure_total{instance="a"}': "_x4 1x60",
            },
            6,
            ["RayWorkerProcessLost"],
        ),
        (
            {
                **WELL,
                'ray_node_manager_unexpected_worker_failure_total{instance="a"}': "0x4 1x60",
            },
            20,
            [],
        ),
        (
            {
                **WELL,
                'ray_node_disk_free{instance="b"}': "9x60",
                'ray_node_disk_usage{instance="b"}': "91x60",
            },
            6,
            ["DiskAlmostFull"],
        ),
        (
            {
                **WELL,
                'ray_node_mem_used{instance="b"}': "96x60",
                'ray_node_mem_total{instance="b"}': "100x60",
            },
            6,
            ["MemoryAlmostFull"],
        ),
        ({**WELL, 'ray_node_gpus_utilization{instance="a"}': "1x130"}, 119, ["GpusIdle"]),
        ({**WELL, 'ray_node_gpus_utilization{instance="a"}': "80 1x130"}, 59, []),
    ],
)
def test_an_alert_fires_when_it_should(
    tmp_path: Path, series: dict[str, str], minute: int, names: list[str]
) -> None:
    (tmp_path / "rules.yml").write_text(alerting.rules(3))
    every = [rule["alert"] for rule in yaml.safe_load(alerting.rules(3))["groups"][0]["rules"]]
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
    done = subprocess.run(
        [promtools.find("promtool"), "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
