"""A run comes home: changed files, whole or not at all, and on from where a pull was cut."""

import fcntl
import gzip
import hashlib
import io
import json
import os
import resource
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from tests.client import Terminal
from trainyard.client import cli, store
from trainyard.client.commands import pull
from trainyard.client.dashboard import UnreachableError
from trainyard.client.errors import ClientError
from trainyard.client.job_server import Job, Status
from trainyard.client.pull import marks, meter, source
from trainyard.client.pull.transfer import Pulled, Transfer
from trainyard.client.store_errors import AwayError
from trainyard.resume import checkpoint_files
from trainyard.store import objects
from trainyard.tracking.runs import Run

MODEL = {"job": "test", "classes": ["a"], "file": "checkpoint.pt", "prefix": ""}
PART = 1 << 20
BIG = os.urandom(5 * PART + 7)
SMALL = {f"small{number}": os.urandom(1000) for number in range(3)}


class Tagged(store.StackFolder):
    """A folder that tells the MD5 of its files, as a bucket does, and which parts were read."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = []
        self.before = lambda *_: None

    def listed(self, prefix):
        return {
            name: found._replace(tag=hashlib.md5(self.get(f"{prefix}/{name}") or b"").hexdigest())
            for name, found in super().listed(prefix).items()
        }

    def part(self, key, first, size):
        self.before(key, first)
        self.asked.append((key, first, size))
        return super().part(key, first, size)


@pytest.fixture
def place(stack, monkeypatch):
    monkeypatch.setattr(source, "PART_BYTES", PART)
    monkeypatch.setattr(source, "PARTS_AT_ONCE", 1)  # asked one after the other: counted so
    monkeypatch.setattr(objects, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(objects, "LONGEST_PAUSE_S", 0.01)
    run = Run(stack.storage_url, "first")
    run.start({"epochs": 2})
    run.write_metrics([{"epoch": 0, "loss": 1.0}])
    return Tagged(Path(stack.storage_url.removeprefix("file://")))


@pytest.fixture
def checkpoint(place, tmp_path):
    """Stores a checkpoint; its name."""

    def make(number, **files):
        folder = tmp_path / f"files{number}"
        folder.mkdir()
        for name, content in (files or {"checkpoint.pt": BIG, **SMALL}).items():
            (folder / name).write_bytes(content)
        name = f"checkpoint_{number:06d}-abcd"
        checkpoint_files.store(objects.open_url(f"{place.where}/first"), name, folder, MODEL)
        return name

    return make


@pytest.fixture
def home(tmp_path):
    return tmp_path / "results" / "first"


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_run_comes_unpacked_and_can_be_gone_on_with(place, checkpoint, home):  # C6
    name = checkpoint(1)
    pulled = Transfer(place, "first", home).run()
    assert (pulled.records, pulled.checkpoint) == (3, name)
    assert pulled.transfer.startswith("5 MB, ")
    for file, content in {"checkpoint.pt": BIG, **SMALL}.items():
        assert (home / name / file).read_bytes() == content
    assert names(home) == {
        *("config.json", "starts.jsonl", "metrics.jsonl", ".pull.lock", ".records.json"),
        *(f"{name}/{file}" for file in ("checkpoint.pt", "manifest.json", *SMALL)),
    }
    # The results are a store, as a stack or a service would read it.
    target = home.parent / "again"
    checkpoint_files.fetch(objects.open_url(home.as_uri()), name, target)
    assert (target / "small1").read_bytes() == SMALL["small1"]


def test_a_second_pull_brings_what_has_changed(place, checkpoint, home):
    first = checkpoint(1)
    Transfer(place, "first", home).run()
    place.asked.clear()
    assert Transfer(place, "first", home).run() == Pulled(0, first, "")
    assert place.asked == []
    metrics = home / "metrics.jsonl"
    metrics.symlink_to(metrics.rename(home.parent / "kept.jsonl"))  # F75
    Run(place.where, "first").write_metrics([{"epoch": 0}, {"epoch": 1}])
    second = checkpoint(2)
    pulled = Transfer(place, "first", home).run()
    assert (pulled.records, pulled.checkpoint) == (1, second)
    assert metrics.is_symlink()
    assert metrics.read_text().count("epoch") == 2
    assert {key.split("/")[1] for key, _, _ in place.asked} == {"metrics.jsonl", second}
    assert sorted(path.name for path in home.glob("checkpoint_*")) == [second]
    assert marks.read(place, "first") == marks.PullMark(second, 2)


def test_a_record_of_many_parts_comes_once(place, home):
    """Its tag in a bucket is not a digest of it."""
    large = f"{hashlib.md5(b'').hexdigest()}-3"
    name = "b" * 250  # a name that leaves no room for an ending
    place.write(f"first/{name}", BIG)
    listed = place.listed
    place.listed = lambda prefix: {
        name: each._replace(tag=large) for name, each in listed(prefix).items()
    }
    assert Transfer(place, "first", home).run() == Pulled(4, "", "")
    assert (home / name).read_bytes() == BIG
    place.asked.clear()
    assert Transfer(place, "first", home).run() == Pulled(0, "", "")
    assert place.asked == []
    (home / name).write_bytes(b"changed here")
    (home / ".records.json").write_text("[" * 10**5)  # and what is known is damaged
    assert Transfer(place, "first", home).run() == Pulled(1, "", "")


def test_a_manifest_may_say_more_than_is_known(place, checkpoint, home):  # F53
    name = checkpoint(1)
    path = f"first/{name}/manifest.json"
    manifest = json.loads(place.get(path) or b"")
    for digest in manifest["files"].values():
        digest["mtime"] = 1
    place.write(path, json.dumps(manifest).encode())
    pulled = Transfer(place, "first", home).run()
    assert pulled.checkpoint == name


def cut(place, error, at):
    def before(key, first):
        if key.endswith("checkpoint.pt") and first >= at:
            raise error

    place.before = before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), AwayError("away")])
def test_what_was_cut_off_goes_on_where_it_was(error, place, checkpoint, home, monkeypatch):
    monkeypatch.setenv(objects.PATIENCE_VARIABLE, "0")
    name = checkpoint(1)
    cut(place, error, 3 * PART)
    with pytest.raises((KeyboardInterrupt, ClientError)) as caught:
        Transfer(place, "first", home).run()
    if isinstance(error, AwayError):
        assert "away; received files are kept in" in str(caught.value)
    assert list(home.glob("checkpoint_*")) == []  # nothing half
    place.before = lambda *_: None
    place.asked.clear()
    pulled = Transfer(place, "first", home).run()
    assert pulled.checkpoint == name
    big = [first for key, first, _ in place.asked if key.endswith("checkpoint.pt")]
    assert big == [3 * PART, 4 * PART, 5 * PART]
    assert (home / name / "checkpoint.pt").read_bytes() == BIG


def test_a_store_that_comes_back_is_waited_for(place, checkpoint, home):
    name = checkpoint(1)
    faults = iter([True, True, True])

    def before(key, first):
        if first == 2 * PART and next(faults, False):
            raise AwayError("away")

    place.before = before
    pulled = Transfer(place, "first", home).run()
    assert pulled.checkpoint == name
    assert next(faults, False) is False
    assert (home / name / "checkpoint.pt").read_bytes() == BIG


def test_a_store_that_never_answered_is_not_waited_for(place, home):
    place.listed = Mock(side_effect=AwayError("nothing answers there"))
    with pytest.raises(AwayError, match="nothing answers there"):
        Transfer(place, "first", home).run()
    assert not home.exists()


def test_what_was_here_and_is_damaged_comes_anew(place, checkpoint, home):
    name = checkpoint(1)
    part = home / f".{name}.part"
    part.mkdir(parents=True)
    (part / "checkpoint.pt").write_bytes(b"x" * 100 + BIG[100:PART])
    Transfer(place, "first", home).run()
    assert (home / name / "checkpoint.pt").read_bytes() == BIG


def test_a_damaged_checkpoint_gives_way_to_the_one_before(place, checkpoint, home, capsys):
    first, second = checkpoint(1), checkpoint(2)
    file = Path(place.where.removeprefix("file://")) / "first" / second / "checkpoint.pt"
    file.write_bytes(b"x" * len(BIG))
    transfer = Transfer(place, "first", home)
    for _ in range(2):
        pulled = transfer.run()
        assert pulled.checkpoint == first
    assert capsys.readouterr().err.count(f"warning: checkpoint {second} is skipped: ") == 1
    assert [path.name for path in home.glob("*checkpoint_*")] == [first]
    shutil.rmtree(home)
    shutil.rmtree(file.parents[1] / first)
    with pytest.raises(ClientError, match=r"none of the 1 checkpoints in .* is valid"):
        Transfer(place, "first", home).run()
    assert (home / "metrics.jsonl").exists()


@pytest.mark.parametrize("kind", ["no files", "no weights", "packed, cut off", "another name"])
def test_the_last_good_one_stays_here_until_the_next_is_whole(kind, place, checkpoint, home):  # F53
    first = checkpoint(1)
    Transfer(place, "first", home).run()
    last = checkpoint(2, **{"checkpoint.pt": b"1", "b": b"2"})  # whole until now
    there = Path(place.where.removeprefix("file://")) / "first" / last
    manifest = json.loads((there / "manifest.json").read_text())
    if kind == "no files":
        manifest["files"] = {}
    elif kind == "no weights":
        manifest["model"] = {"file": "lost.pt"}
    elif kind == "packed, cut off":
        content = gzip.compress((there / "packed.tar").read_bytes())[:-9]
        (there / "packed.tar").write_bytes(content)
        digest = checkpoint_files.digest_of(there / "packed.tar")
        manifest["files"]["packed.tar"] = digest._asdict()
    else:
        there = there.rename(there.with_name("checkpoint_zz"))
    (there / "manifest.json").write_text(json.dumps(manifest))
    pulled = Transfer(place, "first", home).run()
    assert pulled.checkpoint == first
    assert [path.name for path in home.glob("*checkpoint_*")] == [first]
    assert (home / first / "checkpoint.pt").read_bytes() == BIG


def test_one_that_the_store_lost_stays_here(place, checkpoint, home):  # F53
    first, second = checkpoint(1), checkpoint(2)
    Transfer(place, "first", home).run()
    shutil.rmtree(Path(place.where.removeprefix("file://")) / "first" / second)
    assert Transfer(place, "first", home).run().checkpoint == first
    assert sorted(path.name for path in home.glob("*checkpoint_*")) == [first, second]


def test_a_key_that_cannot_be_a_file_here_holds_nothing_up(place, home, monkeypatch):  # F53
    listed = place.listed
    odd = {name: objects.Listed(1, "") for name in ("metrics.jsonl/x", "a/../../b", "x" * 300)}
    monkeypatch.setattr(place, "listed", lambda prefix: listed(prefix) | odd)

    def part(key, _, size):
        if "x" not in key:
            raise FileNotFoundError(key)
        return b"x" * size

    monkeypatch.setattr(place, "part", part)
    Transfer(place, "first", home).run()
    assert not (home.parent / "b").exists()


def test_one_that_the_run_removes_meanwhile_gives_way_to_the_newer(place, checkpoint, home, capsys):
    first = checkpoint(1)
    folder = Path(place.where.removeprefix("file://")) / "first"

    def before(key, at):
        if first in key and at == 2 * PART:
            place.before = lambda *_: None
            checkpoint(2)
            shutil.rmtree(folder / first)

    place.before = before
    pulled = Transfer(place, "first", home).run()
    assert pulled.checkpoint == "checkpoint_000002-abcd"
    assert capsys.readouterr().err == ""
    assert [path.name for path in home.glob("*checkpoint_*")] == [pulled.checkpoint]


def test_a_folder_that_cannot_be_written(place, home):
    home.parent.mkdir()
    home.write_text("a file")
    with pytest.raises(ClientError, match=r"cannot write to .*/first \(File exists\): make room"):
        Transfer(place, "first", home).run()


def test_a_folder_without_room_takes_nothing(place, checkpoint, home, monkeypatch):
    checkpoint(1)
    usage = namedtuple("usage", "total used free")(0, 0, 60_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(ClientError, match=r"needs 5 MB and some room in .* has 60 MB free"):
        Transfer(place, "first", home).run()
    assert not list(home.glob("*checkpoint_*"))


def test_a_disk_that_is_full_leaves_nothing_half(place, checkpoint, home):
    name = checkpoint(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * PART, hard))  # the kernel takes no more
    try:
        with pytest.raises(ClientError, match=r"cannot write to .*: make room there"):
            Transfer(place, "first", home).run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(home.glob("checkpoint_*")) == []
    Transfer(place, "first", home).run()
    assert (home / name / "checkpoint.pt").read_bytes() == BIG


def test_another_run_of_the_name_is_not_mixed_in(place, home):
    Transfer(place, "first", home).run()
    folder = Path(place.where.removeprefix("file://")) / "first"
    (folder / "starts.jsonl").write_text('{"time": "another"}\n')
    with pytest.raises(ClientError, match="has another run of the name 'first'"):
        Transfer(place, "first", home).run()


def test_nor_is_another_plain_script_and_one_that_ended_is_the_same(place, home):
    place.write("plain/jobs.jsonl", b'{"job": "a"}\n')
    Transfer(place, "plain", home).run()
    place.write("plain/jobs.jsonl", b'{"job": "a", "status": "FAILED"}\n{"job": "b"}\n')
    Transfer(place, "plain", home).run()
    place.write("plain/jobs.jsonl", b'{"job": "c"}\n')
    with pytest.raises(ClientError, match="has another run of the name 'plain'"):
        Transfer(place, "plain", home).run()


def test_names_in_the_store_lead_nowhere_else(place, home):
    evil = {name: objects.Listed(1, "") for name in ("../x", "/x", "a//b", ".hidden", "a/\0")}
    listed = place.listed
    place.listed = lambda prefix: listed(prefix) | evil
    assert Transfer(place, "first", home).run() == Pulled(3, "", "")
    assert not (home.parent / "x").exists()


def test_two_pulls_of_a_run_do_not_meet(place, home):
    home.mkdir(parents=True)
    with (home / ".pull.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ClientError, match="another `train pull` writes to"):
            Transfer(place, "first", home).run()


def test_a_mark_of_any_content_is_none(place):
    for content in (b"", b"[", b"[]", b'{"checkpoint": "a"}', b'{"checkpoint": 1, "epochs": []}'):
        place.write("first/pulled.json", content)
        assert marks.read(place, "first") is None


def train(*arguments):
    done = CliRunner().invoke(cli.app, arguments)
    fault = str(done.exception) if isinstance(done.exception, ClientError) else ""
    return SimpleNamespace(code=done.exit_code, out=done.stdout, fault=fault)


def test_the_command_says_what_came_and_keeps_it_from_git(
    place, checkpoint, values, outputs_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    file = str(outputs_file(json.dumps(values)))
    assert "no run is called 'other'" in train("pull", "other", "--outputs", file).fault
    assert not Path("results").exists()
    done = train("pull", "first", "--outputs", file)
    assert (done.code, done.out) == (
        0,
        "run first: 3 files of records in results/first\nit has no checkpoint yet\n",
    )
    assert Path("results/.gitignore").read_text() == "*\n"
    name = checkpoint(1)
    assert f"run first: {name} (5 MB, " in train("pull", "first", "--outputs", file).out
    assert "nothing new" in train("pull", "first", "--outputs", file).out
    assert train("pull", "first", "--outputs", file, "--to", "other").code == 0
    assert (tmp_path / "other" / "first" / name / "manifest.json").exists()
    monkeypatch.setattr("trainyard.client.jobs.connect", lambda _: Jobs(Status.STOPPED, then=str))
    said = train("pull", "first", "--follow", "--outputs", file).out.splitlines()
    assert said[1:] == ["run first: nothing new in results/first", "its job has ended: STOPPED"]
    assert "is not 1 to 63" in train("pull", "../x", "--outputs", file).fault


class Jobs:
    """A job server whose answers are a list."""

    def __init__(self, *answers, then):
        self.answers = list(answers)
        self.then = then

    def jobs(self):
        self.then(len(self.answers))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return [Job(status=answer, metadata={"run": "first"}), Job(status=Status.RUNNING)]


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(pull, "POLL_S", 0)


@pytest.mark.usefixtures("quick")
def test_a_run_is_followed_past_its_end(place, checkpoint, home):
    """Each checkpoint comes as it is stored; the last one was stored just before the job ended."""

    def then(left):
        if left < 4:
            checkpoint(4 - left)

    statuses = (Status.PENDING, UnreachableError("restarts"), Status.RUNNING, Status.SUCCEEDED)
    server = Jobs(*statuses, then=then)
    told = []
    transfer = Transfer(place, "first", home)
    assert pull._follow(server, "first", transfer, told.append, 60) == "SUCCEEDED"
    came = ["", *(f"checkpoint_00000{number}-abcd" for number in (1, 2, 3))]
    assert [pulled.checkpoint for pulled in told] == came
    assert [path.name for path in home.glob("*checkpoint_*")] == [came[-1]]


@pytest.mark.usefixtures("quick")
def test_a_run_that_nobody_trains_is_pulled_once(place, home):
    server, told = Mock(**{"jobs.return_value": []}), []
    assert pull._follow(server, "first", Transfer(place, "first", home), told.append, 60) == ""
    assert told == [Pulled(3, "", "")]
    with pytest.raises(ClientError, match="no run is called 'second', and no job of it waits"):
        pull._follow(server, "second", Transfer(place, "second", home), told.append, 60)


@pytest.mark.usefixtures("quick")
def test_a_head_that_stays_away_ends_the_following(place, home):
    server = Jobs(*[UnreachableError("refused")] * 9, then=lambda _: None)
    with pytest.raises(ClientError, match=r"lost the job server for 0 s \(refused\)"):
        pull._follow(server, "first", Transfer(place, "first", home), print, 0)


def test_a_terminal_has_a_bar_and_a_file_has_lines(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("trainyard.client.pull.meter.time.monotonic", lambda: now[0])
    for out in (Terminal(), io.StringIO()):
        shown = meter.Meter("first: c", 100 * meter.MB, out)
        shown.skip(20 * meter.MB)
        now[0] += 20
        shown.add(40 * meter.MB)
        now[0] += 20
        shown.add(40 * meter.MB)
        shown.close()
        lines = out.getvalue()
        if out.isatty():
            assert "[##############----------] first: c: 60 of 100 MB, 2 MB/s" in lines
            assert lines.endswith("\r\x1b[2K")
        else:
            assert lines == "first: c: 100 of 100 MB, 2 MB/s\n"
