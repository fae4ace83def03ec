"""`train restore` between folders; between S3 services test_stack.py shows it."""

from pathlib import Path

import pytest

from trainyard.client.commands import restore
from trainyard.client.errors import ClientError
from trainyard.client.store import StackFolder

RUN = {
    "first/starts.jsonl": "{}\n",
    "first/metrics.jsonl": "{}\n",
    "first/config.json": "{}",
    "first/checkpoint_000001-ab/manifest.json": "{}",
    "first/checkpoint_000001-ab/packed.tar": "weights",
}


@pytest.fixture
def places(tmp_path):
    """A copy with a run, and a store without one."""
    for name, text in RUN.items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return StackFolder(tmp_path / "copy"), StackFolder(tmp_path / "store")


def _path(place):
    return Path(place.where.removeprefix("file://"))


def _files(place):
    folder = _path(place)
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_run_is_copied_but_for_marks_and_what_is_not_whole(places):  # F45
    source, target = places
    for name in ("pulled.json", "replicated.json", ".checkpoint_000002.part/packed.tar", ".lock"):
        path = _path(source) / "first" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    assert restore.copy("first", source, target) == sum(map(len, RUN.values()))
    assert _files(target) == RUN


def test_a_copy_that_was_cut_is_no_run_and_goes_on(places, monkeypatch):  # F45
    source, target = places
    copy_file, copied = restore._copy_file, []

    def cut(sent, target):
        copied.append(sent.name)
        if sent.name.endswith("starts.jsonl"):
            raise ClientError("cut")
        copy_file(sent, target)

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
    (_path(target) / "first/metrics.jsonl").write_text("newer")
    with pytest.raises(ClientError, match="has a run 'first' already, which is kept"):
        restore.copy("first", source, target)
    assert _files(target)["first/metrics.jsonl"] == "newer"


def test_a_run_that_is_not_there_is_told(places, monkeypatch):
    source, target = places
    with pytest.raises(ClientError, match="no run is called 'second' in "):
        restore.copy("second", source, target)
    with pytest.raises(ClientError, match="is neither a folder nor s3://"):
        restore._source("gs://results")
    with pytest.raises(ClientError, match="names no bucket: give s3://"):
        restore._source("s3:///")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ClientError, match=r"cannot list s3://Bad_Bucket//x .*check the address"):
        restore.copy("first", restore._source("s3://Bad_Bucket//x"), target)


def test_names_that_lead_elsewhere_are_left_out(places, monkeypatch, capsys):  # F47
    source, target = places
    sizes = restore._sizes

    def listed(place, run):
        return sizes(place, run) | ({"../../out": 1} if place is source else {})

    monkeypatch.setattr(restore, "_sizes", listed)
    restore.copy("first", source, target)
    assert _files(target) == RUN
    assert "'../../out' is not inside its folder: it is left out" in capsys.readouterr().err


def test_a_file_that_becomes_shorter_meanwhile_is_not_stored(places, monkeypatch):
    source, target = places
    monkeypatch.setattr(source, "part", lambda *_: b"")
    with pytest.raises(ClientError, match=r"cannot copy .* \(it has lost \d+ bytes meanwhile\)"):
        restore.copy("first", source, target)
    assert _files(target) == {}
