"""The service: `python -m trainyard.queue SETTINGS`, on the head's machine.

SETTINGS is a file of JSON: listen, port, address (host:port for jobs), head (URL), token, data
(folder), database (URL, "" for a file there), halfLifeDays, backfill, preempt, quotas, groups,
hourlyCost and monthlyBudget (0 for none), lowUse, nodes, as in the stack's outputs, and store, as
trainyard/queue/results.py takes it.
"""

import asyncio
import fcntl
import json
import math
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from trainyard.queue.dispatcher import Declared, Dispatcher
from trainyard.queue.head import Head
from trainyard.queue.low_use import Bounds
from trainyard.queue.order import Quota, Rules
from trainyard.queue.packages import Packages
from trainyard.queue.records import Records
from trainyard.queue.server import Server

MIB = 2**20
DAY_S = 86_400
FILE, LOCK = "queue.db", "queue.lock"


async def serve(settings: Mapping[str, Any]) -> None:
    """Serve and start jobs until SIGTERM; raises what ends the dispatcher."""
    data = Path(settings["data"])
    # So the next one goes on with the lease of a process that was killed.
    lock = (data / LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    me = f"{socket.gethostname()}{data}"[-64:]
    records = Records(settings["database"] or f"sqlite:///{data / FILE}")
    packages, head = Packages(data / "packages"), Head(settings["head"], settings["token"])
    declared = [_declared(node) for node in settings["nodes"]]
    quotas = {
        user: Quota(gpus=each.get("gpus"), gpu_hours_week=each.get("gpuHoursWeek"))
        for user, each in settings["quotas"].items()
    }
    rules = Rules(
        half_life_s=settings["halfLifeDays"] * DAY_S,
        backfill=settings["backfill"],
        preempt=settings["preempt"],
        quotas=quotas,
        groups={group: frozenset(users) for group, users in settings["groups"].items()},
    )
    own = settings["hourlyCost"]
    prices = {node["group"]: node["hourlyCost"] or own for node in settings["nodes"]}
    address, budget = settings["address"], settings["monthlyBudget"] or math.inf
    low = Bounds(**settings["lowUse"])
    dispatcher = Dispatcher(
        records, packages, head, rules, declared, prices, me, address, budget, low
    )
    server = Server(
        *(records, packages, head, dispatcher, declared, settings["token"], budget),
        store=settings["store"],
    )
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, settings["listen"], settings["port"]).start()
    work = asyncio.create_task(dispatcher.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        pass
    finally:
        await runner.cleanup()
        await head.close()
        records.close()


def _declared(node: Mapping[str, Any]) -> Declared:
    offers = {"CPU": node["cpus"], "GPU": node["gpus"], "memory": node["memoryMib"] * MIB}
    bundle = {name: float(amount) for name, amount in (offers | node["resources"]).items()}
    return Declared(bundle=bundle, on_demand=node["onDemand"] or not node["launched"])


if __name__ == "__main__":
    os.umask(0o077)
    asyncio.run(serve(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
