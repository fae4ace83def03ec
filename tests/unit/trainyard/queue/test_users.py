"""Users with tokens of their own: what they see, touch and submit, and who makes them."""

import asyncio
import json

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, select, text
from sqlalchemy.orm import Session

from tests.fakes.ray_head import TOKEN
from trainyard import yielding
from trainyard.queue import server, submission
from trainyard.queue.models import Run
from trainyard.queue.records import MIGRATIONS, Records
from trainyard.tracking import run_folder

USERS = "/api/queue/users"


async def with_users(queue):
    """Make a teacher and two users; returns how each asks."""
    _, tokens = await queue.ask("POST", USERS, json={"names": ["eva", "max"]})
    asked = {"names": ["ann"], "role": "teacher"}
    _, of_teacher = await queue.ask("POST", USERS, json=asked)
    tokens |= of_teacher

    def asking(name):
        async def ask(method, path, **sent):
            return await queue.ask(method, path, tokens[name], **sent)

        return ask

    return [asking(name) for name in ("eva", "max", "ann")]


async def submitted(ask, name, variables=None, **facts):
    env = {"runtime_env": {"env_vars": variables}} if variables else {}
    job = {"entrypoint": "true", "submission_id": name, "entrypoint_num_cpus": 1, **env}
    return await ask("POST", "/api/jobs/", json=job | {"metadata": facts})


async def test_a_users_job_is_this_users_whatever_the_client_says(queue):
    eva, _, ann = await with_users(queue)
    assert (await submitted(eva, "a", user="max", run="r", job_name="r (max)"))[0] == 200
    assert (await submitted(ann, "b", user="max"))[0] == 200
    await queue.step()
    facts = [queue.head.jobs[name]["metadata"] for name in ("a", "b")]
    assert [each["user"] for each in facts] == ["eva", "ann"]
    assert [each["job_name"] for each in facts] == ["r (eva)", "b (ann)"]
    assert [job.user for job in queue.records.active()] == ["eva", "ann"]
    assert (await eva("GET", "/api/version"))[1]["user"] == "eva"
    status, said = await submitted(eva, "c", priority="1")
    assert (status, "priority '1' is not a whole number from -1000 to 0" in said) == (400, True)
    assert (await submitted(eva, "c", priority="-1"))[0] == 200
    assert (await submitted(ann, "d", priority="1"))[0] == 200


async def test_users_see_and_touch_what_is_theirs_and_a_teacher_all(queue):
    eva, other, ann = await with_users(queue)
    await submitted(eva, "a", run="r")
    await submitted(eva, "waits", after="a")
    await submitted(other, "b")
    await queue.step()
    queue.head.jobs["direct"] = queue.head.jobs["b"] | {"submission_id": "direct"}
    raw = "/api/v0/logs/file?node_id=any&lines=-1&submission_id"
    for name in ("a", "direct", "nothing"):
        missing = (404, f"Job {name} does not exist")
        for method, path in (
            ("GET", f"/api/jobs/{name}"),
            ("GET", f"/api/jobs/{name}/logs"),
            ("GET", f"/api/jobs/{name}/logs/tail"),
            ("POST", f"/api/jobs/{name}/stop"),
            ("DELETE", f"/api/jobs/{name}"),
            ("GET", f"{raw}={name}"),
        ):
            assert await other(method, path) == missing, path
    assert queue.head.stopped == []
    assert not queue.records.get("a").stop
    ids = [
        [job["submission_id"] for job in (await ask("GET", "/api/jobs/"))[1]]
        for ask in (eva, other, ann)
    ]
    assert ids == [["a", "waits"], ["b"], ["a", "b", "waits", "direct", None]]
    assert await other("GET", "/api/jobs/b/logs") == (200, {"logs": "log of b"})
    assert await other("GET", f"{raw}=b") == (200, "file of b")
    assert await ann("GET", f"{raw}=direct") == (200, "file of direct")
    # All see who is before whom, but not the names of others' jobs and runs.
    for ask, told in (
        (eva, {"a", "waits", ""}),
        (other, {"b", ""}),
        (ann, {"a", "waits", "b"}),
    ):
        rows = (await ask("GET", "/api/queue"))[1]["jobs"]
        assert {row["job"] for row in rows} == told
        assert sorted(row["user"] for row in rows) == ["eva", "eva", "max"]
        assert [row["place"] for row in rows] == [None, None, 1]
    text = json.dumps((await other("GET", "/api/queue"))[1])
    assert '"r"' not in text
    assert "after job" not in text
    costs = [
        {each["job"] for each in (await ask("GET", "/api/queue/cost"))[1]["shares"]}
        for ask in (eva, other, ann)
    ]
    assert costs == [{"a"}, {"b"}, {"a", "b", ""}]
    for name, after in (("a", 400), ("direct", 400), ("b", 200)):
        status, said = await submitted(other, f"x{name}", after=name)
        assert (status, "is no job of this cluster" in str(said)) == (after, after == 400)
    assert (await submitted(ann, "y", after="a,direct"))[0] == 200
    assert (await ann("POST", "/api/jobs/a/stop"))[1] == {"stopped": True}
    assert (await ann("POST", "/api/jobs/direct/stop"))[1] == {"stopped": True}
    assert (await other("POST", "/api/jobs/b/stop"))[1] == {"stopped": True}


