"""Archives of the store: unpacked files, and what tests/unit/test_hostile_archives.py leaves."""

import errno
import io
import os
import tarfile
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainyard.store import archive

FILES = {
    "a": b"",
    "b/c": b"x" * 511,
    "b/d": b"y" * 512,
    "b/e": os.urandom(2**20 + 1),
    "ü" * 60: b"umlauts",
    "/".join(["n" * 250, "m" * 250, "end"]): b"a long name",
}


def entry(name: str, content: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def written(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return path


def unpacked(path: Path, most_bytes: int = 2**22) -> dict[str, bytes]:
    target = path.parent / "target"
    target.mkdir(exist_ok=True)
    try:
        archive.unpack(path, target, most_bytes=most_bytes)
    finally:
        assert not (target / archive.SCRATCH).exists()
    return {
        each.relative_to(target).as_posix(): each.read_bytes()
        for each in target.rglob("*")
        if each.is_file()
    }


@pytest.fixture
def good(tmp_path) -> Path:
    folder = tmp_path / "folder"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    with tarfile.open(tmp_path / "good.tar", "w") as tar:
        for path in sorted(folder.rglob("*")):  # with its times and owner
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return tmp_path / "good.tar"


def test_files_come_back_and_replace_earlier_ones(good):
    (good.parent / "target").mkdir()
    (good.parent / "target" / "a").write_bytes(b"earlier")
    (good.parent / "target" / archive.SCRATCH).mkdir()  # left by a killed process
    (good.parent / "target" / archive.SCRATCH / "half").touch()
    assert unpacked(good) == FILES


@pytest.mark.parametrize(
    "bad",
    [
        entry("."),
        entry("x" * 256),
        entry("x/" * 384 + "x"),
        entry("\udcff"),
        entry("link", type=tarfile.LNKTYPE, linkname="first"),
        entry("sparse", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}),
        entry("other size", pax_headers={"size": "99"}),
        entry("name", pax_headers={"comment": "x" * archive.LONGEST_HEADER}),
        entry("first"),
        entry("first/below"),
    ],
    ids=lambda bad: f"{bad[0].name[:20]!a} {bad[0].type!r}",
)
def test_anything_but_files_inside_is_refused(bad, tmp_path):
    path = written(tmp_path / "bad.tar", entry("first", b"1"), bad, entry("last", b"2"))
    with pytest.raises(archive.ArchiveError):
        unpacked(path)
    assert not any((tmp_path / "target").iterdir())  # nothing of the first either
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bad.tar", "target"]


def test_too_much_is_refused_before_it_is_written(tmp_path, monkeypatch):
    path = written(tmp_path / "large.tar", entry("first", b"12345"), entry("second", b"678"))
    assert set(unpacked(path, most_bytes=8)) == {"first", "second"}
    with pytest.raises(archive.ArchiveError, match=r"'second' it holds 2 files of 8 bytes.*or 7"):
        unpacked(path, most_bytes=7)
    monkeypatch.setattr(archive, "MOST_FILES", 1)
    with pytest.raises(archive.ArchiveError, match="more than 1 or"):
        unpacked(path)


def test_a_full_disk_is_not_taken_for_damage(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(archive, "_write", Mock(side_effect=full))
    with pytest.raises(OSError, match="No space left"):
        unpacked(written(tmp_path / "good.tar", entry("first", b"1")))
    assert not any((tmp_path / "target").iterdir())


HEALTH = [HealthCheck.function_scoped_fixture]


@settings(max_examples=100, suppress_health_check=HEALTH)
@given(st.integers(0, 4 * 512 + 1))
def test_one_that_was_cut_off_is_named(tmp_path, size):
    whole = written(tmp_path / "whole.tar", entry("a", b"1" * 513), entry("b/c", b"2")).read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:size])
    with pytest.raises(archive.ArchiveError, match="cut off"):
        unpacked(tmp_path / "cut.tar")


@settings(max_examples=200, suppress_health_check=HEALTH)
@given(st.integers(0, 6 * 512 - 1), st.integers(1, 255))
def test_no_flipped_byte_raises_another_error(tmp_path, place, change):
    long = "n" * 120
    content = bytearray(
        written(tmp_path / "whole.tar", entry(long, b"1" * 513), entry("b", b"2")).read_bytes()
    )
    content[place] ^= change
    (tmp_path / "odd.tar").write_bytes(content)
    try:
        found = unpacked(tmp_path / "odd.tar")
    except archive.ArchiveError:
        return
    assert len(found) >= 1
