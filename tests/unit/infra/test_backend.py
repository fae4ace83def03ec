"""Which backend this is, and the id that it keeps."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from infra import backend
from infra.backend import Backend, BackendError


@pytest.fixture
def here(tmp_path):
    """A backend in a folder, without anything in it."""
    return Backend(url=f"file://{tmp_path}", folder=tmp_path / ".pulumi")


def test_an_id_is_drawn_once(here):
    assert here.id() == ""
    drawn = here.draw_id()
    assert len(bytes.fromhex(drawn)) == 4
    assert here.draw_id() == here.id() == drawn
    assert [path.name for path in here.folder.iterdir()] == ["trainyard.json"]
    assert (here.folder / "trainyard.json").stat().st_mode & 0o777 == 0o644


def test_two_backends_have_two_ids(here, tmp_path):  # F46
    other = Backend(url="", folder=tmp_path / "other" / ".pulumi")
    assert here.draw_id() != other.draw_id()


DRAW = """
import sys
from pathlib import Path
from infra.backend import Backend
here = Backend(url="", folder=Path(sys.argv[1]))
sys.stdin.read()
print(here.draw_id())
"""


def test_those_who_draw_at_once_draw_the_same(here):
    command = [sys.executable, "-c", DRAW, here.folder]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    drawing = [subprocess.Popen(command, **pipes) for _ in range(4)]
    for process in drawing:
        process.stdin.close()
    drawn = {process.stdout.read() for process in drawing}
    assert [process.wait(30) for process in drawing] == [0] * 4
    assert drawn == {here.id() + "\n"}


def test_a_copy_is_another_backend(here, tmp_path):  # F46
    drawn = here.draw_id()
    shutil.copytree(here.folder, tmp_path / "copy" / ".pulumi")
    copy = Backend(url="", folder=tmp_path / "copy" / ".pulumi")
    assert copy.id() == ""
    assert copy.draw_id() not in ("", drawn)
    assert here.id() == drawn
    here.folder.rename(tmp_path / "moved")  # the same folder at another place
    assert Backend(url="", folder=tmp_path / "moved").id() == drawn


@pytest.mark.parametrize("content", ["", "[]", "{}", "7", '{"id": "0a1b2c3d"}'])
def test_an_id_that_cannot_be_read_is_no_other_one(here, content):
    here.draw_id()
    (here.folder / "trainyard.json").write_text(content)
    for call in (here.id, here.draw_id):
        with pytest.raises(BackendError, match=r"trainyard.json cannot be read .*remove it"):
            call()
    assert (here.folder / "trainyard.json").read_text() == content


def test_an_id_that_cannot_be_kept_is_told(here, monkeypatch):  # F16
    here.folder.mkdir()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BackendError, match=r"cannot be kept .No space left on device.: make room"):
        here.draw_id()
    assert list(here.folder.iterdir()) == []


def test_a_backend_that_is_no_folder_has_the_id_of_its_address():
    def id_(url, organization="organization"):
        return Backend(url=url, folder=None).draw_id(organization)

    assert len(bytes.fromhex(id_("s3://states"))) == 4
    # How it is reached differs between people, and is not which one it is.
    assert id_("s3://states?region=us-east-1&profile=ann") == id_("s3://states/")
    assert id_("https://ann:pass@api.example.com") == id_("https://api.example.com")
    several = ("s3://states", "s3://others", "gs://states", "s3://states/below")
    assert len({id_(url) for url in several}) == 4
    assert id_("https://api.example.com", "ann") != id_("https://api.example.com", "team")


@pytest.mark.parametrize("below", ["", "infra"])
def test_providers_find_the_project_that_they_work_in(tmp_path, monkeypatch, below):
    (tmp_path / "Pulumi.yaml").write_text(
        json.dumps({"name": "p", "backend": {"url": "file://states"}})
    )
    (tmp_path / below).mkdir(exist_ok=True)
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    monkeypatch.chdir(tmp_path / below)
    found = backend.find(backend.project_folder())
    assert found.folder == tmp_path / "states" / ".pulumi"


def test_the_backend_is_where_the_cli_looks_for_it(tmp_path, monkeypatch):
    def found():
        place = backend.find(tmp_path)
        return place.folder and str(place.folder.relative_to(tmp_path)), place.url

    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Pulumi.yaml").write_text("name: p\nbackend: nonsense\n")
    assert found() == (".pulumi", f"file://{tmp_path}")
    for home in (".pulumi", "elsewhere"):
        (tmp_path / home).mkdir()
        login = {"current": f"file://{tmp_path}/of-{home}"}
        (tmp_path / home / "credentials.json").write_text(json.dumps(login))
    assert found()[0] == "of-.pulumi/.pulumi"
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "elsewhere"))
    assert found()[0] == "of-elsewhere/.pulumi"
    (tmp_path / "Pulumi.yaml").write_text("name: p\nbackend: {url: 'file://of-project'}\n")
    assert found()[0] == "of-project/.pulumi"
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://states")
    assert found() == (None, "s3://states")


@pytest.mark.parametrize("content", [None, "name: [", "runtime: python", "[]"])
def test_a_folder_without_a_project_is_told(tmp_path, monkeypatch, content):
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    if content is not None:
        (tmp_path / "Pulumi.yaml").write_text(content)
    with pytest.raises(BackendError, match="name the project's folder with -C"):
        backend.find(tmp_path)
