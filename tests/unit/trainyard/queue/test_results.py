"""Users read their own runs through the queue, and nothing else of the store."""

import asyncio
import json

import pytest

from tests.fakes.ray_head import TOKEN
from tests.outputs import of_stack
from tests.unit.trainyard.queue.test_users import submitted, with_users
from trainyard.client import outputs, queue_store
from trainyard.client.errors import ClientError
from trainyard.client.store import open_store
from trainyard.client.store_errors import TooLargeError
from trainyard.queue import results
from trainyard.store.objects import FolderStore
from trainyard.tracking.run_folder import SUMMARIES

RESULTS = "/api/results"
OTHERS = (
    ".trainyard/synthetic-images/a/0.jpg",
    "b/config.json",
    "../queue.db",
    "a/../b/config.json",
    ".trainyard/key",
    "",
    "/etc/group",
)


async def with_runs(queue, tmp_path):
    """Have a run of eva's, `a`, and one of another's, `b`; returns the store and how each asks."""
    eva, other, ann = await with_users(queue)
    await submitted(eva, "job-a", run="a")
    await submitted(other, "job-b", run="b")
    store = FolderStore(tmp_path / "results")
    for run in ("a", "b"):
        store.write(f"{run}/config.json", b'{"lr": 1}')
        store.write(f"{run}/metrics.jsonl", b'{"epoch": 0, "loss": 0.5}\n')
        store.write(f"{run}/checkpoint_000000-aaaa/model.pt", b"0123456789")
        store.write(f"{SUMMARIES}/{run}", b"{}")
        store.write(f".trainyard/sweeps/{run}/0-job.json", b"1")
    store.write(".trainyard/key", b"secret")
    store.write(".trainyard/synthetic-images/a/0.jpg", b"of all")
    return store, eva, other, ann


def store_of(queue, token, folder):
    """The store of a cluster that a user has attached."""
    values = of_stack(queue.url, folder) | {"rayToken": token, "storageUrl": "", "queue": "true"}
    return open_store(outputs.parse(json.dumps(values), None, "test"))


async def test_a_user_sees_their_runs_and_a_teacher_all(queue, tmp_path):  # F35
    store, eva, other, ann = await with_runs(queue, tmp_path)

    async def get(ask, what, **query):
        return await ask("GET", f"{RESULTS}/{what}", params=query)

    for ask, runs in ((eva, {"a"}), (other, {"b"}), (ann, {"a", "b", ".trainyard"})):
        _, found = await get(ask, "files")
        assert {name.partition("/")[0] for name in found} == runs
        status, found = await get(ask, "folders")
        assert (status, {*found}) == (200, runs)
        assert {*(await get(ask, "files", below=SUMMARIES))[1]} == runs - {".trainyard"}
    assert await get(eva, "folders", below="a") == (200, ["checkpoint_000000-aaaa"])
    for what, nothing in (("files", {}), ("folders", [])):
        for below in ("b", "b/checkpoint_000000-aaaa", ".trainyard", ".trainyard/sweeps/b"):
            assert await get(eva, what, below=below) == (200, nothing)
        for below in ("..", "a/..", "/etc", "a\0"):
            assert (await get(ann, what, below=below))[0] == 404, below
    for name in OTHERS:
        for method in ("GET", "DELETE"):
            params = {"name": name}
            assert (await eva(method, f"{RESULTS}/file", params=params))[0] == 404, name
    assert (await get(ann, "file", name="../queue.db"))[0] == 404
    assert (await get(eva, "file", name="a/metrics.jsonl", size="x"))[0] == 400
    for token in ("", "nobodys"):
        assert (await queue.ask("GET", f"{RESULTS}/files", token))[0] == 401
    for name in ("a/config.json", f"{SUMMARIES}/a", ".trainyard/sweeps/a/0-job.json"):
        assert (await eva("DELETE", f"{RESULTS}/file", params={"name": name}))[0] == 200
        assert store.get(name) is None
    # Nothing is written but the note that a run was pulled.
    for name in ("a/config.json", "b/pulled.json", "pulled.json", "a/x/pulled.json"):
        status, _ = await eva("PUT", f"{RESULTS}/file", params={"name": name}, data=b"{}")
        assert status in (403, 404), name


async def test_a_store_out_of_reach_is_told(queue, tmp_path):
    store = store_of(queue, TOKEN, tmp_path)  # its folder is not there
    with pytest.raises(ClientError, match="does not reach the store"):
        await asyncio.to_thread(store.folders)


async def test_what_is_longer_than_an_answer_comes_in_parts(queue, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "MOST_BYTES", 10)
    monkeypatch.setattr(queue_store, "PART_BYTES", 4)

    await with_runs(queue, tmp_path)
    store, name = store_of(queue, TOKEN, tmp_path), "a/checkpoint_000000-aaaa/model.pt"
    FolderStore(tmp_path / "results").write(name, b"0123456789ab")
    assert await asyncio.to_thread(store.read, name) == b"0123456789ab"
    with pytest.raises(TooLargeError):
        await asyncio.to_thread(store.read, name, 11)


async def test_a_sweeps_points_are_runs_of_its_user(queue):
    eva, other, _ = await with_users(queue)
    assert (await submitted(eva, "a", run="sweep", runs="sweep-0,sweep-1"))[0] == 200
    assert queue.records.runs("eva") == {"sweep", "sweep-0", "sweep-1"}
    status, said = await submitted(other, "b", run="mine", runs="sweep-1")
    assert (status, "run 'sweep-1' is of another user" in said) == (400, True)
