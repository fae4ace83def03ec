"""A point is another one if any part of its upload differs."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from trainyard.client import scripts
from trainyard.client.errors import ClientError
from trainyard.client.sweep import upload
from trainyard.client.sweep.records import Records
from trainyard.client.sweep.upload import Code


@pytest.fixture
def folder(tmp_path):
    """A script with a module, data and settings of packages."""
    folder = tmp_path / "work"
    (folder / "data" / "empty").mkdir(parents=True)
    for name in ("job.py", "model.py", "data/train.csv", "packages.txt"):
        (folder / name).write_text("")
    env = f"pip: {folder / 'packages.txt'}\npy_modules: [{tmp_path / 'lib.whl'}]\n"
    (tmp_path / "env.yaml").write_text(env)
    (tmp_path / "lib.whl").write_text("")
    return folder


@pytest.fixture
def script(folder):
    return scripts.find(str(folder / "job.py"))


@pytest.fixture
def code(tmp_path, folder):
    """The upload as it would be now."""
    (tmp_path / "copies").mkdir()
    script = str(folder / "job.py")
    return lambda: Code(
        script=scripts.find(script), copies=tmp_path / "copies", secrets=("canary",)
    )


def test_any_change_of_what_is_sent_is_another_point(tmp_path, folder, code, monkeypatch):  # F54
    package = tmp_path / "trainyard"
    package.mkdir()
    (package / "job.py").touch()
    monkeypatch.setattr(scripts, "PACKAGE", package)
    env = tmp_path / "env.yaml"
    seen = [code().digest(env)]
    assert code().digest(env) == seen[0]
    for path in (
        *(folder / name for name in ("model.py", "data/train.csv", "new.py", "packages.txt")),
        *(tmp_path / "lib.whl", package / "job.py"),
    ):
        path.write_text("changed")
        seen.append(code().digest(env))
    (folder / "model.py").chmod(0o755)
    seen.append(code().digest(env))
    (folder / "model.py").rename(folder / "net.py")
    seen.append(code().digest(env))
    with env.open("a") as file:
        file.write("env_vars: {SEED: '1'}\n")
    seen.append(code().digest(env))
    assert len(set(seen)) == len(seen)


def test_what_is_edited_while_points_wait_is_not_sent(tmp_path, folder, code):  # F54
    begun, env = code(), tmp_path / "env.yaml"
    before = begun.digest(env)
    for path in (folder / "model.py", folder / "packages.txt", tmp_path / "lib.whl"):
        path.write_text("changed")
    sent = begun.environment(env)
    assert (Path(sent["working_dir"]) / "model.py").read_text() == ""
    assert (Path(sent["working_dir"]) / "data" / "empty").is_dir()
    assert Path(sent["pip"]).read_text() == Path(sent["py_modules"][0]).read_text() == ""
    assert Path(sent["py_modules"][0]).name == "lib.whl"
    assert begun.digest(env) == before != code().digest(env)


def test_results_are_not_sent(tmp_path, folder, script, code):  # F54
    before = code().digest(None)
    results = folder / "trainyard" / "sweep"  # a name that Trainyard's package has too
    assert upload.contains(script, results)
    with Records(results, "first") as records:
        records.leave_out()
        (results / "results.csv").touch()
        assert code().digest(None) == before
    assert not upload.contains(script, tmp_path / "elsewhere")
    with pytest.raises(ClientError, match=r"is the folder that is uploaded: .*multirun/first"):
        upload.contains(script, folder)


def test_a_file_that_cannot_be_sent_is_named(folder, code, monkeypatch):
    (folder / "model.py").write_text("canary")
    with pytest.raises(ClientError, match=r"model\.py in the upload of .*work holds a secret"):
        code().digest(None)
    (folder / "model.py").write_text("")
    refused = PermissionError(13, "Permission denied", "model.py")
    monkeypatch.setattr(upload.shutil, "copy", Mock(side_effect=refused))
    with pytest.raises(ClientError, match=r"cannot copy model\.py, .*\.rayignore"):
        code().digest(None)
