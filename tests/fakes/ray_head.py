"""A stand-in for a Ray head: its Jobs API, packages and lists of the state API, on loopback.

It starts a job when it is posted, and keeps a list of all starts. `restart` forgets all jobs and
packages, as a head does that is killed.
"""

import asyncio
import time
from itertools import count

from aiohttp import web

TOKEN = "the-token"


class RayHead:
    """The head; `nodes` are amounts by resource, and `status` holds each job's."""

    def __init__(self, nodes=({"CPU": 2.0},)):
        self.nodes, self.started, self.away, self.refuses = [*nodes], [], False, ""
        self.jobs, self.packages, self.asked, self.stopped = {}, {}, [], []
        self.began, self.dead = time.time(), []  # nodes: when they began; as Ray lists ended ones
        self.headers, self.files = {}, {}  # of the last request; logs as files, by job
        self.details = {}  # what the agents of nodes say, by the node's id
        self.others = []  # placement groups of programs that were not submitted
        self._numbers = count(1)

    def restart(self):
        self.jobs, self.packages = {}, {}

    def end(self, name, status="SUCCEEDED", **more):
        self.jobs[name] |= {"status": status, "end_time": int(time.time() * 1000), **more}

    def running(self):
        return [name for name, job in self.jobs.items() if job["status"] == "RUNNING"]

    def app(self):
        app = web.Application(middlewares=[self._guard], client_max_size=2**30)
        app.add_routes(
            [
                web.get("/api/packages/gcs/{name}", self._has),
                web.put("/api/packages/gcs/{name}", self._put),
                web.post("/api/jobs/", self._submit),
                web.get("/api/jobs/", self._list),
                web.get("/api/jobs/{id}", self._get),
                web.post("/api/jobs/{id}/stop", self._stop),
                web.get("/api/jobs/{id}/logs", self._logs),
                web.get("/api/jobs/{id}/logs/tail", self._tail),
                web.get("/api/v0/{what}", self._state),
                web.get("/api/v0/logs/file", self._file),
                web.get("/nodes/{id}", self._node),
                web.get("/page", self._page),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request, handler):
        self.asked.append((request.method, request.path))
        self.headers = request.headers
        if self.away:
            request.transport.abort()
            return web.Response(status=503)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=403)
        return await handler(request)

    async def _has(self, request):
        return web.Response(status=200 if request.match_info["name"] in self.packages else 404)

    async def _put(self, request):
        self.packages[request.match_info["name"]] = await request.read()
        return web.Response()

    async def _submit(self, request):
        job = await request.json()
        name = job["submission_id"]
        if self.refuses:
            return web.Response(status=500, text=self.refuses)
        if name in self.jobs:
            text = f"ValueError: Job with submission_id {name} already exists. Please"
            return web.Response(status=500, text=text)
        self.started.append(name)
        self.jobs[name] = {
            "type": "SUBMISSION",
            "job_id": f"{next(self._numbers):02}000000",
            "submission_id": name,
            "status": "RUNNING",
            "entrypoint": job["entrypoint"],
            "message": "it runs",
            "error_type": None,
            "start_time": int(time.time() * 1000),
            "end_time": None,
            "metadata": job.get("metadata") or {},
            "runtime_env": job.get("runtime_env") or {},
            "driver_node_id": "node",
        }
        return web.json_response({"job_id": name, "submission_id": name})

    async def _list(self, request):
        driver = {"type": "DRIVER", "job_id": "aa000000", "submission_id": None}
        return web.json_response([*self.jobs.values(), driver | {"status": "RUNNING"}])

    def _found(self, request):
        found = self.jobs.get(request.match_info["id"])
        if found is None:
            raise web.HTTPNotFound(text="Job does not exist")
        return found

    async def _get(self, request):
        return web.json_response(self._found(request))

    async def _stop(self, request):
        name = self._found(request)["submission_id"]
        self.stopped.append(name)
        self.end(name, "STOPPED")
        return web.json_response({"stopped": True})

    async def _logs(self, request):
        return web.json_response({"logs": f"log of {self._found(request)['submission_id']}"})

    async def _tail(self, request):
        found = self._found(request)
        reply = web.WebSocketResponse()
        await reply.prepare(request)
        await reply.send_str(f"log of {found['submission_id']}\n")
        while found["status"] == "RUNNING" and self.jobs.get(found["submission_id"]) is found:
            await asyncio.sleep(0.01)
        return reply

    async def _state(self, request):
        nodes = [
            {
                "node_id": str(i),
                "node_ip": f"10.0.0.{i + 1}",
                "is_head_node": i == 0,
                "state": "ALIVE",
                "resources_total": each | {f"node:{i}": 1.0},
                "labels": {"group": "rented"},
                "start_time_ms": self.began * 1000,
                "end_time_ms": 0,
            }
            for i, each in enumerate(self.nodes)
        ]
        found = {"nodes": [*nodes, *self.dead], "actors": [], "placement_groups": self.others}
        result = {"result": found[request.match_info["what"]]}
        return web.json_response({"data": {"result": result}})

    async def _file(self, request):
        name = request.query["submission_id"]
        return web.Response(text=self.files.get(name, f"file of {name}"))

    async def _node(self, request):
        return web.json_response({"data": {"detail": self.details[request.match_info["id"]]}})

    async def _page(self, request):
        return web.Response(text="the head's page", headers={"X-Own": "1"})
