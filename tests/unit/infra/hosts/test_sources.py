"""Sources of machines: their settings, and their cost to stacks without one."""

import subprocess
import sys
from pathlib import Path

import yaml

from infra.hosts import sources
from infra.reader import Reader

ROOT = Path(__file__).resolve().parents[4]


OF_OTHERS = "{'asyncssh', 'httpx', 'lightkube', 'pulumi_docker'} & {*sys.modules}"


def test_a_stack_of_this_machine_pays_for_no_client_of_an_api():
    check = f"import sys; from infra import places; [*places.modules('place')]; print({OF_OTHERS})"
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_every_source_has_its_own_settings_and_properties():
    schema = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    assert set(schema) >= sources.KEYS
    assert sources.CLOUDS
    for field in ("title", "api_key", "instance", "module"):
        names = {getattr(cloud, field) for cloud in sources.CLOUDS}
        assert len(names) == len(sources.CLOUDS)
    for source in sources.SOURCES:
        assert str(schema[source.setting]["default"]) == source.nothing


def test_a_setting_that_is_left_out_or_empty_asks_for_nothing():
    for source in sources.SOURCES:
        for raw in ({}, {source.setting: ""}, {source.setting: f" {source.nothing} "}):
            assert not source.asked(Reader(raw))
            assert sources.renting(Reader(raw)) == ""
    assert sources.renting(Reader({"lambdaCloud": '{"gpus": 1}', "hosts": "[]"})) == "lambdaCloud"
    assert sources.renting(Reader({"lambdaCloud": "{}", "hosts": "[{}]"})) == ""
