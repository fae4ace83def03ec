"""Ray's Jobs API, served from the queue's records; all else is the head's dashboard.

A job is one for its clients, whatever attempt the head runs: status, log and stop of its id go to
the newest one. The token says who asks: the stack's own is the head's, and with one of a user the
head's is sent in its place, for the few paths that are open to users.
"""

import asyncio
import hmac
import importlib.metadata
import json
import math
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from sqlalchemy.exc import DBAPIError

from trainyard import yielding
from trainyard.dev_session import messages
from trainyard.queue import ledger, order, submission, users
from trainyard.queue.dispatcher import FAULTS, Declared, Dispatcher, entry, has_yielded
from trainyard.queue.head import Head, HeadAwayError, outcome
from trainyard.queue.ledger import Share
from trainyard.queue.models import ACTIVE, STARTING, WAITING, Job
from trainyard.queue.order import Waiting
from trainyard.queue.packages import NAME, Packages, TooLargeError
from trainyard.queue.records import MOST_WAITING, ExistsError, FullError, Records, TakenError
from trainyard.queue.results import Results
from trainyard.queue.users import ADMIN, GIVEN, NOBODY, STACK, TEACHER, USER, Caller, UsersError

VERSION = "4"  # of Ray's Jobs API: ray.dashboard.modules.version
COOKIE = "ray-authentication-token"
PIECE = 2**18
POLL_S = 0.5
STALE_S = 120.0  # without a step of the dispatcher, after which /health says so
# Of one connection, by RFC 9110; `Host` is the head's own.
HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"}
CALLER = web.RequestKey("caller", Caller)
CREDENTIALS = {"authorization", "x-ray-authorization", "cookie"}
# What the head shows to users: its nodes, and the raw logs of jobs that they see.
NODES, SUMMARY = "/api/v0/nodes", ("/nodes", "view=summary")
LOGS = ("/api/v0/logs/file", "/api/v0/logs/stream")
OF_LOG = {"node_id", "submission_id", "lines", "interval"}
NO_CALLER = (
    "Unauthorized: the cluster's token is missing, or it was ended: ask who runs the stack for "
    "another (`train user add`)"
)
MANAGERS = "the stack's own token and teachers may"
HIDDEN = {"job": "", "run": "", "reason": ""}  # of jobs that the caller does not see
ONE_ATTEMPT = "attempt"  # asked for by `train`, which begins anew with each
# Fields of Ray's that are null before a job has started.
UNKNOWN = (
    *("job_id", "driver_info", "error_type", "end_time", "driver_node_id", "driver_exit_code"),
    "driver_agent_http_address",
)
BEFORE = (WAITING, STARTING)  # the head may not know the job yet
# As Ray says it of a job that waits for its node, which clients know.
NO_LOG = "Job {} has no driver node id info: it waits in the queue."


