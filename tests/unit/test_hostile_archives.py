"""Archives that lead elsewhere, or do not end, through everything that unpacks one."""  # F47

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

from node.replicate import Folder, Replica
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status
from trainyard.client.pull.transfer import Transfer
from trainyard.client.store import StackFolder
from trainyard.client.sweep import collect
from trainyard.client.sweep.point import Point
from trainyard.client.sweep.records import Record, Records
from trainyard.errors import JobError
from trainyard.resume import checkpoint_files
from trainyard.serving import deploy
from trainyard.store import objects
from trainyard.sweep import result
from trainyard.tracking.runs import Run

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


def entry(
    name: str, content: bytes = b"", form: int = tarfile.PAX_FORMAT, **fields: object
) -> bytes:
    """An entry of a tar, with its content; `fields` are those of its header."""
    header = tarfile.TarInfo(name)
    header.size = len(content)
    for key, value in fields.items():
        setattr(header, key, value)
    return header.tobuf(form) + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def link(name: str, target: object) -> bytes:
    return entry(name, type=tarfile.SYMTYPE, linkname=str(target))


def link_beyond_path_max(outside: Path) -> bytes:
    """Leads outside where a path of links is too long to be resolved (CVE-2025-4517)."""
    steps, path, made = "abcdefghijklmnop", "", b""
    for step in steps:
        made += entry(f"{path}{LONG}", type=tarfile.DIRTYPE, mode=0o755)
        made += link(f"{path}{step}", LONG)
        path += f"{LONG}/"
    long = "/".join(steps) + "/" + "l" * 254
    # Most readers unpack two levels below the folder of this test.
    made += link(long, "../" * len(steps)) + link("x", f"{long}/../../{outside.name}")
    return made + entry(f"x/training/{CANARY}", CONTENT)


IMAGE = f"training/{CANARY}"
GNU = tarfile.GNU_FORMAT
ENDS: dict[str, Callable[[Path], bytes]] = {
    "a link beyond PATH_MAX": link_beyond_path_max,
    "a symbolic link": lambda outside: link("x", outside) + entry(f"x/{IMAGE}", CONTENT),
    "a hard link": lambda outside: entry(
        IMAGE, type=tarfile.LNKTYPE, linkname=f"{outside}/secret.jpg"
    ),
    "an absolute name": lambda outside: entry(f"{outside}/{IMAGE}", CONTENT),
    "a climbing name": lambda _: entry(f"training/../../../{IMAGE}", CONTENT),
    "a device": lambda _: entry(IMAGE, type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    "a pipe": lambda _: entry(IMAGE, type=tarfile.FIFOTYPE),
    "a name that is not text": lambda _: entry("x", pax_headers={"path": f"training/0_\0{CANARY}"}),
    "a large header": lambda _: entry(
        "x", CONTENT, pax_headers={"path": f"training/{'x' * 300_000}{CANARY}"}
    ),
    # Python reads each within the one before.
    "many headers": lambda _: (
        tarfile.TarInfo.create_pax_global_header({"comment": ""}) * 2000 + entry(IMAGE, CONTENT)
    ),
    "more than follows": lambda _: entry(IMAGE, form=GNU, size=2**40),
    # Makes Python before 3.13.6 read it for ever (CVE-2025-8194).
    "a negative size": lambda _: entry(IMAGE, form=GNU, size=-1024),
    "a negative size of PAX": lambda _: entry(IMAGE, pax_headers={"size": "-1024"}),
    "a bomb": lambda _: entry(IMAGE, CONTENT + bytes(BOMB_BYTES)),
}
# What is done to the whole.
FINISHES: dict[str, Callable[[bytes], bytes]] = {
    "a bomb": gzip.compress,
    "compressed, cut off": lambda content: gzip.compress(content)[:-100],
    "cut off": lambda content: content[: -2 * tarfile.RECORDSIZE],
}


@pytest.fixture
def outside(tmp_path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.jpg").write_bytes(CONTENT)
    return folder


@pytest.fixture(params=ENDS | FINISHES)
def hostile(request, outside) -> bytes:
    """An archive with all classes of the data set, and a hostile end."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w"):
        for split in ("training", "validation", "evaluation"):
            for number in range(11):
                made.write(entry(f"{split}/{number}_first.jpg", CONTENT))
        if end := ENDS.get(request.param):
            made.write(end(outside))
    return FINISHES.get(request.param, bytes)(made.getvalue())


@pytest.fixture
def storage(hostile, tmp_path) -> Path:
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
    with pytest.raises(JobError) as raised:
        deploy._choose(storage.as_uri(), "first", None)
    return str(raised.value)


def pulled(storage: Path, folder: Path, _: pytest.MonkeyPatch) -> str:
    with pytest.raises(ClientError) as raised:
        Transfer(StackFolder(storage), "first", folder / "first").run()
    return str(raised.value)


def collected(storage: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place = StackFolder(storage)
    monkeypatch.setattr(collect, "results", lambda *_: place)
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
def test_nothing_of_it_is_written(path, storage, outside, tmp_path, monkeypatch):
    for folder in ("scratch", "target"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    assert re.search(PATHS[path], path(storage, tmp_path / "target", monkeypatch))
    assert [path.name for path in outside.rglob("*")] == ["secret.jpg"]
    assert not [path for path in tmp_path.rglob("*.jpg") if path.parent != outside]
