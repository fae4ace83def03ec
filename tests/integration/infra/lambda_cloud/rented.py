"""A stack of the project `rented` on a fake Lambda Cloud, run by the embedded engine."""

import contextvars
import io
import json
import os
import shutil
import signal
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import yaml

from engine import cli
from tests import waiting

PROGRAM = Path(__file__).parents[3] / "projects" / "lambda"
INSTANCE = "pulumi-python:dynamic/lambda:Instance"


class RentedStack:
    """The stack; commands run in this process, or in a separate one that can be killed."""

    def __init__(self, root, cloud, engines):
        self.cloud = cloud
        self.engines = engines
        self.root = root
        self.project = root / "project"
        self.key_file = root / "home" / ".ssh" / "test-ssh-010.pem"
        shutil.copytree(PROGRAM, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        self.state_file = root / "backend" / ".pulumi" / "stacks" / "rented" / "dev.json"
        self._started = []
        self.declare()

    def declare(self, **config):
        document = {"config": {"keyFile": str(self.key_file), **config}}
        (self.project / "Pulumi.dev.yaml").write_text(yaml.safe_dump(document))

    def run(self, command, *arguments):
        """Run one command in this process; its exit code and its output."""
        text = io.StringIO()
        argv = ["-C", str(self.project), command, *arguments]
        if command in ("up", "refresh", "destroy"):
            argv.append("--yes")
        with redirect_stdout(text), redirect_stderr(text):
            # The SDK keeps its settings in context variables: a context of its own for each run.
            code = contextvars.copy_context().run(cli.main, argv)
        return SimpleNamespace(code=code, text=text.getvalue())

    def done(self, command, *arguments):
        """Run a command that has to succeed; its output."""
        result = self.run(command, *arguments)
        assert result.code == 0, result.text
        return result.text

    def failed(self, command, *arguments):
        """Run a command that has to fail, with a message and no traceback; its output."""
        result = self.run(command, *arguments)
        assert result.code == 1, result.text
        assert "Traceback" not in result.text
        return result.text

    def start(self, command):
        """Start a command in a process of its own."""
        process = self.engines.start([command, "--yes"], self.project, dict(os.environ))
        self._started.append(process)
        return process

    @staticmethod
    def wait_for(condition, seconds=60):
        waiting.wait_for("what is checked", condition, seconds)

    def kill(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def end(self):
        for process in self._started:
            process.close()

    def resources(self):
        if not self.state_file.exists():
            return []
        document = json.loads(self.state_file.read_text())
        return document["checkpoint"]["latest"].get("resources") or []

    def resource(self, name):
        return next(e for e in self.resources() if e["urn"].endswith(f"::{name}"))

    def recorded(self):
        """Ids of the instances that the state knows."""
        return {entry["id"] for entry in self.resources() if entry["type"] == INSTANCE}

    def live(self):
        """Ids of the instances that are billed."""
        self.cloud.account.settle()
        return {
            instance.id
            for instance in self.cloud.account.instances.values()
            if instance.status not in ("terminating", "terminated")
        }

    def posts(self):
        """Requests that change something."""
        return [entry for entry in self.cloud.journal.entries if entry.method != "GET"]
