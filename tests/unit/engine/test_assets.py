"""File assets have the hashes that Pulumi gives them."""

import hashlib

import pytest

from engine.assets import ARCHIVE, ASSET, SIGNATURE, with_hash
from engine.errors import EngineError, UnsupportedError
from engine.goal import changed_keys
from engine.structs import from_struct, to_struct


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_text("hello")
    return path


def _asset(path):
    return {SIGNATURE: ASSET, "path": str(path)}


def test_a_file_has_the_hash_of_its_content(file):
    assert with_hash(_asset(file))["hash"] == hashlib.sha256(b"hello").hexdigest()
    file.write_text("")
    assert with_hash(_asset(file))["hash"] == hashlib.sha256(b"").hexdigest()


def test_what_cannot_be_read_or_is_no_file_is_refused(tmp_path):
    with pytest.raises(EngineError, match="nowhere cannot be read: No such file"):
        with_hash(_asset(tmp_path / "nowhere"))
    with pytest.raises(EngineError, match="cannot be read: Is a directory"):
        with_hash(_asset(tmp_path))
    for other in ({"text": "x"}, {"uri": "https://example.org/x"}):
        with pytest.raises(UnsupportedError, match="assets other than a FileAsset"):
            with_hash({SIGNATURE: ASSET, **other})
    with pytest.raises(UnsupportedError, match="assets other than a FileAsset"):
        with_hash({SIGNATURE: ARCHIVE, "path": str(tmp_path)})


def test_assets_are_compared_by_hash_alone(file, tmp_path):
    (tmp_path / "copy").write_text("hello")
    (tmp_path / "other").write_text("bye")
    olds = {"a": with_hash(_asset(file)), "b": 1}
    assert changed_keys(olds, olds | {"a": with_hash(_asset(tmp_path / "copy"))}) == set()
    assert changed_keys(olds, olds | {"a": with_hash(_asset(tmp_path / "other"))}) == {"a"}


def test_inputs_come_with_the_hashes_of_their_assets(file):
    found = from_struct(to_struct({"source": _asset(file), "list": [_asset(file)]}))
    assert found["source"]["hash"] == hashlib.sha256(b"hello").hexdigest()
    assert found["list"][0]["hash"] == found["source"]["hash"]
