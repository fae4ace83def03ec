"""`train restore` between folders; between S3 services test_stack.py shows it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow.fs import LocalFileSystem

from trainyard.client import restore
from trainyard.client.errors import ClientError

RUN = {
    "first/starts.jsonl": "{}\n",
    "first/metrics.jsonl": "{}\n",
    "first/config.json": "{}",
    "first/checkpoint_000001-ab/manifest.json": "{}",
    "first/checkpoint_000001-ab/packed.tar": "weights",
}


def _place(folder):
    return restore.Place(LocalFileSystem(), str(folder), str(folder))


@pytest.fixture
def places(tmp_path):
    """A copy with a run, and a store without one."""
    for name, text in RUN.items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "store").mkdir()
    return _place(tmp_path / "copy"), _place(tmp_path / "store")


def _files(place):
    folder = Path(place.path)
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_is_copied_but_for_marks_and_what_is_not_whole(places):  # F45
    source, target = places
    for name in ("pulled.json", "replicated.json", ".checkpoint_000002.part/packed.tar", ".lock"):
        path = Path(source.path, "first", name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert restore.copy("first", source, target) == sum(map(len, RUN.values()))
    assert _files(target) == RUN


def test_a_copy_that_was_cut_is_no_run_and_goes_on(places, monkeypatch):  # F45
    source, target = places
    copy_file, copied = restore._copy_file, []

    def cut(name, *more):
        copied.append(name)
        if name.endswith("starts.jsonl"):
            raise ClientError("cut")
        copy_file(name, *more)

    monkeypatch.setattr(restore, "_copy_file", cut)
    with pytest.raises(ClientError, match="cut"):
        restore.copy("first", source, target)
    assert copied.index("first/checkpoint_000001-ab/packed.tar") < copied.index(
        "first/checkpoint_000001-ab/manifest.json"
    )
    assert _files(target).keys() == RUN.keys() - {"first/starts.jsonl"}
    monkeypatch.setattr(restore, "_copy_file", copy_file)
    restore.copy("first", source, target)
    assert _files(target) == RUN


def test_a_run_of_the_store_is_kept(places):  # F45
    source, target = places
    restore.copy("first", source, target)
    Path(target.path, "first/metrics.jsonl").write_text("newer")
    with pytest.raises(ClientError, match="has a run 'first' already, which is kept"):
        restore.copy("first", source, target)
    assert _files(target)["first/metrics.jsonl"] == "newer"


def test_a_run_that_is_not_there_is_told(places):
    source, target = places
    with pytest.raises(ClientError, match="no run is called 'second' in "):
        restore.copy("second", source, target)
    with pytest.raises(ClientError, match="is neither a folder nor s3://"):
        restore._source("gs://results")
    with pytest.raises(ClientError, match="names no bucket: give s3://"):
        restore._source("s3:///")
    with pytest.raises(ClientError, match=r"cannot list s3://Bad_Bucket//x .*check the address"):
        restore._sizes(
            restore._source("s3://Bad_Bucket//x")._replace(path="Bad_Bucket//x"), "first"
        )


def test_names_that_lead_elsewhere_are_left_out(places, monkeypatch, capsys):  # F47
    source, target = places
    sizes = restore._sizes

    def listed(place, run):
        return sizes(place, run) | ({"../../out": 1} if place is source else {})

    monkeypatch.setattr(restore, "_sizes", listed)
    restore.copy("first", source, target)
    assert _files(target) == RUN
    assert "'../../out' is not inside its folder: it is left out" in capsys.readouterr().err


def test_a_store_that_is_a_folder_is_one(tmp_path):
    folder = tmp_path / "é #1%20"
    known = SimpleNamespace(storage_url=folder.as_uri())
    assert restore._target(known).path == str(folder)  # F62
