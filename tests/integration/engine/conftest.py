import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROGRAM = Path(__file__).parents[2] / "projects" / "files"


class EngineProcess:
    """A stack of the project `files`, worked on by engines in processes of their own."""

    def __init__(self, root, environment):
        self.project = root / "project"
        self.folder = root / "made"
        self.folder.mkdir()
        shutil.copytree(PROGRAM, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        self.backend = root / "backend" / ".pulumi"
        self.environment = os.environ | environment
        self._started = []

    def declare(self, **shape):
        config = {"folder": str(self.folder), "shape": shape}
        text = yaml.safe_dump({"config": config}, sort_keys=False)
        (self.project / "Pulumi.dev.yaml").write_text(text)

    def start(self, command, *arguments, delay=0.0):
        process = subprocess.Popen(
            [sys.executable, "-m", "engine", command, *arguments],
            cwd=self.project,
            env=self.environment | {"FILES_DELAY": str(delay)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, command, *arguments, delay=0.0):
        process = self.start(command, *arguments, delay=delay)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def files(self):
        """Names of resources to the texts of their files: two files of one name are a duplicate."""
        found = {}
        for path in sorted(self.folder.glob("*.json")):
            name = path.name.partition(".")[0]
            assert name not in found, f"duplicate of {name}"
            found[name] = json.loads(path.read_text())["text"]
        return found

    def resources(self):
        path = self.backend / "stacks" / "files" / "dev.json"
        return json.loads(path.read_text())["checkpoint"]["latest"].get("resources", [])

    def end(self):
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def engine(tmp_path):
    stack = EngineProcess(
        tmp_path,
        {
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "PULUMI_BACKEND_URL": f"file://{tmp_path / 'backend'}",
            "PULUMI_SKIP_UPDATE_CHECK": "1",
            "COLUMNS": "200",
        },
    )
    yield stack
    stack.end()
