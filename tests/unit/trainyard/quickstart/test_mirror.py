"""Results come home by SFTP from a real sshd, while they are still being written."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.fakes import sshd as fake
from tests.fakes.sshd import Sshd
from trainyard.access.ssh import Connection
from trainyard.quickstart import mirror as module
from trainyard.quickstart.mirror import Mirror

pytestmark = pytest.mark.skipif(fake.BINARY is None, reason="sshd is not installed")


@pytest.fixture(scope="module")
def box(tmp_path_factory) -> Iterator[Sshd]:
    with Sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def connection(box) -> Connection:
    return Connection(
        host=box.host,
        user=box.user,
        host_key=box.host_key,
        port=box.port,
        private_key=box.key_file.read_text(),
    )


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def mirror(connection, tmp_path, told) -> Mirror:
    return Mirror(connection, str(tmp_path / "there"), tmp_path / "here", told.append)


@pytest.fixture
def write(tmp_path) -> Callable[[str, str], Path]:
    def written(name: str, text: str) -> Path:
        path = tmp_path / "there" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return written


def _files(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_only_what_changed_is_fetched_and_nothing_deleted(mirror, write, told):  # C6
    mirror.pull(last=True)  # the folder is not there yet
    write("checkpoint_000000/state.pt", "old")
    progress = write("progress.json", "1")
    mirror.pull(last=True)
    assert _files(mirror.here) == {"checkpoint_000000/state.pt": "old", "progress.json": "1"}
    del told[:]
    mirror.pull(last=True)
    assert told == []
    (mirror.here.parent / "there/checkpoint_000000/state.pt").unlink()
    progress.write_text("22")
    mirror.pull(last=True)
    assert [line.split()[1] for line in told] == [str(mirror.here / "progress.json")]
    assert _files(mirror.here) == {"checkpoint_000000/state.pt": "old", "progress.json": "22"}


def test_a_checkpoint_comes_with_all_of_its_files_or_not_at_all(mirror, write):
    write("trial/checkpoint_000001/a", "a")
    mirror.pull(last=False)
    write("trial/checkpoint_000001/shards/b", "b")
    mirror.pull(last=False)
    assert _files(mirror.here) == {}
    mirror.pull(last=False)
    folder = mirror.here / "trial"
    assert _files(folder) == {"checkpoint_000001/a": "a", "checkpoint_000001/shards/b": "b"}
    assert [path.name for path in folder.iterdir()] == ["checkpoint_000001"]


def test_a_checkpoint_that_goes_away_meanwhile_leaves_nothing(mirror, write, tmp_path, monkeypatch):
    """Ray removes old ones: between the listing and the fetching a file is gone, or another."""
    write("checkpoint_000001/a", "a")
    write("checkpoint_000001/b", "b")
    write("changed", "before")

    def changes(files: module.Files) -> dict[PurePosixPath, module.Files]:
        (tmp_path / "there/checkpoint_000001/b").unlink()
        (tmp_path / "there/changed").write_text("after it was listed")
        return units(files)

    units = module._units
    monkeypatch.setattr(module, "_units", changes)
    mirror.pull(last=True)
    assert _files(mirror.here) == {}
    assert list(mirror.here.iterdir()) == []


def test_links_are_not_followed(mirror, write):
    secret = write("../secret", "secret")
    link = write("plain", "plain").with_name("link")
    link.symlink_to(secret)
    link.with_name("folder").symlink_to(secret.parent)
    os.mkfifo(link.with_name("pipe"))
    mirror.pull(last=True)
    assert _files(mirror.here) == {"plain": "plain"}
