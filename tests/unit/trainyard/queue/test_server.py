"""The queue speaks Ray's Jobs API: what clients send and see, and what is refused."""

import asyncio
import importlib.metadata
import json

from ray.dashboard.modules.version import CURRENT_VERSION

from trainyard.dev_session import messages
from trainyard.queue import records as kept
from trainyard.queue import server


async def test_a_job_is_one_for_its_clients_from_the_queue_to_its_end(queue):
    assert await queue.submit("a", run="r", user="eva") == (
        200,
        {"job_id": "a", "submission_id": "a"},
    )
    assert queue.head.started == []
    waiting = await queue.job("a")
    assert (waiting["status"], waiting["metadata"]["run"]) == ("PENDING", "r")
    assert await queue.ask("GET", "/api/jobs/a/logs") == (200, {"logs": ""})
    query = "/api/v0/logs/file?node_id=any&submission_id=a"
    status, text = await queue.ask("GET", query)
    assert (status, "has no driver node id" in text) == (500, True)
    await queue.step()
    assert queue.head.started == ["a"]
    running = await queue.job("a")
    assert (running["status"], running["submission_id"]) == ("RUNNING", "a")
    assert await queue.ask("GET", "/api/jobs/a/logs") == (200, {"logs": "log of a"})
    assert await queue.ask("GET", query) == (200, "file of a")
    queue.head.end("a", message="well done")
    assert await queue.status("a") == "SUCCEEDED"
    await queue.step()
    queue.head.restart()  # its memory is not needed any more
    ended = await queue.job("a")
    assert (ended["status"], ended["message"]) == ("SUCCEEDED", "well done")
    assert ended["end_time"] >= ended["start_time"]
    assert (await queue.ask("DELETE", "/api/jobs/a"))[1] == {"deleted": True}
    assert (await queue.ask("GET", "/api/jobs/a"))[0] == 404


async def test_a_job_that_the_head_is_just_given_has_no_log_yet(queue):
    await queue.submit("a")
    assert queue.records.begin(queue.records.active()[0], now=1.0, share=1.0, gpus=0.0)
    assert await queue.ask("GET", "/api/jobs/a/logs") == (200, {"logs": ""})
    status, text = await queue.ask("GET", "/api/v0/logs/file?node_id=any&submission_id=a")
    assert (status, "has no driver node id" in text) == (500, True)


async def test_a_lost_attempt_is_followed_by_the_next_under_the_same_id(queue):
    await queue.submit("a", retries="3")
    await queue.step()
    lines, ended = [], asyncio.Event()

    async def follow():
        headers = {"Authorization": "Bearer the-token"}
        url = f"{queue.url}/api/jobs/a/logs/tail"
        async with queue._session.ws_connect(url, headers=headers) as stream:
            async for message in stream:
                lines.append(message.data)  # noqa: PERF401 - one by one
        ended.set()

    follower = asyncio.create_task(follow())
    while not lines:
        await asyncio.sleep(0.01)
    queue.head.restart()
    assert await queue.status("a") == "RUNNING"  # nobody has looked yet
    await queue.step()
    assert queue.head.started == ["a", "a-2"]
    found = await queue.job("a")
    assert (found["submission_id"], found["metadata"]["attempt"]) == ("a", "2")
    assert await queue.ask("GET", "/api/jobs/a/logs") == (200, {"logs": "log of a-2"})
    _, listed = await queue.ask("GET", "/api/jobs/")
    assert [job["submission_id"] for job in listed] == ["a", None]
    while len(lines) < 2:
        await asyncio.sleep(0.01)
    queue.head.end("a-2")
    await queue.step()
    await ended.wait()
    await follower
    assert lines == ["log of a\n", "log of a-2\n"]


async def test_the_token_is_the_heads_and_other_requests_are_its_own(queue):
    paths = ("/api/version", "/api/queue", "/api/jobs/", "/api/jobs/a", "/api/jobs/a/logs")
    for path in (*paths, "/api/packages/gcs/_ray_pkg_1.zip", "/api/jobs/a/logs/tail"):
        for token in ("", "wrong"):
            assert (await queue.ask("GET", path, token))[0] == 401, path
    for path in ("/api/jobs/", "/api/jobs/a/stop"):
        assert (await queue.ask("POST", path, "", json={}))[0] == 401
        # A page of somebody else can send a cookie, as a browser keeps it.
        cookies = {server.COOKIE: "the-token"}
        assert (await queue.ask("POST", path, "", json={}, cookies=cookies))[0] == 401
    assert queue.head.asked == []
    assert (await queue.ask("GET", "/health", ""))[0] == 200
    assert (await queue.ask("GET", "/page", ""))[0] == 403  # says the head
    cookies = {server.COOKIE: "of before"}  # the head's page asks for another
    assert (await queue.ask("GET", "/page", "", cookies=cookies))[0] == 403
    assert await queue.ask("GET", "/page") == (200, "the head's page")
    queue.head.away = True
    assert (await queue.ask("GET", "/page"))[0] == 502
    _, version = await queue.ask("GET", "/api/version")
    assert version == {
        "version": CURRENT_VERSION,
        "ray_version": importlib.metadata.version("ray"),
        "ray_commit": "",
        "session_name": queue.records.id,
        "queue": True,
    }


