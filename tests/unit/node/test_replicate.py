"""Which files are copied to the second place, and which stay there."""

import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cluster.replica import MODULE_FILE, module_files
from node import replicate, supervisor
from node.replicate import Bucket, Folder, Replica
from tests import ran
from tests.ports import free_ports
from tests.waiting import wait_for
from trainyard.client.pull import marks
from trainyard.client.store import StackFolder
from trainyard.resume import checkpoint_files
from trainyard.store import objects, s3_requests
from trainyard.tracking.runs import Run

WEIGHTS = b"w" * 1000


@pytest.fixture
def here(tmp_path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path) -> Path:
    return tmp_path / "disk" / "there"


@pytest.fixture
def replica(here, there) -> Replica:
    here.mkdir()
    there.parent.mkdir()
    return Replica(Folder(here), Folder(there))


def a_run(here: Path, epochs: int, name: str = "first") -> Run:
    run = Run(f"file://{here}", name)
    run.start({"epochs": epochs})
    run.write_metrics([{"epoch": epoch} for epoch in range(epochs)])
    return run


def a_checkpoint(here: Path, name: str, run: str = "first") -> str:
    files = here.parent / "files"
    files.mkdir(exist_ok=True)
    (files / "checkpoint.pt").write_bytes(WEIGHTS)
    checkpoint_files.store(objects.open_url(f"file://{here}/{run}"), name, files, {})
    return name


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_what_is_there_is_what_was_made_and_is_marked_as_copied(replica, here, there):
    a_run(here, 2)
    newest = a_checkpoint(here, "checkpoint_000002-abcd")
    assert replica.copy() == []
    assert names(there) == names(here) - {"first/replicated.json"}
    assert (there / "first" / newest / "checkpoint.pt").read_bytes() == WEIGHTS
    store = StackFolder(here)
    assert marks.read(store, "first", marks.REPLICATED) == marks.PullMark(newest, 2)


def test_a_pass_copies_what_changed_and_nothing_else(replica, here, there, monkeypatch):
    run = a_run(here, 1)
    a_checkpoint(here, "checkpoint_000001-abcd")
    replica.copy()
    written: list[str] = []
    write = Folder.write
    monkeypatch.setattr(
        Folder, "write", lambda self, name, was: written.append(name) or write(self, name, was)
    )
    assert replica.copy() == written == []
    run.write_metrics([{"epoch": 0}, {"epoch": 1}])
    replica.copy()
    assert written == ["first/metrics.jsonl", "first/replicated.json"]
    # After a restart, it does not copy checkpoints again; files that were removed there come back.
    (there / "first" / "checkpoint_000001-abcd" / "checkpoint.pt").unlink()
    written.clear()
    Replica(Folder(here), Folder(there)).copy()
    assert "first/checkpoint_000001-abcd/checkpoint.pt" in written
    assert "first/checkpoint_000001-abcd/manifest.json" not in written


def test_a_manifest_comes_after_its_files_and_the_mark_after_all(replica, here, there, monkeypatch):
    a_run(here, 1)
    a_checkpoint(here, "checkpoint_000001-abcd")
    write = Folder.write

    def full(self: Folder, name: str, content: bytes) -> None:
        if name.endswith("checkpoint.pt"):
            raise OSError(28, "No space left on device")
        write(self, name, content)

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write", full)
        (fault,) = replica.copy()
    assert "No space left" in fault
    assert not [name for name in names(there) if "checkpoint_" in name]
    assert not (here / "first" / "replicated.json").exists()
    assert replica.copy() == []
    assert (there / "first" / "checkpoint_000001-abcd" / "manifest.json").exists()


def test_a_full_disk_leaves_nothing_half_written(replica, here, there):
    a_run(here, 1)
    a_checkpoint(here, "checkpoint_000001-abcd")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(WEIGHTS) // 2, hard))
        assert replica.copy()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert not [name for name in names(there) if "checkpoint_" in name]
    assert replica.copy() == []


def test_an_older_checkpoint_goes_once_a_newer_one_is_there(replica, here, there):
    a_run(here, 1)
    old = a_checkpoint(here, "checkpoint_000001-abcd")
    replica.copy()
    objects.open_url(f"file://{here}").delete(
        f"first/{old}/checkpoint.pt", f"first/{old}/manifest.json"
    )
    replica.copy()
    assert (there / "first" / old / "manifest.json").exists()
    (here / "first" / "checkpoint_000002-cdef").mkdir()
    (here / "first" / "checkpoint_000002-cdef" / "checkpoint.pt").write_bytes(b"cut off")
    replica.copy()
    assert (there / "first" / old / "manifest.json").exists()
    new = a_checkpoint(here, "checkpoint_000003-0123")
    replica.copy()
    stored = {path.name for path in (there / "first").glob("checkpoint_*")}
    assert new in stored
    assert old not in stored


