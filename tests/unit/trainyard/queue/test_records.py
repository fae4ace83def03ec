"""The tables, and the same on a real PostgreSQL: two queues of one database start a job once."""

import asyncio
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tests import waiting
from tests.ports import free_ports
from tests.unit.trainyard.queue.conftest import queue_of
from tests.unit.trainyard.queue.test_dispatcher import through
from trainyard import failpoints
from trainyard.queue.models import Base
from trainyard.queue.records import Records

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


@pytest.fixture(scope="module")
def database():
    """The URL of an empty database; its server ends with the module."""
    if not PROGRAMS or os.getuid():
        pytest.skip("no PostgreSQL, or not root")
    user = pwd.getpwnam("postgres")
    folder = Path(tempfile.mkdtemp(prefix="typg", dir="/tmp"))
    os.chown(folder, user.pw_uid, user.pw_gid)
    (port,) = free_ports(1)
    run = {"user": "postgres", "cwd": folder, "stdout": subprocess.DEVNULL}
    data, programs = folder / "data", PROGRAMS[-1]
    subprocess.run([programs / "initdb", "-A", "trust", "-D", data], check=True, **run)
    options = ["-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"]
    server = subprocess.Popen([programs / "postgres", *options], stderr=subprocess.DEVNULL, **run)
    ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port)]

    def answers():
        return subprocess.run(ready, check=False, **run).returncode == 0

    waiting.wait_for("PostgreSQL", answers, 60)
    yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
    server.send_signal(signal.SIGINT)  # at once, whoever is connected
    server.wait(30)
    shutil.rmtree(folder)


def test_the_migrations_make_what_the_models_say(tmp_path):
    records = Records(f"sqlite:///{tmp_path}/queue.db")
    with records._engine.connect() as connection:
        context = MigrationContext.configure(connection)
        differs = compare_metadata(context, Base.metadata)
    records.close()
    assert differs == []


async def test_two_queues_make_the_tables_once_and_start_each_job_once(
    database, monkeypatch, tmp_path
):
    with ThreadPoolExecutor(4) as pool:
        made = [*pool.map(lambda _: Records(database), range(4))]
    assert len({each.id for each in made}) == 1
    for each in made:
        each.close()
    async with queue_of(tmp_path, database) as queue:
        for name in ("a", "b", "c"):
            assert (await queue.submit(name, cpus=2, retries="3", user="eva"))[0] == 200
            assert (await queue.submit(name, cpus=2))[0] == 400
        other = queue.new_dispatcher("another machine")
        assert sorted(await asyncio.gather(other.step(), queue.step())) == [False, True]
        assert queue.head.started == ["a"]
        queue.records.lease("another machine", time.time(), -1.0)  # it ends
        monkeypatch.setenv(failpoints.VARIABLE, "queue.posted EIO 1")
        monkeypatch.setattr(failpoints, "_reached", itertools.count(1))
        await through(queue, restart_at="c")
        assert queue.head.started == ["a", "b", "c", "c-2"]
        use, _ = queue.records.use(queue.records.get("c").ended, 3600.0)
        assert use["eva"] > 0
        _, tokens = await queue.ask("POST", "/api/queue/users", json={"names": ["max"]})
        job = {"entrypoint": "true", "submission_id": "a-2", "metadata": {"run": "r"}}
        refused = await queue.ask("POST", "/api/jobs/", tokens["max"], json=job)
        assert "already exists" in refused[1]
        taken = await queue.ask(
            "POST", "/api/jobs/", tokens["max"], json=job | {"submission_id": "d"}
        )
        assert (taken[0], queue.records.users()[0].seen > 0) == (200, True)
        await queue.ask("POST", "/api/queue/users/end", json={"names": ["max"]})
        assert (await queue.ask("GET", "/api/jobs/", tokens["max"]))[0] == 401
