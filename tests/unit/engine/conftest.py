import contextvars
import errno
import hashlib
import io
import json
import os
import pickle
import re
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest

from engine import cli, crypto, kept_key
from tests.file_stack import FileStack
from trainyard.access.state_bucket import BucketError, BucketPath

BATCH = pickle._Pickler._batch_setitems


class StackUnderTest(FileStack):
    """A stack of the project `files`: its resources are files in a folder."""

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

    def fails(self, command, *arguments, **how):
        """Run a command that has to fail, without a traceback."""
        result = self.run(command, *arguments, **how)
        assert result.code == 1, result.out + result.err
        assert "Traceback" not in result.out + result.err
        return result

    def everything(self):
        """Contents of all files of the backend and of the resources."""
        roots = (self.root / "backend", self.folder)
        found = [path for root in roots for path in root.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in found}

    def refuses(self, command, *arguments, **how):
        """Run a command that has to fail before anything changes."""
        before = self.everything()
        result = self.fails(command, *arguments, **how)
        assert self.everything() == before
        return result

    def up(self, *arguments, **shape):
        """Declare the resources, if any, and bring them up."""
        if shape:
            self.declare(**shape)
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

    @contextmanager
    def edited(self):
        """The deployment, to be changed as the pulumi CLI does: it drops checksum and seal."""
        document = json.loads(self.state_file.read_text())
        document.pop("sha256", None)
        document.pop("seal", None)
        yield document["checkpoint"]["latest"]
        self.state_file.write_text(json.dumps(document))

    def change_entry(self, name, **fields):
        with self.edited() as latest:
            for entry in latest["resources"]:
                if entry["urn"].endswith(f"::{name}"):
                    entry.update(fields)


def _begin(tmp_path, monkeypatch):
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "correct horse")
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path / 'backend'}")
    monkeypatch.setenv("COLUMNS", "200")
    # Pulumi's million would be most of these tests' cost; test_state.py has its true number.
    monkeypatch.setattr(crypto, "ROUNDS", 10)
    monkeypatch.setattr(kept_key, "COST", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # None of these tests outlives a power cut: a busy disk would take most of their time.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    # The SDK wraps it again for each provider that it pickles, and never undoes that.
    monkeypatch.setattr(pickle._Pickler, "_batch_setitems", BATCH)


@pytest.fixture
def stack(tmp_path, monkeypatch):
    _begin(tmp_path, monkeypatch)
    made = StackUnderTest(tmp_path)
    made.declare()
    return made


class Store:
    """Answers as S3 does.

    Attributes:
        lost: answers to writes that are lost: boto3 sends the request again, and hears no.
        careless: the header of a condition that it does not know, and so does not keep.
        may: tells whether a request and its key are allowed.
    """

    def __init__(self):
        self.objects, self.lost, self.careless = {}, 0, ""
        self.may = lambda *_: True

    def call(self, path, name, **more):
        self._check(name, path)
        key, tags = str(path.key), {k: _tag(v) for k, v in self.objects.items()}
        missing = FileNotFoundError(errno.ENOENT, "none", str(path))
        if name == "put_object":
            conditions = {k: v for k, v in more.items() if k != self.careless.replace("-", "")}
            wanted = conditions.get("IfMatch", tags.get(key))
            if wanted != tags.get(key) or ("IfNoneMatch" in conditions and key in tags):
                raise missing if key not in tags else FileExistsError(errno.EEXIST, "it is there")
            self.objects[key] = more["Body"]
            if self.lost and key.endswith(".json"):
                self.lost -= 1
                return self.call(path, name, **more)
            return {"ETag": _tag(more["Body"])}
        if name == "delete_object":
            self.objects.pop(key, None)
            return {}
        if key not in tags:
            raise missing
        return {"ETag": tags[key], "Body": io.BytesIO(self.objects[key])}

    def glob(self, path, pattern):
        self._check("list_objects_v2", path)
        start = f"{path.key}/"
        for key in sorted(self.objects):
            if key.startswith(start) and fnmatchcase(key.removeprefix(start), pattern):
                yield path / key.removeprefix(start)

    def _check(self, name, path):
        if not self.may(name, str(path.key)):
            raise BucketError(errno.EIO, "the store answers AccessDenied", str(path))


def _tag(content):
    return f'"{hashlib.md5(content).hexdigest()}"'


@pytest.fixture
def store(monkeypatch):
    """The store of all buckets."""
    found = Store()
    # A bound method would not get the path.
    monkeypatch.setattr(BucketPath, "_call", lambda *call, **more: found.call(*call, **more))  # noqa: PLW0108
    monkeypatch.setattr(BucketPath, "glob", lambda *call: found.glob(*call))  # noqa: PLW0108
    return found