async def test_of_the_heads_pages_users_get_nodes_and_logs_only(queue):
    eva, _, ann = await with_users(queue)
    await submitted(eva, "a")
    await queue.step()
    queue.head.asked.clear()
    log = "/api/v0/logs/file"
    for ask, who in ((eva, "eva, whose role is user"), (ann, "ann, whose role is teacher")):
        for method, path in (
            ("GET", "/page"),
            ("GET", "/"),
            ("GET", "/api/v0/actors"),
            ("GET", "/nodes"),
            ("GET", "/nodes?view=details"),
            ("POST", "/api/v0/nodes"),
            ("GET", "/api//v0/nodes"),
            ("GET", log),
            ("GET", f"{log}?submission_id="),
            ("GET", f"{log}?node_id=any&filename=job-driver-b.log"),
            ("GET", f"{log}?submission_id=a&filename=x"),
            ("GET", f"{log}?submission_id=a&pid=1"),
            ("GET", f"{log}?submission_id=a&submission_id=b"),
            ("POST", f"{log}?submission_id=a"),
            ("PUT", "/api/serve/applications/"),
            ("PUT", "/api/jobs/a/stop"),
        ):
            status, said = await ask(method, path)
            assert (status, said) == (403, f"Forbidden to {who}: the stack's own token may"), path
    assert queue.head.asked == []
    for path in (
        "/api/v0/nodes?detail=1&limit=10",
        f"{log}?submission_id=a",
        "/nodes?view=summary",
    ):
        status, said = await eva("GET", path, cookies={server.COOKIE: "mine"})
        assert status == (404 if path.startswith("/nodes") else 200)  # the stand-in lacks it
        assert queue.head.headers["Authorization"] == f"Bearer {TOKEN}"
        assert "Cookie" not in queue.head.headers
        assert TOKEN not in str(said)


async def test_a_user_who_was_removed_is_out_at_once_and_the_jobs_stay(queue):
    eva, _, ann = await with_users(queue)
    await submitted(eva, "a")
    await queue.step()
    token = (await queue.ask("POST", USERS, json={"names": ["tim"]}))[1]["tim"]
    await submitted(lambda *a, **k: queue.ask(a[0], a[1], token, **k), "t")
    await queue.step()
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{queue.url}/api/jobs/t/logs/tail"
    async with queue._session.ws_connect(url, headers=headers) as stream:
        assert (await stream.receive()).data == "log of t\n"
        assert (await ann("POST", f"{USERS}/end", json={"names": ["tim", "eva"]}))[0] == 200
        # The job runs on; a request that had begun would go on as long.
        assert (await asyncio.wait_for(stream.receive(), 5)).data != "log of t\n"
    for path in ("/api/jobs/", "/api/version", "/page", "/api/v0/nodes", USERS):
        assert await eva("GET", path) == (401, server.NO_CALLER)
    assert await eva("POST", "/api/jobs/", json={}) == (401, server.NO_CALLER)
    assert await queue.status("a") == "RUNNING"
    assert (await ann("POST", "/api/jobs/a/stop"))[1] == {"stopped": True}


