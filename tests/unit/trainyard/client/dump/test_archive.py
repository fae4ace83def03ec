"""The archive is bounded, private and says what is missing."""

import stat
import tarfile
import threading
from unittest.mock import Mock

import pytest

from trainyard.client.dump import archive
from trainyard.client.dump.archive import Archive
from trainyard.client.dump.masks import Masks
from trainyard.client.errors import ClientError

SECRET = "canary-0123456789-0123456789"


def index(path):
    with tarfile.open(path) as tar:
        return tar.extractfile("debug-dump/index.md").read().decode()


def test_files_are_cut_at_lines_and_all_of_them_are_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(archive, "MOST_FILE", 100)
    monkeypatch.setattr(archive, "MOST_ALL", 147)
    made = Archive(Masks([SECRET]))
    lines = [f"{number:02} {SECRET}" for number in range(20)]
    made.add("a.log", "\n".join(lines))
    made.add("b.json", lines)
    made.add("c.log", "x" * 1000)  # one line
    made.add("d.log", "y" * 100)
    made.add("e.log", "z" * 99)
    assert made.files["a.log"] == b"\n".join(b"%02d ***" % number for number in (17, 18, 19))
    assert made.files["b.json"].startswith(b'[\n "00 ***",\n "01 ***"')
    assert SECRET[:12].encode() not in b"".join(made.files.values())
    assert made.files["c.log"] == b""
    assert made.unread == {"e.log": "the files before it have 0 MiB"}
    made.write(tmp_path / "x.tar.gz", "Stack <b>")
    told = index(tmp_path / "x.tar.gz")
    assert told.startswith("# Stack &#60;b&#62;\n")
    assert "| `a.log` | 20, the end of 639 |" in told
    assert ", the beginning of " in told.partition("`b.json`")[2].partition("\n")[0]
    assert "- `e.log`: the files before it have 0 MiB\n" in told


def test_parts_that_fail_or_hang_cost_no_other_and_show_no_secret(tmp_path):  # F35
    made, over = Archive(Masks([SECRET])), threading.Event()

    fails = Mock(side_effect=ValueError(f"no {SECRET}\n| here"))
    made.ask({"late": over.wait, "bad": fails, "good.json": lambda: {"a": 1}}, 0.2)
    over.set()
    assert made.files == {"good.json": b'{\n "a": 1\n}'}
    assert made.unread["late"] == "no answer within 0.2 s"
    assert made.unread["bad"] == "no ***\n| here"
    made.write(tmp_path / "x.tar.gz", "S")
    assert "- `bad`: no &#42;&#42;&#42; &#124; here\n" in index(tmp_path / "x.tar.gz")


def test_it_is_for_its_user_only_and_replaces_no_file(tmp_path, monkeypatch):  # F38
    path = tmp_path / "x.tar.gz"
    made = Archive(Masks([]))
    made.add("a", "b")
    assert made.write(path, "S") == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(ClientError, match="File exists"):
        made.write(path, "S")
    assert path.read_bytes() == before

    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(tarfile.TarFile, "addfile", full)
    with pytest.raises(ClientError, match="No space left"):
        made.write(tmp_path / "y.tar.gz", "S")
    assert not (tmp_path / "y.tar.gz").exists()
