"""A stack of one of the tests' projects, with the files that it makes and its state."""

import json
import shutil
from pathlib import Path

import yaml

PROJECTS = Path(__file__).parent / "projects"


class FileStack:
    """The stack `dev` of a copy of a project, in a folder that exists."""

    program = "files"

    def __init__(self, root):
        self.root = root
        self.project = root / "project"
        self.folder = root / "made"
        self.folder.mkdir()
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(PROJECTS / self.program, self.project, ignore=ignored)
        self.backend = root / "backend" / ".pulumi"
        self.settings = self.project / "Pulumi.dev.yaml"

    def config(self):
        return {"folder": str(self.folder)}

    def declare(self, **shape):
        config = self.config() | {"shape": shape}
        self.settings.write_text(yaml.safe_dump({"config": config}, sort_keys=False))

    @property
    def state_file(self):
        name = yaml.safe_load((self.project / "Pulumi.yaml").read_text())["name"]
        return self.backend / "stacks" / name / "dev.json"

    def latest(self):
        return json.loads(self.state_file.read_text())["checkpoint"]["latest"]

    def resources(self):
        return self.latest().get("resources", [])

    def resource(self, name):
        return next(e for e in self.resources() if e["urn"].endswith(f"::{name}"))