class Server:
    """The queue's HTTP server."""

    def __init__(
        self,
        records: Records,
        packages: Packages,
        head: Head,
        dispatcher: Dispatcher,
        declared: list[Declared],
        token: str,
        budget: float = math.inf,  # $ a month
        *,
        store: Mapping[str, str],  # as Results takes it
    ) -> None:
        self._records, self._packages, self._head = records, packages, head
        self._dispatcher, self._nodes = dispatcher, [each.bundle for each in declared]
        self._token, self._budget = token.encode(), budget
        self._ray = importlib.metadata.version("ray")
        self._results = Results(store, records)
        self._open = defaultdict[str, set[asyncio.Task[Any]]](set)  # requests, by user

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(client_max_size=submission.MOST_BODY, middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/api/version", self._version),
                web.get("/api/queue", self._queue),
                web.get("/api/queue/cost", self._cost),
                web.get("/api/queue/users", self._users),
                web.post("/api/queue/users", self._add_users),
                web.post("/api/queue/users/end", self._end_users),
                web.get("/api/results/{what:files|folders|file}", self._result),
                web.put("/api/results/file", self._mark_run),
                web.delete("/api/results/file", self._delete_result),
                web.get("/api/packages/gcs/{name}", self._has_package),
                web.put("/api/packages/gcs/{name}", self._put_package),
                web.post("/api/jobs/", self._submit),
                web.get("/api/jobs/", self._list),
                web.get("/api/jobs/{id}", self._get),
                web.delete("/api/jobs/{id}", self._delete),
                web.post("/api/jobs/{id}/stop", self._stop),
                web.get("/api/jobs/{id}/logs", self._logs),
                web.get("/api/jobs/{id}/logs/tail", self._tail),
                web.route("*", "/{path:.*}", self._pass_on),
            ]
        )
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Find out who asks; without any token the head answers for what is its own."""
        handler_ = request.match_info.handler
        if handler_ == self._health:
            return await self._health(request)
        try:
            caller, is_heads = await self._caller(request), handler_ == self._pass_on
            if caller is None or (caller == NOBODY and not is_heads):
                return web.Response(status=401, text=NO_CALLER)
            request[CALLER] = caller
            if is_heads and not (_is_stack(caller) or _is_open(request)):
                return _forbidden(request, "the stack's own token may")
            with self._noted(caller):
                response: web.StreamResponse = await handler(request)
        except DBAPIError as error:
            text = f"the queue's database does not answer ({type(error.orig).__name__}): try again"
            return web.Response(status=503, text=text)
        except HeadAwayError as error:
            text = f"the head does not answer ({error}): try again"
            return web.Response(status=502, text=text)
        return response

    async def _caller(self, request: web.Request) -> Caller | None:
        """Return whose token a request has; None for one that nobody has, unless of a browser."""
        # A page of somebody else can have a browser send the cookie, but reads no answer.
        cookie = request.cookies.get(COOKIE, "") if request.method == "GET" else ""
        word = _given(request) or (f"Bearer {cookie}" if cookie else "")
        if hmac.compare_digest(word.encode(errors="replace"), b"Bearer " + self._token):
            return STACK
        if not word:
            return NOBODY
        digest = users.digest(word.removeprefix("Bearer "))
        found = await asyncio.to_thread(self._records.caller, digest, time.time())
        return found or (None if _given(request) else NOBODY)

    @contextmanager
    def _noted(self, caller: Caller) -> Iterator[None]:
        """Note a request of a user while it lasts: logs are followed for hours."""
        task = asyncio.current_task()
        if not caller.name or task is None:
            yield
            return
        self._open[caller.name].add(task)
        try:
            yield
        finally:
            self._open[caller.name].discard(task)

    async def _health(self, _: web.Request) -> web.Response:
        late = time.monotonic() - self._dispatcher.stepped > STALE_S
        return web.Response(status=503 if late else 200, text="late" if late else "ok")

    async def _version(self, request: web.Request) -> web.Response:
        # The session is the queue's, since its jobs outlive those of heads.
        names = {"version": VERSION, "ray_version": self._ray, "ray_commit": ""}
        if not _is_stack(caller := request[CALLER]):
            names |= {"user": caller.name}
        return web.json_response(names | {"session_name": self._records.id, "queue": True})

    async def _result(self, request: web.Request) -> web.Response:
        answer: web.Response = await getattr(self._results, request.match_info["what"])(
            request[CALLER], request.query
        )
        return answer

    async def _mark_run(self, request: web.Request) -> web.Response:
        return await self._results.mark(request[CALLER], request.query, request)

    async def _delete_result(self, request: web.Request) -> web.Response:
        return await self._results.delete(request[CALLER], request.query)

    async def _has_package(self, request: web.Request) -> web.Response:
        found = self._packages.has(_package(request))
        return web.Response(status=200 if found else 404)

    async def _put_package(self, request: web.Request) -> web.StreamResponse:
        name = _package(request)
        if name.startswith(messages.PREFIX):  # for a session that runs
            return await self._pass_on(request)
        try:
            await self._packages.keep(name, request.content.iter_chunked(PIECE))
        except TooLargeError:
            return web.Response(status=413, text="the package is larger than 2 GiB")
        except OSError as error:
            return web.Response(status=507, text=f"the package cannot be kept: {error.strerror}")
        return web.Response()

    async def _submit(self, request: web.Request) -> web.Response:
        caller = request[CALLER]
        own = not _is_stack(caller)
        try:
            job = submission.read(await request.read(), time.time(), caller)
            why = submission.never(json.loads(job.bundles), self._nodes)
            if why and not submission.forced(job):
                raise submission.RefusedError(why)
            for name in json.loads(job.after):
                if not await self._may_follow(caller, name):
                    raise submission.RefusedError(
                        f"after {name[:80]!r} is no job of this cluster: `train list` shows them"
                    )
            spent = await asyncio.to_thread(self._records.spent, time.time())
            if spent >= self._budget:
                raise submission.RefusedError(
                    f"the machines have cost {spent:.2f} $ this month, of {self._budget:g} $ "
                    "(queueRules.monthlyBudget): raise it and run `make up`, or wait for next month"
                )
            with suppress(HeadAwayError):  # it may know an id that is not in the records any more
                if own and await self._head.job(_quoted(job.id)) is not None:
                    raise ExistsError
            await asyncio.to_thread(self._records.add, job, submission.runs(job), own=own)
        except submission.RefusedError as error:
            return web.Response(status=400, text=f"ValueError: {error}")
        except ExistsError:
            text = f"ValueError: Job with submission_id {job.id} already exists. "
            return web.Response(status=400, text=f"{text}Please use a different submission_id.")
        except TakenError as error:
            text = f"ValueError: run {str(error)!r} is of another user: take another --name"
            return web.Response(status=400, text=text)
        except FullError:
            text = f"ValueError: {MOST_WAITING} jobs wait, as many as may: try again later"
            return web.Response(status=429, text=text)
        self._dispatcher.changed()
        return web.json_response({"job_id": job.id, "submission_id": job.id})

    async def _may_follow(self, caller: Caller, name: str) -> bool:
        """Whether a job is there that somebody sees."""
        job = await asyncio.to_thread(self._records.get, name)
        if job is not None:
            return caller.sees(job.user)
        return caller.role != USER and await self._head.job(_quoted(name)) is not None

    async def _list(self, request: web.Request) -> web.Response:
        only = caller.name if (caller := request[CALLER]).role == USER else ""
        records = {job.id: job for job in await asyncio.to_thread(self._records.listed, only)}
        try:
            # Not `Head.jobs`: programs that were not submitted have no submission id.
            known = await self._head.listed()
        except HeadAwayError:
            known = []
        by_name = {each.get("submission_id"): each for each in known}
        own = [self._shown(job, by_name.get(job.name)) for job in records.values()]
        if only:
            return web.json_response(own)
        names = {f"{job.id}{end}" for job in records.values() for end in _ends(job)}
        others = [each for name, each in by_name.items() if name and name not in names]
        others += [each for each in known if not each.get("submission_id")]
        return web.json_response([*own, *others])

    async def _get(self, request: web.Request) -> web.StreamResponse:
        job = await self._record(request, request.match_info["id"])
        if job is None:
            return await self._pass_on(request)
        found = None
        if job.attempt and job.state in ACTIVE and job.state != WAITING:
            with suppress(HeadAwayError):
                found = await self._head.job(job.name)
        return web.json_response(self._shown(job, found))

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        job = await self._record(request, request.match_info["id"])
        if job is None:
            return await self._pass_on(request)
        if job.state in ACTIVE:
            text = f"RuntimeError: job {job.id} has not ended: stop it first"
            return web.Response(status=500, text=text)
        await asyncio.to_thread(self._records.remove, job.id)
        return web.json_response({"deleted": True})

    async def _stop(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        await self._record(request, name)
        before = await asyncio.to_thread(self._records.ask_stop, name, time.time())
        if before is None:
            return await self._pass_on(request)
        self._dispatcher.changed()
        return web.json_response({"stopped": before in ACTIVE})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        job = await self._record(request, request.match_info["id"])
        if job is not None and (not job.attempt or job.state in BEFORE):
            return web.json_response({"logs": ""})
        return await self._pass_on(request, None if job is None else job.name)

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        """Send a log as it grows; with all attempts, unless the client asks for one."""
        name = request.match_info["id"]
        job = await self._record(request, name)
        if job is None and await self._head.job(_quoted(name)) is None:
            return web.Response(status=404, text=f"Job {name} does not exist")
        reply = web.WebSocketResponse(heartbeat=30)
        await reply.prepare(request)
        sent = -1
        while not reply.closed:
            if job is None or (job.attempt > sent and job.state not in BEFORE):
                of_head = name if job is None else job.name
                await self._send_log(of_head, reply)
                sent = 0 if job is None else job.attempt
            if (
                job is None
                or job.state not in ACTIVE
                or (sent > 0 and ONE_ATTEMPT in request.query)
            ):
                break
            await asyncio.sleep(POLL_S)
            job = await self._record(request, name)
        await reply.close()
        return reply

    async def _send_log(self, name: str, reply: web.WebSocketResponse) -> None:
        url = f"{self._head.url}/api/jobs/{_quoted(name)}/logs/tail"
        with suppress(aiohttp.ClientError, ConnectionError):
            async with self._head.session.ws_connect(url, headers=self._head.headers) as stream:
                async for message in stream:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        await reply.send_str(message.data)

    async def _queue(self, request: web.Request) -> web.Response:
        """Tell everybody who is before whom; names of jobs and runs only to those who see them."""
        active = await asyncio.to_thread(self._records.active)
        sees = request[CALLER].sees
        rows = [self._row(job) | ({} if sees(job.user) else HIDDEN) for job in active]
        rows.sort(
            key=lambda r: (bool(r["every"]), r["state"] == WAITING, r["place"] or 0, r["since"])
        )
        return web.json_response({"jobs": rows, "away": self._dispatcher.away})

    async def _cost(self, request: web.Request) -> web.Response:
        now = time.time()
        try:
            since = float(request.query.get("since", 0))
        except ValueError:
            since = math.nan
        if not 0 <= since < now:
            raise web.HTTPBadRequest(text="since is no time in the past: give seconds since 1970")
        shares = await asyncio.to_thread(self._shares, since, now)
        sees = request[CALLER].sees
        shares = [each for each in shares if sees(each["user"])]
        if (run := request.query.get("run")) is not None:
            shares = [each for each in shares if each["run"] == run]
        month = await asyncio.to_thread(self._records.spent, now)
        budget = None if math.isinf(self._budget) else self._budget
        return web.json_response({"shares": shares, "month": month, "budget": budget})

    def _shares(self, since: float, now: float) -> list[dict[str, Any]]:
        machines = self._records.machines(since, now)
        uses, jobs = self._records.uses(since, now)
        begun = min((*(m.began for m in machines), *(u.began for u in uses)), default=now)
        return [
            {"day": each.day, "job": each.job, "cost": each.cost, **_amounts(each, jobs)}
            for each in ledger.shares(machines, uses, max(since, begun), now)
        ]

    def _row(self, job: Job) -> dict[str, Any]:
        place = self._dispatcher.places.get(job.id) if job.state == WAITING else None
        return {
            "job": job.id,
            "run": job.run,
            "user": job.user,
            "state": job.state,
            "place": place.place if place else None,
            "needs": submission.said(_loaded(job.bundles, [])),
            "priority": job.priority,
            "since": job.queued if job.state == WAITING else job.started,
            "reason": _why(place) if place else _repeated(job) or self._asked(job),
            "begins": place.begins if place else job.due,
            "every": job.every or "",
            "attempt": job.attempt,
            "retries": job.retries,
        }

    def _asked(self, job: Job) -> str:
        """Why a running job is asked to end, or may be soon."""
        return job.reason or self._dispatcher.low.told(job.name)

    def _shown(self, job: Job, found: Mapping[str, Any] | None) -> dict[str, Any]:
        """A job as Ray's API has it: what the head says of its attempt, else the record."""
        request = _loaded(job.request, {})
        facts = (request.get("metadata") or {}) | {"attempt": str(job.attempt)}
        same = {"submission_id": job.id, "metadata": facts}
        if job.state not in ACTIVE:
            said = _loaded(job.end, {})
            own: dict[str, Any] = {**_blank(job, request), **said, **same}
            own |= {"status": job.state, "message": job.reason}
            own |= {"end_time": said.get("end_time") or _ms(job.ended)}
            return own | {"runtime_env": _without_values(own["runtime_env"] or {})}
        ended = outcome(found) if found is not None else "lost"
        over = job.state == WAITING or has_yielded(job, ended)  # that start; the job goes on
        if found is not None and ended != "lost" and not over:
            env = {"runtime_env": _without_values(found["runtime_env"] or {})}
            said = "" if ended else self._asked(job)
            return {**found, **same, **env, **({"message": said} if said else {})}
        place = self._dispatcher.places.get(job.id)
        message = "it waits in the queue" if over else "it starts"
        if job.state == WAITING and place is not None:
            message = f"place {place.place}: {_why(place)}"
        message = _repeated(job) or message
        away = found is None and job.state not in BEFORE
        if away:
            message = "the head does not answer, or was replaced; the job goes on with it"
        return _blank(job, request) | same | {"message": message}

    async def _record(self, request: web.Request, name: str) -> Job | None:
        """Return a job; of a user's token only one of this user, as if there were no other."""
        job = await asyncio.to_thread(self._records.get, name)
        if not request[CALLER].sees(job.user if job else ""):
            raise web.HTTPNotFound(text=f"Job {name[:128]} does not exist")
        return job

    async def _users(self, request: web.Request) -> web.Response:
        if request[CALLER].role == USER:
            return _forbidden(request, MANAGERS)
        found = await asyncio.to_thread(self._records.users)
        names = ("name", "role", "since", "seen")
        return web.json_response([{name: getattr(user, name) for name in names} for user in found])

    async def _add_users(self, request: web.Request) -> web.Response:
        """Make users, and answer with their tokens, which nobody can ask for again."""
        asked = _loaded(await request.text(), {})
        role = asked.get("role", USER)
        if role not in GIVEN:
            return web.Response(status=400, text=f"role {str(role)[:80]!r} is not user or teacher")
        if role not in (may := _managed(request)):
            return _forbidden(request, "the stack's own token may" if may else MANAGERS)
        try:
            tokens = {name: secrets.token_urlsafe(32) for name in users.check(asked.get("names"))}
            digests = {name: users.digest(token) for name, token in tokens.items()}
            await asyncio.to_thread(self._records.add_users, digests, role, time.time())
        except UsersError as error:
            return web.Response(status=400, text=str(error))
        return web.json_response(tokens)

    async def _end_users(self, request: web.Request) -> web.Response:
        """End tokens at once, with the requests that they have begun."""
        if not (may := _managed(request)):
            return _forbidden(request, MANAGERS)
        try:
            names = users.check(_loaded(await request.text(), {}).get("names"))
            await asyncio.to_thread(self._records.remove_users, names, may)
        except UsersError as error:
            return web.Response(status=400, text=str(error))
        for task in [task for name in names for task in self._open.pop(name, ())]:
            task.cancel()
        return web.json_response({"ended": names})

    async def _pass_on(self, request: web.Request, job: str | None = None) -> web.StreamResponse:
        """Pass a request on to the head; `job` is the name that it has there."""
        path = request.rel_url
        if job is not None:
            path = path.with_path(f"/api/jobs/{job}/logs")
        elif name := path.query.get("submission_id"):
            record = await self._record(request, name)
            if record is not None and (not record.attempt or record.state in BEFORE):
                return web.Response(status=500, text=NO_LOG.format(name))
            if record is not None:
                path = path.update_query(submission_id=record.name)
        is_stack = _is_stack(request[CALLER])
        left_out = HOP if is_stack else HOP | CREDENTIALS
        headers = {k: v for k, v in request.headers.items() if k.lower() not in left_out}
        headers |= {} if is_stack else self._head.headers
        reply = None
        try:
            async with self._head.session.request(
                request.method,
                f"{self._head.url}{path}",
                headers=headers,
                data=request.content.iter_chunked(PIECE) if request.body_exists else None,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
                allow_redirects=False,
            ) as found:
                reply = web.StreamResponse(status=found.status, reason=found.reason)
                for key, value in found.headers.items():
                    if key.lower() not in HOP:
                        reply.headers.add(key, value)
                await reply.prepare(request)
                async for piece in found.content.iter_any():
                    await reply.write(piece)
                await reply.write_eof()
                return reply
        except aiohttp.ClientError as error:
            if reply is not None:  # cut in the middle
                raise
            raise HeadAwayError(type(error).__name__) from None