async def test_what_is_refused_is_refused_at_once_and_says_why(monkeypatch, queue):
    for facts, said in (
        ({"priority": "1001"}, "priority '1001' is not a whole number from -1000 to 1000"),
        ({"priority": "-1001"}, "-1001"),
        ({"priority": "high"}, "'high'"),
        ({"retries": "-1"}, "retries '-1'"),
        ({"after": "nobody"}, "after 'nobody' is no job of this cluster"),
        ({"after": "../api"}, "is no job"),
        ({"demand": "{"}, "resources are no amounts"),
        ({"demand": '[{"GPU": -1}]'}, "GPU -1"),
        ({"demand": '[{"GPU": NaN}]'}, "GPU nan"),
        ({"demand": '[{"CPU": 2}, {"CPU": 1}]'}, "CPU 2; CPU 1 at once and never fits: the"),
    ):
        status, text = await queue.submit("a", **facts)
        assert (status, said in text) == (400, True), text
    status, text = await queue.submit("a", cpus=3)
    assert "largest of 1 nodes has CPU 2; ask for less" in text
    assert (await queue.submit("big", cpus=3, force="1"))[0] == 200
    for body in ("[", "[]", "{}", '{"entrypoint": 1}', "[" * 100_000):
        assert (await queue.ask("POST", "/api/jobs/", data=body))[0] == 400
    for name in ("../a", "a" * 121, "a b"):
        assert (await queue.submit(name))[0] == 400
    text = json.dumps({"entrypoint": "x" * server.submission.MOST_BODY})
    assert (await queue.ask("POST", "/api/jobs/", data=text))[0] == 413
    assert (await queue.submit("a"))[0] == 200
    status, text = await queue.submit("a")
    assert (status, "already exists" in text) == (400, True)
    monkeypatch.setattr(kept, "MOST_WAITING", 2)
    assert (await queue.submit("b"))[0] == 429
    assert [job.id for job in queue.records.active()] == ["big", "a"]


async def test_packages_are_kept_whole_and_by_a_name_of_ray(monkeypatch, queue):
    path = "/api/packages/gcs/_ray_pkg_0123.zip"
    assert (await queue.ask("GET", path))[0] == 404
    assert (await queue.ask("PUT", path, data=b"content"))[0] == 200
    assert (await queue.ask("PUT", path, data=b"other"))[0] == 200  # the first stays
    assert (await queue.ask("GET", path))[0] == 200
    job = {"entrypoint": "true", "runtime_env": {"working_dir": "gcs://_ray_pkg_0123.zip"}}
    assert (await queue.ask("POST", "/api/jobs/", json=job))[0] == 200
    await queue.step()
    assert queue.head.packages == {"_ray_pkg_0123.zip": b"content"}
    for name in ("..%2Fqueue.db", ".hidden", "a" * 201):
        assert (await queue.ask("PUT", f"/api/packages/gcs/{name}", data=b""))[0] == 400
    monkeypatch.setattr("trainyard.queue.packages.MOST_BYTES", 3)
    assert (await queue.ask("PUT", "/api/packages/gcs/large.zip", data=b"content"))[0] == 413
    folder = queue.packages.path("x").parent
    assert [each.name for each in folder.iterdir()] == ["_ray_pkg_0123.zip"]


async def test_what_is_for_a_dev_session_goes_to_the_head_at_once(queue):
    name = messages.name("0123abcd", 1)
    assert (await queue.ask("PUT", f"/api/packages/gcs/{name}", data=b"a save"))[0] == 200
    assert queue.head.packages == {name: b"a save"}
    assert not queue.packages.has(name)


async def test_the_list_has_who_waits_for_what_and_hides_variables(queue):
    await queue.submit("a", cpus=2, user="eva", run="first")
    await queue.submit("b", cpus=2, user="<b>max</b>", priority="5", after="a")
    env = {"env_vars": {"KEY": "secret"}}
    job = {"entrypoint": "true", "submission_id": "c", "runtime_env": env}
    await queue.ask("POST", "/api/jobs/", json=job | {"metadata": {"after": "a,b"}})
    await queue.step()
    _, found = await queue.ask("GET", "/api/queue")
    first, second, third = sorted(found["jobs"], key=lambda row: row["job"])
    assert (first["state"], first["needs"], first["run"]) == ("RUNNING", "CPU 2", "first")
    assert (second["place"], second["priority"]) == (1, 5)
    assert "job a" in second["reason"]
    assert third["state"] == "WAITING"
    assert (await queue.job("b"))["message"].startswith("place 1: after job a")
    assert "secret" not in json.dumps(await queue.job("c"))
    queue.head.away = True
    _, listed = await queue.ask("GET", "/api/jobs/")
    states = {job["submission_id"]: job["status"] for job in listed}
    assert states == {"a": "RUNNING", "b": "PENDING", "c": "PENDING"}
