"""Files of users are read in any form, and replaced in the same form."""

import os
from unittest.mock import Mock

import pytest

from trainyard.access import users_file
from trainyard.client.commands import attach


# F75
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_keeps_its_form(encoding, end, tmp_path):
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to("there/target")
    target.write_bytes(f"é{end}b".encode(encoding))
    target.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(target, 12345, 12345)
    before = target.stat()
    assert users_file.read(link) == "é\nb"
    users_file.replace(link, "ü\nc\n")
    assert target.read_bytes() == f"ü{end}c{end}".encode(encoding)
    after = target.stat()
    assert link.is_symlink()
    for field in ("st_mode", "st_uid", "st_gid"):
        assert getattr(after, field) == getattr(before, field)
    assert [*target.parent.iterdir()] == [target]


def test_a_new_file_has_the_mode_of_the_umask_or_the_given_one(tmp_path):  # F58
    before = os.umask(0o077)
    try:
        users_file.replace(tmp_path / "mine", "")
        users_file.replace(tmp_path / "ours", "", mode=0o644)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"mine": 0o600, "ours": 0o644}


def test_what_is_not_text_is_told_by_its_name(tmp_path):  # F76
    file = tmp_path / "requirements.txt"
    file.write_bytes(b"a\n\xe9")
    with pytest.raises(OSError, match=r"byte 2 is not utf-8: save it as UTF-8.*requirements\.txt"):
        users_file.read(file)


def test_a_file_that_cannot_be_written_is_as_before(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("before")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, os.strerror(28))))
    with pytest.raises(OSError, match="No space"):
        users_file.replace(file, "after")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["before"]


def test_an_attached_file_is_private_and_may_be_a_link(tmp_path):  # F75
    attach._write(tmp_path / "new" / "mine.json", "{}")
    assert (tmp_path / "new" / "mine.json").stat().st_mode & 0o777 == 0o600
    target = tmp_path / "elsewhere.json"
    target.write_text("old")
    target.chmod(0o644)
    (tmp_path / "new" / "other.json").symlink_to(target)
    attach._write(tmp_path / "new" / "other.json", "{}")
    assert target.read_text() == "{}"
    assert target.stat().st_mode & 0o777 == 0o600