def _given(request: web.Request) -> str:
    return request.headers.get("Authorization") or request.headers.get("X-Ray-Authorization") or ""


def _is_stack(caller: Caller) -> bool:
    """Whether the head itself decides: it gets the caller's own token, or none."""
    return caller in (STACK, NOBODY)


def _is_open(request: web.Request) -> bool:
    """Whether users may ask the head for this; `_pass_on` looks whose a log is."""
    query = request.rel_url.query
    if request.path in LOGS:
        own = len(query.getall("submission_id", ())) == 1 and query["submission_id"]
        return request.method == "GET" and bool(own) and {*query} <= OF_LOG
    shown = request.path == NODES or (request.path, request.query_string) == SUMMARY
    return request.method == "GET" and shown


def _managed(request: web.Request) -> tuple[str, ...]:
    """Return the roles of users whom the caller may make and remove."""
    return {ADMIN: GIVEN, TEACHER: (USER,)}.get(request[CALLER].role, ())


def _forbidden(request: web.Request, who: str) -> web.Response:
    caller = request[CALLER]
    text = f"Forbidden to {caller.name}, whose role is {caller.role}: {who}"
    return web.Response(status=403, text=text)


def _blank(job: Job, request: Mapping[str, Any]) -> dict[str, Any]:
    """A job without an answer of the head."""
    return {
        **dict.fromkeys(UNKNOWN),
        "type": "SUBMISSION",
        "submission_id": job.id,
        "status": "PENDING" if job.state in (WAITING, STARTING) else "RUNNING",
        "entrypoint": request.get("entrypoint", ""),
        "start_time": _ms(job.started or job.queued),
        "runtime_env": _without_values(request.get("runtime_env") or {}),
    }


