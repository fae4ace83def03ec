"""Archives that lead elsewhere, or do not end, through everything that unpacks one."""  # F47

from __future__ import annotations

import gzip
import importlib.util
import io
import re
import resource
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from cluster.replicate import Folder, Replica
from trainyard import checkpoint_files, objects
from trainyard.client import store
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status
from trainyard.client.pull.transfer import Transfer
from trainyard.client.store import StackFolder
from trainyard.client.sweep import collect
from trainyard.client.sweep.point import Point
from trainyard.client.sweep.records import Record, Records
from trainyard.runs import Run
from trainyard.serving import deploy
from trainyard.sweep import result

PROGRAM = Path(__file__).resolve().parents[2] / "docker" / "dataset" / "dataset.py"
NAME = "checkpoint_000001-abcd"
CANARY = "0_canary.jpg"  # an image of the data set, as far as its name goes
CONTENT = b"\xff\xd8\xff\xe0 an image"
MOST_WRITTEN = 16 * 2**20  # bytes of a file: a bomb has more
BOMB_BYTES = 65 * 2**20
LONG = "d" * 247  # sixteen of these are longer than PATH_MAX


@pytest.fixture(autouse=True)
def no_large_file() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_WRITTEN, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **fields: object) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for key, value in fields.items():
        setattr(entry, key, value)
    tar.addfile(entry, io.BytesIO(content))


def link_beyond_path_max(tar: tarfile.TarFile, outside: Path) -> None:
    """Leads outside where a path of links is too long to be resolved (CVE-2025-4517)."""
    steps, path = "abcdefghijklmnop", ""
    for step in steps:
        add(tar, f"{path}{LONG}", type=tarfile.DIRTYPE, mode=0o755)
        add(tar, f"{path}{step}", type=tarfile.SYMTYPE, linkname=LONG)
        path += f"{LONG}/"
    long = "/".join(steps) + "/" + "l" * 254
    add(tar, long, type=tarfile.SYMTYPE, linkname="../" * len(steps))
    # Most readers unpack two levels below the folder of this test.
    add(tar, "x", type=tarfile.SYMTYPE, linkname=f"{long}/../../{outside.name}")
    add(tar, f"x/training/{CANARY}", CONTENT)


def symbolic_link(tar: tarfile.TarFile, outside: Path) -> None:
    add(tar, "x", type=tarfile.SYMTYPE, linkname=str(outside))
    add(tar, f"x/training/{CANARY}", CONTENT)


def hard_link(tar: tarfile.TarFile, outside: Path) -> None:
    add(tar, f"training/{CANARY}", type=tarfile.LNKTYPE, linkname=str(outside / "secret.jpg"))


def absolute(tar: tarfile.TarFile, outside: Path) -> None:
    add(tar, f"{outside}/training/{CANARY}", CONTENT)


def climbing(tar: tarfile.TarFile, _: Path) -> None:
    add(tar, f"training/../../../training/{CANARY}", CONTENT)


def device(tar: tarfile.TarFile, _: Path) -> None:
    add(tar, f"training/{CANARY}", type=tarfile.CHRTYPE, devmajor=1, devminor=3)


def pipe(tar: tarfile.TarFile, _: Path) -> None:
    add(tar, f"training/{CANARY}", type=tarfile.FIFOTYPE)


def no_text(tar: tarfile.TarFile, _: Path) -> None:
    add(tar, "x", pax_headers={"path": f"training/0_\0{CANARY}"})


def large_header(tar: tarfile.TarFile, _: Path) -> None:
    add(tar, "x", CONTENT, pax_headers={"path": f"training/{'x' * 300_000}{CANARY}"})


def many_headers(tar: tarfile.TarFile, _: Path) -> None:
    """Python reads each within the one before."""
    header = tarfile.TarInfo.create_pax_global_header({"comment": ""})
    tar.fileobj.write(header * 2000)
    add(tar, f"training/{CANARY}", CONTENT)


def bomb(tar: tarfile.TarFile, _: Path) -> None:
    add(tar, f"training/{CANARY}", CONTENT + bytes(BOMB_BYTES))


def declared(tar: tarfile.TarFile, _: Path) -> None:
    entry = tarfile.TarInfo(f"training/{CANARY}")
    entry.size = 2**40  # and nothing follows
    tar.fileobj.write(entry.tobuf(tarfile.GNU_FORMAT))


def backwards(tar: tarfile.TarFile, _: Path) -> None:
    """Makes Python before 3.13.6 read it for ever (CVE-2025-8194)."""
    entry = tarfile.TarInfo(f"training/{CANARY}")
    entry.size = -1024
    tar.fileobj.write(entry.tobuf(tarfile.GNU_FORMAT))


