"""A stand-in of the head, and the queue before it, in one loop."""

import math
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web

from tests.fakes.ray_head import TOKEN, RayHead
from tests.ports import free_ports
from trainyard.queue import dispatcher, server
from trainyard.queue.dispatcher import Declared, Dispatcher
from trainyard.queue.head import Head
from trainyard.queue.ledger import DAY_S
from trainyard.queue.low_use import NEVER
from trainyard.queue.order import Rules
from trainyard.queue.packages import Packages
from trainyard.queue.records import Records
from trainyard.queue.server import Server

PRICE = 2.0  # $ an hour
RULES = Rules(half_life_s=86_400.0, backfill=False, preempt=True, quotas={})


class Queue:
    """A queue's parts; `step` is one look of its dispatcher."""

    def __init__(self, folder, url, head, session, address, database, budget, low):
        self._budget, self._low = budget, low
        self.url, self.head, self._address, self._session = url, head, address, session
        self.records = Records(database or f"sqlite:///{folder}/queue.db")
        self.store = {"url": (folder / "results").as_uri()}
        self.packages, self.client = Packages(folder / "packages"), Head(address, TOKEN)
        self.declared = [Declared(bundle=each) for each in head.nodes]
        self.dispatcher = self.new_dispatcher("this machine")

    def new_dispatcher(self, me=""):
        parts = (self.records, self.packages, self.client, RULES, self.declared)
        address = self.url.removeprefix("http://")
        return Dispatcher(*parts, {"rented": PRICE}, me, address, self._budget, self._low)

    def app(self):
        parts = (self.records, self.packages, self.client, self.dispatcher, self.declared)
        return Server(*parts, TOKEN, self._budget, store=self.store).app()

    async def step(self):
        return await self.dispatcher.step()

    async def ask(self, method, path, token=TOKEN, **sent):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._session.request(method, self.url + path, headers=headers, **sent) as reply:
            text = await reply.text()
            return reply.status, await reply.json() if reply.content_type.endswith("json") else text

    async def submit(self, name, cpus=1, **facts):
        job = {"entrypoint": "true", "submission_id": name, "entrypoint_num_cpus": cpus}
        return await self.ask("POST", "/api/jobs/", json=job | {"metadata": facts})

    async def job(self, name):
        return (await self.ask("GET", f"/api/jobs/{name}"))[1]

    async def status(self, name):
        return (await self.job(name))["status"]


class Clock:
    """The clocks of the dispatcher and the server; `now` is a midnight in UTC at first."""

    CLOCK_BOOTTIME = 7

    def __init__(self):
        self.now = 20_700 * DAY_S  # 2026-09-04

    def time(self, _=0):
        return self.now

    monotonic = clock_gettime = time


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    for module in (dispatcher, server):
        monkeypatch.setattr(module, "time", found)
    return found


@asynccontextmanager
async def served(app):
    (port,) = free_ports(1)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def queue_of(folder, database="", budget=math.inf, low=NEVER, **keywords):
    """A queue before a head, which has the other keywords."""
    head = RayHead(**keywords)
    async with served(head.app()) as address, ClientSession() as session:
        found = Queue(folder, "", head, session, address, database, budget, low)
        async with served(found.app()) as found.url:
            yield found
        await found.client.close()
        found.records.close()


@pytest.fixture
async def queue(request, tmp_path):
    async with queue_of(tmp_path, **getattr(request, "param", {})) as found:
        yield found
