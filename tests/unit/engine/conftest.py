import contextvars
import io
import json
import os
import pickle
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from engine import cli, crypto

BATCH = pickle._Pickler._batch_setitems
PROGRAM = Path(__file__).parents[2] / "projects" / "files"


class StackUnderTest:
    """A stack of the project `files`: its resources are files in a folder."""

    def __init__(self, root):
        self.root = root
        self.project = root / "project"
        self.folder = root / "made"
        self.folder.mkdir()
        shutil.copytree(PROGRAM, self.project, ignore=shutil.ignore_patterns("__pycache__"))
        self.state_file = root / "backend" / ".pulumi" / "stacks" / "files" / "dev.json"
        self.settings = self.project / "Pulumi.dev.yaml"
        self.declare()

    def declare(self, **shape):
        config = {"folder": str(self.folder), "shape": shape}
        self.settings.write_text(yaml.safe_dump({"config": config}, sort_keys=False))

    def run(self, command, *arguments, stack="dev", yes=True):
        """Run one command in this process; its exit code and its output."""
        out, err = io.StringIO(), io.StringIO()
        argv = ["-C", str(self.project), command, *arguments, "-s", stack]
        if yes and command in ("up", "refresh", "destroy"):
            argv.append("--yes")
        with redirect_stdout(out), redirect_stderr(err):
            # The SDK keeps its settings in context variables: a context of its own for each run.
            code = contextvars.copy_context().run(cli.main, argv)
        return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())

    def up(self, *arguments):
        result = self.run("up", *arguments)
        assert result.code == 0, result.out + result.err
        return result

    def summary(self, command, *arguments):
        """Counts of a command's steps, from its last line."""
        result = self.run(command, *arguments)
        assert result.code == 0, result.out + result.err
        counts = re.findall(r"(\d+) ([a-z-]+)[, ]", result.out.splitlines()[-1])
        return {key: int(count) for count, key in counts if key not in ("same", "outputs")}

    def files(self):
        """Texts of the existing files, by name."""
        return {
            path.name: json.loads(path.read_text())["text"]
            for path in sorted(self.folder.glob("*.json"))
        }

    def journal(self):
        path = self.folder / "journal"
        return path.read_text().splitlines() if path.exists() else []

    def resources(self):
        document = json.loads(self.state_file.read_text())
        return document["checkpoint"]["latest"].get("resources", [])

    def change_entry(self, name, **fields):
        """Change an entry of the state, as the pulumi CLI does."""
        document = json.loads(self.state_file.read_text())
        del document["sha256"], document["seal"]
        for entry in document["checkpoint"]["latest"]["resources"]:
            if entry["urn"].endswith(f"::{name}"):
                entry.update(fields)
        self.state_file.write_text(json.dumps(document))

    def resource(self, name):
        return next(e for e in self.resources() if e["urn"].endswith(f"::{name}"))


@pytest.fixture
def stack(tmp_path, monkeypatch):
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "correct horse")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path / 'backend'}")
    monkeypatch.setenv("COLUMNS", "200")
    # Pulumi's million would be most of these tests' cost; test_state.py has its true number.
    monkeypatch.setattr(crypto, "ROUNDS", 10)
    # None of these tests outlives a power cut: a busy disk would take most of their time.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    # The SDK wraps it again for each provider that it pickles, and never undoes that.
    monkeypatch.setattr(pickle._Pickler, "_batch_setitems", BATCH)
    return StackUnderTest(tmp_path)
