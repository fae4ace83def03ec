"""The choice of a backend, and the id that it keeps."""

import json
import os
import shutil
import subprocess
import sys

import pulumi
import pytest

from infra.operate import backend
from infra.operate.backend import Backend
from trainyard.access import state_bucket
from trainyard.access.state_bucket import BucketPath


@pytest.fixture
def here(tmp_path):
    """A backend in a folder, without anything in it."""
    return Backend(url=f"file://{tmp_path}", place=tmp_path / ".pulumi")


def test_an_id_is_drawn_once(here):
    assert here.id() == ""
    drawn = here.draw_id()
    assert len(bytes.fromhex(drawn)) == 4
    assert here.draw_id() == here.id() == drawn
    assert [path.name for path in here.place.iterdir()] == ["trainyard.json"]
    assert (here.place / "trainyard.json").stat().st_mode & 0o777 == 0o644


DRAW = """
import sys
from pathlib import Path
from infra.operate.backend import Backend
here = Backend(url="", place=Path(sys.argv[1]))
sys.stdin.read()
print(here.draw_id())
"""


def test_those_who_draw_at_once_draw_the_same(here):
    command = [sys.executable, "-c", DRAW, here.place]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    drawing = [subprocess.Popen(command, **pipes) for _ in range(4)]
    for process in drawing:
        process.stdin.close()
    drawn = {process.stdout.read() for process in drawing}
    assert [process.wait(30) for process in drawing] == [0] * 4
    assert drawn == {here.id() + "\n"}


def test_a_copy_is_another_backend(here, tmp_path):  # F46
    drawn = here.draw_id()
    shutil.copytree(here.place, tmp_path / "copy" / ".pulumi")
    copy = Backend(url="", place=tmp_path / "copy" / ".pulumi")
    assert copy.id() == ""
    assert copy.draw_id() not in ("", drawn)
    assert here.id() == drawn
    here.place.rename(tmp_path / "moved")  # the same folder at another place
    assert Backend(url="", place=tmp_path / "moved").id() == drawn


@pytest.mark.parametrize("content", ["", "[]", "{}", "7", '{"id": "0a1b2c3d"}'])
def test_an_id_that_cannot_be_read_is_no_other_one(here, content):
    here.draw_id()
    (here.place / "trainyard.json").write_text(content)
    for call in (here.id, here.draw_id):
        with pytest.raises(pulumi.RunError, match=r"trainyard.json cannot be read .*remove it"):
            call()
    assert (here.place / "trainyard.json").read_text() == content


def test_an_id_that_cannot_be_kept_is_told(here, monkeypatch, full):  # F16
    here.place.mkdir()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        pulumi.RunError, match=r"cannot be kept .No space left on device.: make room"
    ):
        here.draw_id()
    assert list(here.place.iterdir()) == []


def test_a_backend_behind_an_api_has_the_id_of_its_address():
    def id_(url, organization="organization"):
        return Backend(url=url, place=None).draw_id(organization)

    assert len(bytes.fromhex(id_("gs://states"))) == 4
    # How it is reached differs between people, and is not which one it is.
    assert id_("gs://states?access=ann") == id_("gs://states/")
    assert id_("https://ann:pass@api.example.com") == id_("https://api.example.com")
    several = ("gs://states", "gs://others", "azblob://states", "gs://states/below")
    assert len({id_(url) for url in several}) == 4
    assert id_("https://api.example.com", "ann") != id_("https://api.example.com", "team")


def test_two_accounts_of_azure_may_have_containers_of_one_name(monkeypatch):  # F46
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)

    def id_(url):
        return Backend(url=url, place=None).id()

    named = [id_(f"azblob://states?storage_account={name}") for name in ("ann", "bob")]
    assert len({*named, id_("azblob://states")}) == 3
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "bob")
    assert id_("azblob://states") == named[1]


class Store:
    """A place in a bucket; others write to it between two calls, as often as it is told."""

    def __init__(self, monkeypatch, others=0):
        self.content, self.tag, self.others = None, 0, others
        for name in ("read_tagged", "create", "replace"):
            monkeypatch.setattr(BucketPath, name, getattr(self, name))

    def read_tagged(self):
        if self.content is None:
            raise FileNotFoundError
        found = self.content, str(self.tag)
        if self.others:
            self.others, self.tag = self.others - 1, self.tag + 1
        return found

    def create(self, content):
        self.replace(content, "0")

    def replace(self, content, tag):
        if tag != str(self.tag):
            raise FileExistsError
        self.content, self.tag = content, self.tag + 1


def _bucket(url):
    return Backend(url=url, place=state_bucket.find(url))


def test_a_bucket_has_an_id_at_each_address(monkeypatch):  # F46
    Store(monkeypatch)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    urls = [f"s3://states?region=r&endpoint=http://127.0.0.1:{port}" for port in (9000, 9001)]
    urls += ["s3://states?region=us-east-1"]
    drawn = []
    for url in urls:
        assert _bucket(url).id() == ""
        drawn.append(_bucket(url).draw_id())
    assert [_bucket(url).id() for url in urls] == drawn
    assert len(set(drawn)) == 3
    # Amazon has one bucket of a name; the other's scheme and region are how it is reached.
    assert _bucket("s3://states?region=eu-west-1").id() == drawn[2]
    assert _bucket("s3://states?region=x&disableSSL=true&endpoint=127.0.0.1:9000").id() == drawn[0]
    # An address that is not in the URL counts too.
    state_bucket._client.cache_clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9001")
    assert _bucket("s3://states?region=us-east-1").id() == drawn[1]
    state_bucket._client.cache_clear()


def test_an_id_is_drawn_although_others_write(monkeypatch):  # F46
    url = "s3://states?region=r&endpoint=http://127.0.0.1:9000"
    store = Store(monkeypatch)
    store.create(b'{"ids": {"elsewhere": "0a1b2c3d"}}')
    store.others = 2
    drawn = _bucket(url).draw_id()
    assert _bucket(url).id() == drawn
    assert b"0a1b2c3d" in store.content  # theirs stays
    store.content, store.others = b'{"ids": {}}', 10
    with pytest.raises(pulumi.RunError, match="others write it at the same time; run the command"):
        _bucket(url).draw_id()


@pytest.mark.parametrize("below", ["", "infra"])
def test_providers_find_the_project_that_they_work_in(tmp_path, monkeypatch, below):
    (tmp_path / "Pulumi.yaml").write_text(
        json.dumps({"name": "p", "backend": {"url": "file://states"}})
    )
    (tmp_path / below).mkdir(exist_ok=True)
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    monkeypatch.chdir(tmp_path / below)
    found = backend.find(backend.project_folder())
    assert found.place == tmp_path / "states" / ".pulumi"


def test_the_backend_is_where_the_cli_looks_for_it(tmp_path, monkeypatch):
    def found():
        place = backend.find(tmp_path)
        return place.place and str(place.place.relative_to(tmp_path)), place.url

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
    assert backend.find(tmp_path) == _bucket("s3://states")


@pytest.mark.parametrize("content", [None, "name: [", "runtime: python", "[]"])
def test_a_folder_without_a_project_is_told(tmp_path, monkeypatch, content):
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    if content is not None:
        (tmp_path / "Pulumi.yaml").write_text(content)
    with pytest.raises(pulumi.RunError, match="name the project's folder with -C"):
        backend.find(tmp_path)
