"""A place that the product does not know: a folder, and a line in the list of places."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import quick, ran
from tests.fakes import shelf

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[3]
RULES = str(ROOT / "infra/operate/policy")
ADDED = {"shelf": {"type": "object", "default": {}}, "shelfKey": {"type": "string", "default": ""}}
WANTED = {"machines": 2, "maxHourlyCost": 4, "ttlHours": 2}


class Project:
    """A project with a stack on a shelf."""

    def __init__(self, base: Path) -> None:
        self.folder, self.shelf = base / "project", base / "shelf"
        self.shelf.mkdir()
        (self.folder / "infra").mkdir(parents=True)
        shutil.copy(ROOT / "infra/__main__.py", self.folder / "infra")
        shutil.copytree(ROOT / "tests/fakes/shelf", self.folder / "infra/shelf")
        document = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
        document["config"] |= ADDED
        (self.folder / "Pulumi.yaml").write_text(yaml.safe_dump(document))
        self.set()
        self.variables = {
            "PULUMI_BACKEND_URL": f"file://{base}/backend",
            "PULUMI_CONFIG_PASSPHRASE": "not a secret",
            "SHELF": str(self.shelf),
        }
        (base / "backend").mkdir()

    def set(self, **changes: Any) -> None:
        settings = {"shelf": WANTED | changes, "allowedCidrs": ["10.1.0.0/16"], "owner": "ada"}
        document = {"config": {f"trainyard:{key}": value for key, value in settings.items()}}
        (self.folder / "Pulumi.test.yaml").write_text(yaml.safe_dump(document))

    def run(self, module: str, *arguments: str, code: int = 0) -> str:
        """Run a command with the place registered; its standard output."""
        command = shelf.registered(self.folder / "infra", quick.module(module))
        # Lambda Cloud has no account here.
        mine = {key: value for key, value in os.environ.items() if not key.startswith("LAMBDA")}
        done = ran.run(
            [sys.executable, *command, "-C", self.folder, *arguments],
            cwd=ROOT,
            env=mine | self.variables,
        )
        assert done.returncode == code, done.stdout + done.stderr
        self.said = done.stdout + done.stderr
        return done.stdout

    def drift(self) -> dict[tuple[str, str], str]:
        document = json.loads(self.run("infra.operate.drift", "-s", "test", "--json", code=2))
        assert document["failures"] == []
        return {(each["layer"], each["name"]): each["found"] for each in document["findings"]}

    def machines(self) -> list[Path]:
        return sorted(self.shelf.iterdir())


def test_a_sixth_place_is_a_folder_and_a_line(tmp_path):
    project = Project(tmp_path)
    here = ("-s", "test")
    # Priced and judged in the preview, as a page for a review: nothing is made.
    plan = str(tmp_path / "plan.json")
    project.run("engine", "preview", *here, "--save-plan", plan, "--policy-pack", RULES)
    page = json.loads(
        project.run("infra.operate.review", *here, plan, "--json", "--policy-pack", RULES)
    )
    costs = {"before": 0.0, "after": 3.0, "total": 6.0, "budget": 0.0, "month": None}
    assert page["cost"] == costs
    assert page["listening"]["after"] == {"shelf-firewall": ["ports 22 to 22 from 10.1.0.0/16"]}
    assert page["policies"] == []
    assert project.machines() == []
    # The rules refuse a place that never ends and has no bound.
    project.set(ttlHours=0, maxHourlyCost=0)
    project.run("engine", "preview", *here, "--policy-pack", RULES, code=1)
    assert "has no end: set ttlHours" in project.said
    assert "has no bound of $ an hour" in project.said
    project.set()
    project.run("engine", "up", *here, "--yes", "--plan", plan)
    first, second = project.machines()
    # Both machines differ, and another is in no state.
    content = json.loads(first.read_text())
    first.write_text(json.dumps(content | {"healthy": False}))
    second.unlink()
    stray = project.shelf / "machine-stray.json"
    stray.write_text(json.dumps(content))
    found = project.drift()
    names = {f"shelf-machine-{index}" for index in range(2)}
    words = {found.pop(("instances", name)) for name in names}
    assert words == {f"instance {first.stem} is unhealthy", "it is gone"}
    assert found == {
        ("instances", "machine-stray (machine-stray)"): "file in , 1.50 $/h, in no state"
    }
    # The stray one is reaped, the other is left to its stack.
    report = json.loads(
        project.run("infra.operate.reap", "--owner", "ada", "--json", "--end", "--yes")
    )
    verdicts = {each["id"]: each["verdict"] for each in report["findings"]}
    assert verdicts == {first.stem: "in state", "machine-stray": "orphan"}
    assert report["orphansHourlyCost"] == 1.5
    assert project.machines() == [first]
    project.run("engine", "destroy", *here, "--yes", "--refresh")
    assert project.machines() == []