@pytest.mark.parametrize(("starts", "own"), [(True, False), (False, False), (False, True)])
def test_nothing_of_another_stack_is_removed_or_overwritten(  # F55
    starts, own, replica, here, there
):
    other = there.parent / "other"
    a_run(other, 2)
    a_checkpoint(other, "checkpoint_000001-abcd")
    if not starts:
        (other / "first" / "starts.jsonl").unlink()
    other.rename(there)
    before = {name: (there / name).read_bytes() for name in names(there)}
    if own:
        a_run(here, 1)
    a_checkpoint(here, "checkpoint_000002-cdef")
    for each in (replica, Replica(Folder(here), Folder(there))):
        assert [fault[:45] for fault in each.copy()] == (
            ["first: the replica has another run of this na"] if starts or own else []
        )
        kept = {name: (there / name).read_bytes() for name in names(there)}
        assert kept | before == kept


def test_a_newer_one_that_is_not_whole_takes_no_ones_place(replica, here, there):  # F53
    a_run(here, 1)
    old = a_checkpoint(here, "checkpoint_000001-abcd")
    replica.copy()
    for file in ("checkpoint.pt", "manifest.json"):
        (here / "first" / old / file).unlink()
    new = here / "first" / a_checkpoint(here, "checkpoint_000002-cdef")
    manifest = (new / "manifest.json").read_text()
    for text in ('{"version": 1, "model": {}, "files": {}}', "[]", "", manifest):
        (new / "manifest.json").write_text(text)
        if text == manifest:
            (new / "checkpoint.pt").write_bytes(b"cut off")
        assert replica.copy() == []
        assert (there / "first" / old / "manifest.json").exists()
    (new / "checkpoint.pt").write_bytes(WEIGHTS)
    replica.copy()
    assert not (there / "first" / old).exists()


@pytest.mark.parametrize(
    "name",
    ["../canary", "first/../../canary", "/canary", "first//x", "x" * 256, "first/starts.jsonl/x"],
)
def test_a_name_that_leads_elsewhere_is_not_copied(name, replica, here, there, monkeypatch):  # F47
    a_run(here, 1)
    listed, read, source = Folder.listed, Folder.read, replica._source
    odd = {name: objects.Listed(1, "")}
    monkeypatch.setattr(
        Folder, "listed", lambda self: listed(self) | (odd if self is source else {})
    )
    monkeypatch.setattr(
        Folder, "read", lambda self, each, most: b"x" if each == name else read(self, each, most)
    )
    assert replica.copy() == []
    assert names(there.parent) == {
        f"there/{each}" for each in names(here) - {"first/replicated.json"}
    }


