"""`train user`, and `train` with a user's file, at a real queue."""

import asyncio
import json
import shlex
import sys
from contextlib import contextmanager, suppress
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from tests import ui_stack
from tests.fakes.ray_head import TOKEN
from trainyard.client import outputs
from trainyard.client.cli import _told, app
from trainyard.client.errors import ClientError


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Run `train` in a thread, without a stack of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(outputs, "of_state", Mock(side_effect=ClientError("no stack")))

    async def train(*arguments):
        result = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        if isinstance(result.exception, SystemExit | None):
            return result.exit_code, result.output
        return 1, str(_told(result.exception))

    return train


@pytest.fixture
def admin(train, tmp_path, queue):
    """The same as the stack of the queue."""
    file = tmp_path / "outputs.json"
    ui_stack.write_outputs(file, queue.url, tmp_path / "store", rayToken=TOKEN)
    return lambda *arguments: train(*arguments, "--outputs", str(file))


@contextmanager
def working(queue):
    """Have each job end, with the answer to `train attach`."""
    found = {
        "python": ".".join(map(str, sys.version_info[:2])),
        "groups": {},
        "most": 0,
        "folder": True,
    }

    async def work():
        while True:
            await queue.step()
            for name in queue.head.running():
                command = shlex.split(queue.head.jobs[name]["entrypoint"])
                if command[:2] == ["python", "-c"]:
                    queue.head.files[name] = command[3] + json.dumps(found)
                queue.head.end(name)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()


async def test_users_are_made_listed_and_ended(admin, queue, tmp_path):
    code, said = await admin("user", "add", "eva", "--file", "eva.json")
    assert (code, said) == (0, "wrote eva.json: each user runs train attach with theirs\n")
    file = tmp_path / "eva.json"
    assert file.stat().st_mode & 0o777 == 0o600
    found = json.loads(file.read_text())
    assert found == {"address": queue.url, "token": found["token"]}
    assert (await queue.ask("GET", "/api/jobs/", found["token"]))[0] == 200
    for names, where, said in (
        (["max"], ("--file", "eva.json"), "eva.json exists: move it away"),
        (["max", "tim"], ("--file", "new.json"), "--file is for one user: give --files FOLDER"),
        (["max"], ("--file", "new.json", "--files", "f"), "--file is for one user"),
        (["a b"], ("--files", "class"), "user name 'a b' is not 1 to 64 letters"),
        (["eva"], ("--files", "class"), "eva: a user has this name"),
        (["max"], ("--files", "eva.json"), "cannot write eva.json (File exists)"),
        ([], (), "nobody is named: `train user add NAME`"),
    ):
        code, found = await admin("user", "add", *names, *where)
        assert (code, said in found) == (1, True), found
    assert not (tmp_path / "new.json").exists()
    code, said = await admin("user", "add", "s1", "s2", "--files", "class")
    files = sorted((tmp_path / "class").iterdir())
    assert [(each.name, each.stat().st_mode & 0o777) for each in files] == [
        ("s1.json", 0o600),
        ("s2.json", 0o600),
    ]
    assert (tmp_path / "class").stat().st_mode & 0o777 == 0o700
    code, said = await admin("user", "add", "ann", "--role", "teacher")
    assert f"it is for train attach {queue.url} --token-file FILE" in said
    token = said.splitlines()[1].split("\t")[1]
    assert (await queue.ask("GET", "/api/queue/users", token))[0] == 200
    code, said = await admin("user", "list", "--json")
    rows = {row["name"]: row for row in json.loads(said)}
    assert {name: row["role"] for name, row in rows.items()} == {
        "ann": "teacher",
        **dict.fromkeys(("eva", "s1", "s2"), "user"),
    }
    assert rows["eva"]["seen"] >= rows["eva"]["since"] > "20"
    assert rows["s1"]["seen"] == ""
    assert (await admin("user", "rm", "s1", "s2"))[1] == (
        "no token was ended: nobody can be asked; add --yes"
    )
    assert (await admin("user", "rm", "s1", "s2", "--yes"))[0] == 0
    code, said = await admin("user", "rm", "eva")
    assert said == "ended: eva; their jobs stay, and teachers can stop them\n"
    code, said = await admin("user", "rm", "eva")
    assert (code, "eva: no user of this name that you may remove" in said) == (1, True)
    assert [row["name"] for row in json.loads((await admin("user", "list", "--json"))[1])] == [
        "ann"
    ]