def backwards_by_an_extended_header(tar: tarfile.TarFile, _: Path) -> None:
    add(tar, f"training/{CANARY}", pax_headers={"size": "-1024"})


def whole(_: tarfile.TarFile, __: Path) -> None:
    """Ends as it should."""


KINDS = {
    each.__name__: (each, lambda content: content)
    for each in (
        *(link_beyond_path_max, symbolic_link, hard_link, absolute, climbing, device, pipe),
        *(
            no_text,
            large_header,
            many_headers,
            declared,
            backwards,
            backwards_by_an_extended_header,
        ),
    )
} | {
    "bomb": (bomb, gzip.compress),
    "compressed, cut off": (whole, lambda content: gzip.compress(content)[:-100]),
    "cut off": (whole, lambda content: content[: -tarfile.RECORDSIZE]),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.jpg").write_bytes(CONTENT)
    return folder


@pytest.fixture(params=KINDS)
def hostile(request: pytest.FixtureRequest, outside: Path) -> bytes:
    """An archive with all classes of the data set, and a hostile end."""
    write, finish = KINDS[request.param]
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for split in ("training", "validation", "evaluation"):
            for number in range(11):
                add(tar, f"{split}/{number}_first.jpg", CONTENT)
        write(tar, outside)
    return finish(made.getvalue())


@pytest.fixture
def storage(hostile: bytes, tmp_path: Path) -> Path:
    """A store whose only checkpoint is such an archive."""
    Run((tmp_path / "store").as_uri(), "first").start({"epochs": 1})
    checkpoint = tmp_path / "store" / "first" / NAME
    checkpoint.mkdir()
    (checkpoint / "packed.tar").write_bytes(hostile)
    checkpoint_files.write_manifest(checkpoint, {})
    return tmp_path / "store"


def restored(storage: Path, folder: Path, _: pytest.MonkeyPatch) -> str:
    run = objects.open_url(f"{storage.as_uri()}/first")
    return checkpoint_files.choose(run, folder, had_one=True).fault


def served(storage: Path, _: Path, __: pytest.MonkeyPatch) -> str:
    with pytest.raises(deploy.DeployError) as raised:
        deploy._choose(storage.as_uri(), "first", None)
    return str(raised.value)


def pulled(storage: Path, folder: Path, _: pytest.MonkeyPatch) -> str:
    with pytest.raises(ClientError) as raised:
        Transfer(StackFolder(storage), "first", folder / "first").run()
    return str(raised.value)


def collected(storage: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place = StackFolder(storage)
    monkeypatch.setattr(store, "open_store", lambda _: place)
    record_key, archive_key = result.keys("sweep", 0, "job")
    place.write(record_key, result.write(result.Result(completed=True, value=1)))
    place.write(archive_key, (storage / "first" / NAME / "packed.tar").read_bytes())
    point = Point(number=0, overrides=(), identity="a", folder="0", bundle={})
    record = Record(sweep="sweep", job="job", number=0, folder="0", overrides=())
    with Records(folder, "sweep") as records:
        job = Job(status=Status.SUCCEEDED)
        return collect.collect(point, record, job, records, None).error


def replicated(storage: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    assert Replica(Folder(storage), Folder(folder / "replica")).copy() == []
    return restored(folder / "replica", folder / "restored", monkeypatch)


def filled(storage: Path, folder: Path, _: pytest.MonkeyPatch) -> str:
    spec = importlib.util.spec_from_file_location("canaries_dataset", PROGRAM)
    dataset = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = dataset  # dataclasses look their module up
    before = signal.getsignal(signal.SIGTERM)
    said = io.StringIO()
    try:
        spec.loader.exec_module(dataset)
        archive = str(storage / "first" / NAME / "packed.tar")
        with redirect_stdout(said):
            assert dataset.main(["--archive", archive, "--folder", str(folder)]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
        del sys.modules[spec.name]
    assert not any(folder.iterdir())
    return said.getvalue()


PATHS = {
    restored: "none of the 1 checkpoints in .* is valid",
    served: "has no valid checkpoint",
    pulled: "none of the 1 checkpoints in .* is valid",
    collected: "the files of a point cannot be unpacked",
    replicated: "none of the 1 checkpoints in .* is valid",
    filled: (
        "is damaged|leads out of|is a link or device|is larger than|holds more than|"
        "neither a zip nor a tar"
    ),
}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_nothing_of_it_is_written(
    path: Callable[[Path, Path, pytest.MonkeyPatch], str],
    storage: Path,
    outside: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for folder in ("scratch", "target"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    assert re.search(PATHS[path], path(storage, tmp_path / "target", monkeypatch))
    assert [path.name for path in outside.rglob("*")] == ["secret.jpg"]
    assert not [path for path in tmp_path.rglob("*.jpg") if path.parent != outside]
