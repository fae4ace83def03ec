"""Dynamic resources that are files: real things outside the engine, to count and to tamper with."""

import json
import os
import time
from pathlib import Path

import pulumi
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)

SHOWN = ("text", "token", "kind")


def _write(path, props):
    """Whole or not at all, also when the process is killed."""
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({key: props.get(key) for key in SHOWN}))
    temporary.replace(path)


class FileProvider(ResourceProvider):
    """One JSON file a resource, `<folder>/<name>.<n>.json`; each create is a line in a journal."""

    def check(self, _olds, news):
        faults = [CheckFailure("text", "must not be 'bad'")] if news.get("text") == "bad" else []
        return CheckResult(news, faults)

    def diff(self, _id, olds, news):
        changed = [key for key in SHOWN if olds.get(key) != news.get(key)]
        return DiffResult(
            changes=bool(changed),
            replaces=["kind"] if "kind" in changed else [],
            delete_before_replace=str(news.get("kind", "")).startswith("exclusive"),
        )

    def create(self, props):
        folder = Path(props["folder"])
        if props.get("text") == "fail":
            raise RuntimeError("the disk said no")
        hold = os.environ.get("FILES_HOLD")
        while hold and Path(hold).exists():
            time.sleep(0.02)
        time.sleep(float(os.environ.get("FILES_DELAY", "0")))
        number = 0
        while True:
            path = folder / f"{props['name']}.{number}.json"
            if not path.exists():
                break
            number += 1
        _write(path, props)
        with (folder / "journal").open("a") as journal:
            journal.write(f"create {path.name}\n")
        time.sleep(float(os.environ.get("FILES_DELAY", "0")))
        return CreateResult(path.name, {**props, "path": str(path), "made": "canary-made-secret"})

    def find(self, props):
        for path in sorted(Path(props["folder"]).glob(f"{props['name']}.*.json"), reverse=True):
            if json.loads(path.read_text()).get("kind") == props.get("kind"):
                outs = {**props, "path": str(path), "made": "canary-made-secret"}
                return CreateResult(path.name, outs)
        return None

    def read(self, id_, props):
        path = Path(props["folder"]) / id_
        if not path.exists():
            return ReadResult("", {})
        return ReadResult(id_, {**props, **json.loads(path.read_text())})

    def update(self, id_, olds, news):
        path = Path(olds["folder"]) / id_
        time.sleep(float(os.environ.get("FILES_DELAY", "0")))
        _write(path, news)
        return UpdateResult({**news, "path": str(path), "made": "canary-made-secret"})

    def delete(self, id_, props):
        time.sleep(float(os.environ.get("FILES_DELAY", "0")))
        (Path(props["folder"]) / id_).unlink(missing_ok=True)
        with (Path(props["folder"]) / "journal").open("a") as journal:
            journal.write(f"delete {id_}\n")


class File(Resource, module="files", name="File"):
    """A file. `made` is generated, and secret."""

    path: pulumi.Output[str]
    made: pulumi.Output[str]

    def __init__(self, name, props, opts=None):
        opts = pulumi.ResourceOptions.merge(
            opts, pulumi.ResourceOptions(additional_secret_outputs=["made"])
        )
        defaults = {"path": None, "made": None, "name": name}
        super().__init__(FileProvider(), name, {**defaults, **props}, opts)


class Group(pulumi.ComponentResource):
    """A component with one file."""

    path: pulumi.Output[str]

    def __init__(self, name, props, opts=None):
        super().__init__("files:index:Group", name, {"size": 1}, opts)
        self.file = File(f"{name}-file", props, pulumi.ResourceOptions(parent=self))
        self.path = self.file.path
        self.register_outputs({"path": self.path})