async def test_train_works_with_a_users_file(train, admin, queue, tmp_path):
    await admin("user", "add", "eva", "max", "--files", "class")
    with working(queue):
        code, said = await train("attach", "class/eva.json", "-s", "mine")
        assert code == 0, said
        # A forwarded port is another address.
        address = queue.url.replace("127.0.0.1", "localhost")
        other = ("attach", address, "--token-file", "class/max.json", "-s", "other")
        code, said = await train(*other)
        assert code == 0, said
        (tmp_path / "code").mkdir()
        (tmp_path / "code/script.py").write_text("print('said')\n")
        submit = ("submit", "code/script.py", "--name", "r", "--no-wait", "-s")
        code, said = await train(*submit, "mine")
        assert code == 0, said
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                while any(job.state != "SUCCEEDED" for job in queue.records.listed()):
                    await asyncio.sleep(0.01)
        code, said = await train(*submit, "other")
        assert (code, "run 'r' is of another user: take another --name" in said) == (1, True)
        code, said = await train(*submit, "mine")  # it goes on with one's own
        assert code == 0, said
    code, said = await train("list", "--mine", "--json", "-s", "mine")
    assert {(row["run"], row["user"]) for row in json.loads(said)} == {
        ("", "eva"),
        ("r", "eva"),
    }
    code, said = await train("list", "--json", "-s", "other")
    assert {row["user"] for row in json.loads(said)} == {"max"}
    job = min(each.id for each in queue.records.listed() if each.ended and each.run == "r")
    assert (await train("logs", job, "--download", "log", "-s", "mine"))[0] == 0
    assert (tmp_path / "log").read_text() == f"file of {job}"
    code, said = await train("logs", job, "-s", "other")
    assert "no job and no run of this cluster is called" in said
    assert (await train("queue", "--json", "-s", "mine"))[0] == 0
    assert "has ended already" in (await train("stop", job, "-s", "mine"))[1]
    assert (await train("cost", "-s", "mine"))[0] == 0
    who = "Forbidden to eva, whose role is user: the stack's own token"
    code, said = await train("user", "list", "-s", "mine")
    assert said == f"{who} and teachers may"
    code, said = await train("services", "-s", "mine")
    assert f"{who} may" in said
    await admin("user", "rm", "eva")
    code, said = await train("list", "-s", "mine")
    assert "refuses the token (401): give one that is yours with `train attach" in said


async def test_a_stack_without_a_queue_has_no_users(admin, queue, tmp_path):
    of_head = {"dashboardUrl": queue._address}
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | of_head))
    for words in (("list",), ("add", "eva"), ("rm", "eva")):
        code, said = await admin("user", *words)
        assert (code, "'dev' has no queue, which knows users: run" in said) == (1, True)


async def test_train_reads_a_users_runs(train, admin, queue, tmp_path):  # without keys of the store
    await admin("user", "add", "eva", "max", "--files", "class")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/script.py").write_text("print(0)\n")
    for user, run in (("eva", "r"), ("max", "s")):
        with working(queue):
            assert (await train("attach", f"class/{user}.json", "-s", user))[0] == 0
            submit = ("submit", "code/script.py", "--name", run, "--no-wait", "-s", user)
            assert (await train(*submit))[0] == 0
            with suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while any(job.state != "SUCCEEDED" for job in queue.records.listed()):
                        await asyncio.sleep(0.01)
        (tmp_path / "results" / run).mkdir(parents=True)
        (tmp_path / "results" / run / "config.json").write_text('{"lr": 0.25}')
    _, said = await train("runs", "--json", "-s", "eva")
    assert [row["run"] for row in json.loads(said)] == ["r"]
    assert '"lr": 0.25' in (await train("show", "r", "-s", "eva"))[1]
    code, said = await train("compare", "r", "-s", "eva")
    assert (code, "SUCCEEDED" in said) == (0, True), said
    code, said = await train("pull", "r", "--to", str(tmp_path), "-s", "eva")
    assert (code, (tmp_path / "r/config.json").exists()) == (0, True), said
    assert (tmp_path / "results/r/pulled.json").exists()  # an idle stack may end then
    for command in ("show r", "pull r", "rm r --yes"):
        code, said = await train(*command.split(), "-s", "max")
        assert (code, "no run is called 'r'" in said) == (1, True), said
    code, said = await train("rm", "r", "--yes", "-s", "eva")
    assert (code, [*(tmp_path / "results").glob("r/*")]) == (0, []), said