def test_what_is_gone_here_stays_there(replica, here, there):
    a_run(here, 1)
    kept = a_checkpoint(here, "checkpoint_000001-abcd")
    replica.copy()
    for path in sorted(here.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    a_run(here, 1, "second")
    replica.copy()
    assert (there / "first" / kept / "manifest.json").exists()
    assert (there / "second" / "config.json").exists()


def test_another_run_of_the_same_name_is_not_overwritten(replica, here, there):
    (there / "first").mkdir(parents=True)
    (there / "first" / "starts.jsonl").write_text('{"time": "of another stack"}\n')
    a_run(here, 1)
    a_run(here, 1, "second")
    (fault,) = replica.copy()
    assert fault.startswith("first: the replica has another run of this name")
    assert names(there) == {"first/starts.jsonl"} | {
        name for name in names(here) if name.startswith("second/") and "replicated" not in name
    }
    assert not (here / "first" / "replicated.json").exists()


def test_a_place_that_is_the_results_own_is_refused(here):
    here.mkdir()
    with pytest.raises(SystemExit, match="where the results are already"):
        Replica(Folder(here), Folder(here / "copy")).prove()
    assert names(here) == set()


def test_a_folder_whose_disk_is_not_there_is_a_fault(here, tmp_path):
    a_run(here, 1)
    (fault,) = Replica(Folder(here), Folder(tmp_path / "disk" / "there")).copy()
    assert f"{tmp_path}/disk is not there: attach its disk" in fault
    assert not (tmp_path / "disk").exists()


def place_files(folder: Path) -> Path:
    """The files of the service, as a supervisor writes them; return their folder."""
    (folder / "conf.d").mkdir(parents=True)
    service = supervisor.Definition(
        name="replica",
        command=["true"],
        environment={},
        files=module_files(),
        folders=[],
        stop_seconds=0,
    )
    supervisor._write(folder, service)
    return folder / "replica" / "files"


def test_its_files_are_all_that_a_bucket_needs(tmp_path):
    files = place_files(tmp_path)
    place = dict.fromkeys(("endpoint", "region", "access", "secret"), "x") | {"url": "s3://b"}
    code = f"import replicate; print(replicate.location({place}).where, replicate.archive.__file__)"
    done = ran.run([sys.executable, "-c", code], cwd=files)
    assert done.stdout.split() == ["s3://b", f"{files}/trainyard/store/archive.py"], done.stderr


@pytest.fixture
def service(here, there, replica) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """What copies, as its runtime starts it; and its URL."""
    assert replica
    (port,) = free_ports(1)
    settings = here.parent / "replica.json"
    places = {"source": {"url": f"file://{here}"}, "target": {"url": f"file://{there}"}}
    settings.write_text(json.dumps({"listen": "127.0.0.1", "port": port, **places}))
    files = place_files(here.parent / "stack")
    process = subprocess.Popen(
        [sys.executable, files / MODULE_FILE, settings],
        stdout=subprocess.PIPE,
        text=True,
        cwd=here.parent,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    yield process, f"http://127.0.0.1:{port}/health"
    process.kill()
    process.communicate()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def test_at_its_end_it_copies_once_more(service, here, there):
    process, url = service
    wait_for("its health", lambda: answers(url), 20)
    a_run(here, 3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert (there / "first" / "metrics.jsonl").read_text().count("epoch") == 3


def test_checkpoints_of_other_programs_are_copied_as_they_change(replica, here, there):
    weights = here / "plain" / "checkpoint_000001" / "model.pt"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"one")
    replica.copy()
    weights.write_bytes(b"two")
    replica.copy()
    assert (there / "plain" / "checkpoint_000001" / "model.pt").read_bytes() == b"two"
    assert not (here / "plain" / "replicated.json").exists()  # it is not a run of ours
    weights.parent.rename(weights.parent.with_name("checkpoint_000002"))
    replica.copy()
    assert names(there) == {"plain/checkpoint_000002/model.pt"}


def test_what_is_written_or_removed_meanwhile_is_no_fault(replica, here, there, monkeypatch):
    a_run(here, 1)
    a_run(here, 1, "second")
    (here / "second" / ".weights.pt.part").write_bytes(b"half")
    listed, source = Folder.listed, replica._source

    def stale(self: Folder) -> dict[str, objects.Listed]:
        return listed(self) | {"first/removed.txt": objects.Listed(1, "")} if self is source else {}

    monkeypatch.setattr(Folder, "listed", stale)
    assert replica.copy() == []
    assert (there / "second" / "metrics.jsonl").exists()
    assert not (there / "second" / ".weights.pt.part").exists()
    assert not (here / "first" / "replicated.json").exists()


def test_what_was_pulled_is_this_stores_own_business(replica, here, there):
    a_run(here, 1)
    (here / "first" / marks.MARK).write_bytes(b"{}")
    replica.copy()
    assert not {Path(name).name for name in names(there)} & set(marks.ALL)


REFUSAL = b"<Error><Code>No</Code><Message>may not</Message></Error>"


@pytest.mark.parametrize(
    ("status", "ends"), [(403, True), (404, True), (503, False), (507, False), (0, False)]
)
def test_only_what_the_settings_can_mend_ends_it(status, ends, monkeypatch):  # F2
    def send(*_: object, **__: object) -> s3_requests.Reply:
        if not status:
            raise s3_requests.UnansweredError("ConnectionRefusedError")
        return s3_requests.Reply(status, REFUSAL)

    monkeypatch.setattr(s3_requests.Requests, "send", send)
    bucket = Bucket("there", endpoint="http://127.0.0.1:9", keys=objects.Keys("key", "secret"))
    with pytest.raises(replicate.FAULTS) as caught:
        bucket.write("a", b"")
    assert "submit" not in str(caught.value)
    if ends:
        with pytest.raises(
            SystemExit, match=r"'s3://there': cannot write s3://there/a: No may not; check keys"
        ):
            replicate._refuse(caught.value, "s3://there")
    else:
        replicate._refuse(caught.value, "s3://there")


def test_a_large_file_is_read_in_parts(replica, here, there, monkeypatch):
    """And once more from its beginning, where a store gets it again."""
    monkeypatch.setattr(replicate, "MOST_BYTES", 500)
    a_run(here, 1)
    a_checkpoint(here, "checkpoint_000001-abcd")
    upload = Folder.upload

    def again(self: Folder, name: str, source: objects.Readable) -> objects.Digest:
        assert len(source.read(200) + source.read(100)) == 300
        return upload(self, name, source)

    monkeypatch.setattr(Folder, "upload", again)
    assert replica.copy() == []
    copied = there / "first" / "checkpoint_000001-abcd" / "checkpoint.pt"
    assert copied.read_bytes() == WEIGHTS


def test_a_proxy_is_asked_for_the_other_place_only(monkeypatch):  # F58
    asked = []

    class Proxy(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.path)
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    (closed,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{closed}"
    settings = {"url": "s3://b", "endpoint": endpoint, "region": "r", "access": "k", "secret": "s"}
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        threading.Thread(target=proxy.serve_forever, args=(0.02,), daemon=True).start()
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        monkeypatch.setenv("no_proxy", "")
        own, other = (replicate.location(settings, elsewhere=each) for each in (False, True))
        with pytest.raises(objects.AwayError):
            own.write("a", b"1")
        with pytest.raises(objects.AwayError):
            own.upload("b", io.BytesIO(b"2"))
        assert asked == []
        other.write("a", b"1")
        other.upload("b", io.BytesIO(b"2"))
        proxy.shutdown()
    assert asked == [f"{endpoint}/b/a", f"{endpoint}/b/b"]
