"""States in a bucket of a real object store: as in a folder, and safe between machines."""

import json
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from cluster import versitygw_store
from engine.state import Backend
from infra.operate import backend, states
from tests import pages, stores
from tests.waiting import wait_for
from trainyard.access import state_bucket

pytestmark = pytest.mark.integration

TEAM, ALONE = pages.read_by(__file__)
(UP,) = ALONE.of("python")
LOCK = "team/.pulumi/locks/organization/files/dev/{}.json"


@pytest.fixture(scope="module")
def store(store_program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    with stores.bare(versitygw_store.KIND, store_program, folder) as running:
        yield running


@pytest.fixture
def bucket(store, engine, monkeypatch):
    """A stack whose state is in an empty bucket; a client of that."""
    keys = {"AWS_ACCESS_KEY_ID": store.root.access, "AWS_SECRET_ACCESS_KEY": store.root.secret}
    ours = {"states": stores.BUCKET, "https://s3.example.com": store.endpoint}
    ours |= {f"{name}=…": f"{name}={value}" for name, value in keys.items()}
    user = pages.Terminal(engine.project, engine.environment, ours)
    user.run(replace(ALONE, text=ALONE.text.partition("python")[0]))
    user.run(TEAM)
    engine.environment |= user.environment | {
        "GITHUB_SERVER_URL": "https://git.example",
        "GITHUB_REPOSITORY": "team/cluster",
        "GITHUB_RUN_ID": "7",
    }
    for key, value in keys.items():
        monkeypatch.setenv(key, value)
    yield store.s3
    for name in names(store.s3):
        store.s3.delete_object(Bucket=stores.BUCKET, Key=name)


def names(s3):
    found = s3.list_objects_v2(Bucket=stores.BUCKET).get("Contents", ())
    return {each["Key"] for each in found}


def _backend(url):
    return backend.Backend(url=url, place=state_bucket.find(url))


def test_a_stack_lives_in_a_bucket(engine, bucket):
    engine.up(a={"text": "1"})
    engine.up("--expect-no-changes")
    engine.declare(a={"text": "2"})
    engine.up("--refresh")
    assert engine.files() == {"a": "2"}
    # By the names that the CLI gives them, and with the former state next to each.
    found = names(bucket)
    assert {"team/.pulumi/meta.yaml", "team/.pulumi/stacks/files/dev.json"} <= found
    assert "team/.pulumi/stacks/files/dev.json.bak" in found
    assert sum(name.startswith("team/.pulumi/backups/files/dev/dev.") for name in found) == 2
    assert not any("locks" in name for name in found)
    assert engine.run("stack", "ls") == (0, "dev\n")
    # The reaper of instances that no stack knows reads them too.
    place = _backend(engine.environment["PULUMI_BACKEND_URL"])
    assert [(each.project, each.name) for each in states.read_stacks(engine.project, place)] == [
        ("files", "dev")
    ]
    engine.done("destroy", "--yes")
    engine.done("stack", "rm", "--yes")
    assert names(bucket) == {"team/.pulumi/meta.yaml"}


@pytest.mark.pulumi
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("bucket")
def test_the_cli_and_the_engine_share_a_bucket(engine, pulumi):
    engine.up(a={"text": "1", "token": "canary-token"})
    pulumi("preview", "--expect-no-changes")
    engine.declare(a={"text": "2", "token": "canary-token"})
    pulumi("up", "--yes")
    engine.up("--refresh", "--expect-no-changes")
    # Each sees the operations of both.
    noted = json.loads(pulumi("stack history", "--json"))
    assert [each["kind"] for each in noted] == ["update"] * 3
    assert len(json.loads(engine.run("stack", "history", "--json")[1])) == 3
    pulumi("destroy", "--yes")
    assert engine.files() == {}


@pytest.mark.timeout(120)
def test_of_two_at_once_one_waits_or_is_refused(engine, bucket, tmp_path):
    engine.declare(a={"text": "1"})
    (hold := tmp_path / "hold").touch()
    first = engine.start("up", "--yes", hold=hold)
    wait_for("its lock", lambda: LOCK.format("engine") in names(bucket), 20)
    output = engine.fails()
    assert "the stack is locked by" in output
    assert "in https://git.example/team/cluster/actions/runs/7; wait for that process" in output
    assert "is alive and works on the stack" in engine.refused("cancel")
    engine.declare(a={"text": "2"})
    second = engine.start(*UP[2:], "--yes")
    assert any("Waiting for up to 300 s" in line for line in second.stdout)
    hold.unlink()
    for process in (first, second):
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert engine.files() == {"a": "2"}
    # Of many that begin at once at least one proceeds, and no two together.
    many = [engine.start("up", "--yes", delay=0.2) for _ in range(6)]
    ended = [(process.communicate(timeout=60)[0], process.returncode) for process in many]
    assert all("the stack is locked by" in output for output, code in ended if code != 0)
    assert any(code == 0 for _, code in ended)
    assert engine.files() == {"a": "2"}
    assert not any("locks" in name for name in names(bucket))


def test_a_store_that_refuses_or_is_gone_is_one_message(engine, bucket, store, tmp_path):
    engine.declare(a={"text": "1"})
    url = engine.environment["PULUMI_BACKEND_URL"]
    for changed, said in (
        ({"PULUMI_BACKEND_URL": url.replace(stores.BUCKET, "none")}, "NoSuchBucket"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch"),
    ):
        kept = dict(engine.environment)
        engine.environment |= changed
        code, output = engine.run("up", "--yes")
        engine.environment = kept
        assert code == 1
        assert said in output
        assert engine.files() == {}
    # In the middle: a resource that was made is recorded, or is found again.
    process = engine.start("up", "--yes", delay=2)
    wait_for("a file, whose create has not returned", engine.files, 20)
    store.kill()
    try:
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 1
        assert "could not be written" in output
        assert "the last good state is kept: look at the store and its keys" in output
        assert "Traceback" not in output
    finally:
        store.start()
    engine.up()
    assert engine.files() == {"a": "1"}


def test_what_a_name_in_a_bucket_answers(bucket, store, engine):
    place = Backend(engine.environment["PULUMI_BACKEND_URL"], engine.project)
    assert place.url == f"s3://{stores.BUCKET}/team"
    path = place.folder / "a" / "b.json"
    assert not path.exists()
    for call in (path.read_bytes, path.unlink, lambda: path.replace(b"", '"0"')):
        with pytest.raises((FileNotFoundError, FileExistsError)):
            call()
    path.create(b"1")
    with pytest.raises(FileExistsError):
        path.create(b"2")
    content, tag = path.read_tagged()
    path.write_bytes(b"3")
    with pytest.raises(FileExistsError):
        path.replace(b"4", tag)
    assert (content, path.read_bytes()) == (b"1", b"3")
    (path.parent / "c.txt").write_bytes(b"")
    assert [str(each) for each in place.folder.glob("*")] == [str(path.parent)]
    assert list(place.folder.glob("*/*.json")) == [path]
    with pytest.raises(state_bucket.BucketUrlError):
        state_bucket.find("s3:///team")
    with pytest.raises(ClientError):
        store.s3.head_object(Bucket=stores.BUCKET, Key="a/b.json")