def _without_values(env: Mapping[str, Any]) -> dict[str, Any]:
    """A runtime environment without the values of variables, which may be secrets."""
    variables = env.get("env_vars")
    hidden = dict.fromkeys(variables, "<redacted>") if isinstance(variables, dict) else {}
    return {**env, **({"env_vars": hidden} if hidden else {})}


def _amounts(share: Share, jobs: Mapping[str, Job]) -> dict[str, Any]:
    """Whose a share is, and its hours of GPUs and CPUs."""
    job = jobs.get(share.job)
    try:
        bundles, units = ((own := entry(job)).bundles, order.share(own)) if job else ((), 0.0)
    except FAULTS:  # its record was written by hand
        bundles, units = (), 0.0
    seconds = share.unit_seconds / (units or 1.0)
    hours = {
        key: sum(each.get(name, 0.0) for each in bundles) * seconds / 3600
        for key, name in (("gpuHours", "GPU"), ("cpuHours", "CPU"))
    }
    return {"user": job.user if job else "", "run": job.run if job else "", **hours}


def _why(place: Waiting) -> str:
    return place.reason.removesuffix(f" (place {place.place})")


def _repeated(job: Job) -> str:
    if job.due is None:
        return ""
    return f"makes a job at {datetime.fromtimestamp(job.due, UTC):%Y-%m-%d %H:%M} UTC: {job.every}"


def _package(request: web.Request) -> str:
    name: str = request.match_info["name"]
    if not NAME.fullmatch(name) or name.startswith(yielding.PREFIX):
        raise web.HTTPBadRequest(text=f"package name {name[:80]!r} is not one of Ray's")
    return name


def _ends(job: Job) -> list[str]:
    """What is added to a job's id in the names of its attempts."""
    return ["", *(f"-{number}" for number in range(2, job.attempt + 1))]


def _loaded(text: str, empty: Any) -> Any:
    """What a record's JSON has; empty for what somebody wrote by hand: it hides no other job."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        return found if isinstance(found, type(empty)) else empty
    return empty


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _quoted(name: str) -> str:
    return quote(name, safe="")
