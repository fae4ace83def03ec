"""Assets and archives have the hashes that Pulumi gives them."""

import hashlib
import io
import tarfile

import pytest

from engine.assets import ARCHIVE, ASSET, SIGNATURE, by_hash, with_hash
from engine.errors import EngineError, UnsupportedError
from engine.goal import changed_keys
from engine.values import from_struct, to_struct


def _asset(**fields):
    return {SIGNATURE: ASSET, **fields}


def _archive(path):
    return {SIGNATURE: ARCHIVE, "path": str(path)}


def test_a_text_and_a_file_of_the_same_content_have_one_hash(tmp_path):
    (tmp_path / "file").write_text("hello")
    digest = hashlib.sha256(b"hello").hexdigest()
    assert with_hash(_asset(text="hello"))["hash"] == digest
    assert with_hash(_asset(path=str(tmp_path / "file")))["hash"] == digest
    assert with_hash(_asset(text=""))["hash"] == hashlib.sha256(b"").hexdigest()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    (folder / "a.d").mkdir(parents=True)
    (folder / "a.d" / "one").write_text("1")
    (folder / "a").write_text("x" * 512)
    (folder / "empty").mkdir()
    (folder / "zero").touch()
    (folder / "link").symlink_to("a")
    (folder / "to").symlink_to("a.d")
    (folder / ".pulumi").mkdir()
    (folder / ".pulumi" / "state").write_text("not ours")
    return folder


def test_the_hash_of_a_folder_is_what_pulumi_gives_it(folder):
    # As the pulumi CLI 3.260 recorded it for this folder.
    assert (
        with_hash(_archive(folder))["hash"]
        == "41620d50fe5d8b0fcc542427404222618b082d1a63f2c6d1e85b6dfb2a93d93d"
    )


def test_a_folder_is_hashed_as_a_tar(folder, monkeypatch):
    made = io.BytesIO()

    class Digest:
        def update(self, block):
            made.write(block)

        def hexdigest(self):
            return "made"

    monkeypatch.setattr(hashlib, "sha256", Digest)
    assert with_hash(_archive(folder))["hash"] == "made"
    made.seek(0)
    with tarfile.open(fileobj=made) as tar:
        contents = {member.name: tar.extractfile(member).read() for member in tar}
    assert contents == {"a": b"x" * 512, "a.d/one": b"1", "link": b"x" * 512, "zero": b""}
    assert list(contents) == ["a", "a.d/one", "link", "zero"]


def test_a_packed_archive_is_hashed_as_it_is(tmp_path):
    packed = tmp_path / "x.tar.gz"
    packed.write_bytes(b"bytes")
    assert with_hash(_archive(packed))["hash"] == hashlib.sha256(b"bytes").hexdigest()


def test_what_cannot_be_read_or_hashed_is_refused(tmp_path):
    with pytest.raises(EngineError, match="nowhere cannot be read: No such file"):
        with_hash(_asset(path=str(tmp_path / "nowhere")))
    with pytest.raises(EngineError, match="cannot be read: Is a directory"):
        with_hash(_asset(path=str(tmp_path)))
    with pytest.raises(UnsupportedError, match="assets from a URL, and archives of assets"):
        with_hash(_asset(uri="https://example.org/x"))
    with pytest.raises(UnsupportedError, match="archives of assets"):
        with_hash({SIGNATURE: ARCHIVE, "assets": {}})
    (tmp_path / ("x" * 101)).touch()
    with pytest.raises(UnsupportedError, match="over 100 bytes"):
        with_hash(_archive(tmp_path))


def test_assets_are_compared_by_hash_alone(tmp_path):
    (tmp_path / "file").write_text("hello")
    one, other = _asset(text="hello"), _asset(path=str(tmp_path / "file"))
    olds, news = ({"a": [with_hash(each)], "b": 1} for each in (one, other))
    assert changed_keys(olds, news) == set()
    assert changed_keys(olds, news | {"a": [with_hash(_asset(text="bye"))]}) == {"a"}
    assert by_hash({"a": "x"}) == {"a": "x"}


def test_inputs_come_with_the_hashes_of_their_assets(tmp_path):
    text = {"source": {SIGNATURE: ASSET, "text": "hello"}, "triggers": [_asset(text="x")]}
    found = from_struct(to_struct(text))
    assert found["source"]["hash"] == hashlib.sha256(b"hello").hexdigest()
    assert found["triggers"][0]["hash"] == hashlib.sha256(b"x").hexdigest()
