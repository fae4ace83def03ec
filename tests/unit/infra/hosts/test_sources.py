"""Sources of machines: the modules that may know them, and their cost to stacks without one."""

import ast
import subprocess
import sys
from pathlib import Path

import yaml

from infra.hosts import sources
from infra.reader import Reader

ROOT = Path(__file__).resolve().parents[4]
FOLDERS = ("infra.hosts.lambda_cloud", "infra.hosts.ssh")
# Each joins a source and the settings of the stack.
PLACES = {folder: ROOT / folder.replace(".", "/") / "place.py" for folder in FOLDERS}


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_the_list_of_sources_imports_one():
    found = set()
    for path in (ROOT / "infra").rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        package = path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        if package not in FOLDERS and any(each.startswith(FOLDERS) for each in _imported(path)):
            found.add(name)
    assert found == {"infra/hosts/sources.py"}


def test_no_source_imports_another_or_the_settings_of_the_stack():
    for folder in FOLDERS:
        others = (*(other for other in FOLDERS if other != folder), "infra.config")
        for path in {*(ROOT / folder.replace(".", "/")).glob("*.py")} - {PLACES[folder]}:
            assert not any(each.startswith(others) for each in _imported(path)), path


def test_a_stack_of_this_machine_pays_for_no_client_of_an_api():
    check = "import sys, infra.target, infra.runtimes.process; sys.exit('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False)
    assert done.returncode == 0


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