async def test_the_stack_and_teachers_make_users_and_only_the_stack_teachers(tmp_path, queue):
    eva, _, ann = await with_users(queue)
    may = "the stack's own token and teachers may"
    for method, path in (("GET", USERS), ("POST", USERS), ("POST", f"{USERS}/end")):
        said = (403, f"Forbidden to eva, whose role is user: {may}")
        assert await eva(method, path, json={"names": ["max"]}) == said
    status, said = await ann("POST", USERS, json={"names": ["x"], "role": "teacher"})
    assert (status, "role is teacher: the stack's own token may" in said) == (403, True)
    status, said = await ann("POST", f"{USERS}/end", json={"names": ["max", "ann"]})
    assert (status, "ann: no user of this name that you may remove" in said) == (400, True)
    assert (await ann("POST", USERS, json={"names": ["x"]}))[0] == 200
    for names, why in (
        (["<b>x</b>"], "is not 1 to 64 letters"),
        (["a b"], "'a b' is not 1 to 64"),
        (["x" * 300], f"user name '{'x' * 80}' is not 1 to 64 letters, digits"),
        (["1a", ""], "'1a'"),
        (["xé"], "'xé'"),
        (["../x"], "'../x'"),
        ([3], "'3'"),
        (["y", "y"], "a name is given twice"),
        (["y", "eva"], "eva: a user has this name"),
        ([], "not a list of 1 to 1000"),
        ([f"u{i}" for i in range(1001)], "not a list of 1 to 1000"),
        ([f"u{i}" for i in range(997)], "more than 1000 users"),
        ("eva", "not a list"),
    ):
        for role in ("user", "teacher"):
            status, said = await queue.ask("POST", USERS, json={"names": names, "role": role})
            assert (status, why in said) == (400, True), said
    assert (await queue.ask("POST", USERS, json={"names": ["y"], "role": "admin"}))[0] == 400
    assert (await queue.ask("POST", USERS, data="["))[0] == 400
    assert (await queue.ask("POST", USERS, "", json={"names": ["y"]}))[0] == 401
    _, found = await ann("GET", USERS)
    told = [(each["name"], each["role"], each["seen"] is not None) for each in found]
    assert told == [
        ("ann", "teacher", True),
        ("eva", "user", True),
        ("max", "user", False),
        ("x", "user", False),
    ]
    assert all(
        each["since"] > 0 and set(each) == {"name", "role", "since", "seen"} for each in found
    )
    # A lost token is replaced: the name has its jobs again.
    assert (await queue.ask("POST", f"{USERS}/end", json={"names": ["ann", "eva"]}))[0] == 200
    _, again = await queue.ask("POST", USERS, json={"names": ["eva"]})
    assert (await eva("GET", "/api/jobs/"))[0] == 401
    assert (await queue.ask("GET", "/api/jobs/", again["eva"])) == (200, [])
    assert len(again["eva"]) == 43
    kept = b"".join(each.read_bytes() for each in tmp_path.glob("queue.db*"))
    assert again["eva"].encode() not in kept


async def test_no_id_run_or_package_hits_a_job_of_another(queue):
    eva, other, ann = await with_users(queue)
    variable = submission.RUN_VARIABLE
    assert variable == run_folder.RUN_VARIABLE
    await submitted(eva, "a", run="first")
    await submitted(eva, "e-2", {variable: "second"})
    await submitted(eva, "q-x")
    await queue.submit("plain", user="root", run="third")
    for ask in (other, ann):
        for variables, facts in (
            ({}, {"run": "first"}),
            ({variable: "first"}, {"run": "new"}),
            ({}, {"run": "second"}),
            ({variable: "third"}, {}),
        ):
            status, said = await submitted(ask, "b", variables, **facts)
            assert (status, "is of another user: take another --name" in said) == (400, True)
    assert (await submitted(eva, "c", {variable: "first"}, run="second"))[0] == 200
    assert (await queue.submit("d", user="root", run="first"))[0] == 200
    assert (await submitted(other, "free", {variable: "fourth"}, run="new"))[0] == 200
    # The head has an attempt `a-2` of `a`, and `e-2` would be one of `e`.
    queue.head.jobs["known"] = {}
    for name in ("a", "a-2", "a-17", "e", "known"):
        status, said = await submitted(other, name)
        assert (status, "already exists" in said) == (400, True), name
    for name in ("a-", "a-b", "e-2-b", "ab-2", "q"):
        assert (await submitted(other, name))[0] == 200
    assert (await submitted(eva, "a-2"))[0] == 200
    path = f"/api/packages/gcs/{yielding.package('a')}"
    assert (await other("PUT", path, data=b""))[0] == 400
    assert (await other("PUT", "/api/packages/gcs/_ray_pkg_1.zip", data=b"x"))[0] == 200
    queue.head.away = True
    assert (await submitted(other, "later"))[0] == 200


def test_runs_of_an_older_queue_are_those_of_their_first_user(tmp_path):
    url = f"sqlite:///{tmp_path}/queue.db"
    with create_engine(url).begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "second")
        for number, run, user in (
            (1, "r", "eva"),
            (2, "r", "max"),
            (3, "", "max"),
            (4, "s", "max"),
        ):
            values = f"{number}, 'j{number}', '{user}', '{run}', '', '', '', 0, '', NULL, 0, 0, ''"
            job = f"INSERT INTO jobs VALUES ({values}, 0, 0, NULL, NULL, '', '', NULL)"
            connection.execute(text(job))
    records = Records(url)
    with Session(records._engine) as session:
        found = [(each.name, each.user) for each in session.scalars(select(Run).order_by(Run.name))]
    records.close()
    assert found == [("r", "eva"), ("s", "max")]
