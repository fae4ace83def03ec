"""The head of the cluster by Ray's REST API: its jobs, what its nodes have free, and its packages.

What does not answer, or not as Ray does, raises HeadAwayError: it tells nothing about jobs.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from trainyard import yielding
from trainyard.packing import Bundle

SUPERVISOR = "_ray_internal_job_actor_"  # of the name of an entrypoint's actor
EXISTS = "already exists"
FINAL = ("SUCCEEDED", "FAILED", "STOPPED")
# How Ray says that a job ended with its node, and not by its own code.
LOST = ("JOB_SUPERVISOR_ACTOR_DIED", "JOB_SUPERVISOR_ACTOR_UNKNOWN_FAILURE")
LISTED = 10_000  # the most that Ray's state API gives
ANSWER_S = 30.0
UPLOAD_S = 600.0
SAID = 2000  # characters of a refusal

Seat = tuple[int, Bundle]  # the index of a node, and what is held there


class HeadAwayError(Exception):
    """The head does not answer, or is not ready; `answered` tells which."""

    answered = False


class RefusedError(Exception):
    """The head does not take a job, and never will."""


class Head:
    """The head at a URL, with its token."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self.headers = {"Authorization": f"Bearer {token}"}
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connections, made in the running loop; requests that bring a token keep theirs."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), auto_decompress=False
            )
        return self._session

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def listed(self) -> list[dict[str, Any]]:
        """Return the jobs that the head knows, and programs that were not submitted."""
        found = await self._get("/api/jobs/")
        if not isinstance(found, list):
            raise HeadAwayError("no list of jobs")
        return [each for each in found if isinstance(each, dict)]

    async def jobs(self) -> dict[str, dict[str, Any]]:
        """Return the submitted jobs, by submission id."""
        found = {str(each.get("submission_id") or ""): each for each in await self.listed()}
        found.pop("", None)
        return found

    async def job(self, name: str) -> dict[str, Any] | None:
        """Return one job; None if the head does not know it."""
        try:
            found = await self._get(f"/api/jobs/{name}")
        except _MissingError:
            return None
        if not isinstance(found, dict):
            raise HeadAwayError("no job")
        return found

    async def free(self, mine: Mapping[str, str]) -> tuple[list[Bundle], dict[str, list[Seat]]]:
        """Return what each living node has, less what others than my jobs hold there.

        The second one is what each of my jobs holds, and on which of these nodes.

        Args:
            mine: submission ids of my jobs, with Ray's own job ids, "" where none is known.
        """
        nodes, actors, groups = await asyncio.gather(
            *(self._state(what) for what in ("nodes", "actors", "placement_groups"))
        )
        own = {ray: job for job, ray in mine.items() if ray}
        seats = defaultdict[str, list[Seat]](list)
        try:
            alive = [each for each in nodes if each["state"] == "ALIVE"]
            free = [_bundle(each["resources_total"]) for each in alive]
            numbers = {each["node_id"]: number for number, each in enumerate(alive)}

            def hold(job: str | None, node: str, bundle: Bundle) -> None:
                if node not in numbers:
                    return
                if job is None:
                    _take(free[numbers[node]], bundle)
                else:
                    seats[job].append((numbers[node], bundle))

            for each in actors:
                if each["state"] == "ALIVE" and not each["placement_group_id"]:
                    _, is_entry, name = (each["name"] or "").partition(SUPERVISOR)
                    job = name if is_entry and name in mine else own.get(each["job_id"])
                    hold(job, each["node_id"], _bundle(each["required_resources"]))
            for group in (each for each in groups if each["state"] == "CREATED"):
                for each in group["bundles"]:
                    job = own.get(group["creator_job_id"])
                    hold(job, each["node_id"], _bundle(each["unit_resources"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeadAwayError(f"nodes: {type(error).__name__}") from None
        return free, seats

    async def nodes(self) -> list[dict[str, Any]]:
        """Return its nodes, also those that have ended."""
        return await self._state("nodes")

    async def gpus(self) -> list[tuple[str, float, Any]]:
        """Return the id of each living node with GPUs, their number, and what its agent says."""
        try:
            found = [
                (str(each["node_id"]), float(count))
                for each in await self.nodes()
                if each["state"] == "ALIVE" and (count := each["resources_total"].get("GPU"))
            ]
            return [
                (name, count, (await self._get(f"/nodes/{name}"))["data"]["detail"])
                for name, count in found
            ]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise HeadAwayError(f"nodes: {type(error).__name__}") from None

    async def has_package(self, name: str) -> bool:
        """Whether the head has a package; it then keeps it until the job starts."""
        try:
            await self._ask("GET", f"/api/packages/gcs/{name}")
        except _MissingError:
            return False
        return True

    async def put_package(self, name: str, path: Path) -> None:
        """Give the head a package."""
        content = await asyncio.to_thread(path.read_bytes)
        await self._ask("PUT", f"/api/packages/gcs/{name}", UPLOAD_S, data=content)

    async def ask_to_yield(self, name: str, why: str) -> None:
        """Ask a job to store a checkpoint and end; it says why."""
        path = f"/api/packages/gcs/{yielding.package(name)}"
        await self._ask("PUT", path, data=why.encode())

    async def submit(self, request: Mapping[str, Any]) -> None:
        """Start a job; one that the head has is started already.

        Raises:
            RefusedError: the head does not take it.
        """
        try:
            await self._ask("POST", "/api/jobs/", json=request)
        except _FaultError as error:
            if EXISTS in error.text:
                return
            # Its agent's answer is in the dashboard's.
            if error.status == HTTPStatus.BAD_REQUEST or "status code 400" in error.text:
                raise RefusedError(_last_line(error.text)) from None
            raise _FaultError(error.status, _last_line(error.text)) from None

    async def stop(self, name: str) -> None:
        """Ask a job to end."""
        await self._ask("POST", f"/api/jobs/{name}/stop")

    async def _state(self, what: str) -> list[dict[str, Any]]:
        reply = await self._get(f"/api/v0/{what}?detail=1&limit={LISTED}")
        try:
            found: list[dict[str, Any]] = reply["data"]["result"]["result"]
        except (KeyError, TypeError):
            raise HeadAwayError(f"no list of {what}") from None
        return found

    async def _get(self, path: str) -> Any:
        return await self._ask("GET", path, parse=True)

    async def _ask(
        self, method: str, path: str, seconds: float = ANSWER_S, *, parse: bool = False, **sent: Any
    ) -> Any:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self.session.request(
                method,
                f"{self.url}{path}",
                headers=self.headers | {"Accept-Encoding": "identity"},
                timeout=timeout,
                allow_redirects=False,
                **sent,
            ) as reply:
                if reply.status == HTTPStatus.NOT_FOUND:
                    raise _MissingError(reply.status, path)
                if reply.status != HTTPStatus.OK:
                    raise _FaultError(reply.status, await reply.text(errors="replace"))
                return await reply.json(content_type=None) if parse else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise HeadAwayError(type(error).__name__) from None


class _FaultError(HeadAwayError):
    """The answer's status is not 200."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text or f"status {status}")
        self.status, self.text, self.answered = status, text, True


class _MissingError(_FaultError):
    """The head knows no such thing."""


def outcome(found: Mapping[str, Any]) -> str:
    """Return how a job ended by itself: one of FINAL; "lost" with its node, "" if it has not."""
    status = found.get("status")
    if status not in FINAL:
        return ""
    lost = status == "FAILED" and found.get("error_type") in LOST
    return "lost" if lost else str(status)


def _bundle(found: Mapping[str, Any]) -> Bundle:
    """Amounts of a node or actor, without those by which Ray names nodes."""
    given = {} if found is None else found
    return {name: float(given[name]) for name in given if not name.startswith("node:")}


def _take(free: Bundle, bundle: Bundle) -> None:
    for name, amount in bundle.items():
        free[name] = max(0.0, free.get(name, 0.0) - amount)


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return (lines[-1] if lines else "no reason given")[:SAID]
