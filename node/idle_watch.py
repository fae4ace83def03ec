"""Decides when machines or services end themselves as the cluster has been idle for too long.

    python idle_watch.py SETTINGS

It looks at jobs, served models, actors, the notebook, logins, nodes and results every few seconds.
Anything that cannot be read counts as active, and so does a time without a look. Results that are
neither pulled nor copied keep the machines until their deadline: a run costs more than some hours
of a machine.

The timers ask `GET /verdict` (node/ending.py), `train info` too; `POST /keep` postpones the end.
Both need the token. Prometheus reads `GET /metrics`. The head's machine ends after the others,
which ask it. A decision to end stands while the machines end.

This module is a file of a service, next to replicate.py and what that needs. On machines it needs
psutil.
"""

import hmac
import json
import math
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trainyard.store.objects import MOST_STATE_BYTES, Listed, Store

try:
    from node import replicate
except ImportError:  # next to this file, where the service runs
    import replicate  # type: ignore[import-not-found,no-redef]

LOOK_SECONDS = 15.0
BLIND_SECONDS = 120.0  # without a look: activity may have been missed
# Machines that are still running so long after the decision, and are in use again, stay.
REVIVED_SECONDS = 600.0
HEAD_SECONDS = 180.0  # the head's machine ends so much later: the others ask it once a minute
JOIN_SECONDS = 3600.0  # after that a machine that has not joined no longer keeps the others
REQUEST_SECONDS = 10.0
BODY_BYTES = 1000
ANSWER_MIB = 64  # of an answer of Ray: jobs choose much of its content
MARKS = (replicate.MARK, "pulled.json")
LISTED = 10_000  # actors, or nodes
WARN_SECONDS = 300.0  # before the end
METRIC = "trainyard_ends_idle_seconds"  # until then; without a value while something is active
UTMP = Path("/var/run/utmp")  # who is logged in; containers have none


@dataclass(frozen=True)
class Rules:
    """The settings of the watch."""

    idle_seconds: float  # after which the machines end
    deadline: float  # when they end in any case, in seconds since 1970
    command_seconds: float = 0.0  # of the user's command, which the head runs before its end


@dataclass(frozen=True)
class IdleLimits:
    """The use of a machine up to which its jobs count as idle."""

    cpu_percent: float = 0.0  # of one core, as `top` counts; 0: every job does something
    gpu_percent: float = 0.0  # of each GPU


@dataclass(frozen=True)
class WatchState:
    """State of the watch; times are seconds since 1970, 0 for none."""

    looked: float = 0.0  # when the last look ended
    idle_since: float = 0.0  # when the first in a row of looks that found nothing began
    keep_until: float = 0.0  # before that, the machines do not end
    ending: float = 0.0  # when their end was decided
    active: tuple[str, ...] = ()  # why the cluster is not idle

    def ends_at(self, rules: Rules) -> float:
        """Return when the machines end if nothing happens; 0 while something does."""
        if self.ending or not self.idle_since:
            return self.ending
        return max(self.idle_since + rules.idle_seconds, self.keep_until)


def decide(
    before: WatchState, active: Sequence[str], began: float, now: float, rules: Rules
) -> WatchState:
    """Return the state after a look, which began and ended at times in seconds since 1970.

    Idle time counts from the start of one look to the start of another: a look itself takes
    minutes if there are many runs or the disk is slow.
    """
    if before.ending:
        revived = active and now - before.ending > REVIVED_SECONDS
        return WatchState(looked=now, active=tuple(active)) if revived else before
    looked = replace(before, looked=now, active=tuple(active))
    if active:
        return replace(looked, idle_since=0.0)
    if not before.idle_since or not 0 <= began - before.looked <= BLIND_SECONDS:
        looked = replace(looked, idle_since=began)
    return replace(looked, ending=now) if began >= looked.ends_at(rules) else looked


def keep(before: WatchState, seconds: float, now: float, rules: Rules) -> WatchState:
    """Return the state after a request to keep the machines for some time.

    Raises:
        ValueError: they end before that; the message says when.
    """
    if before.ending:
        raise ValueError("the machines are ending already: make up starts new ones")
    left = max(0.0, rules.deadline - now)
    if not (math.isfinite(seconds) and 0 < seconds <= left):
        raise ValueError(
            f"{seconds / 60:.0f} minutes must be more than 0 and at most the {left / 60:.0f} until "
            "the machines' deadline: raise lambdaCloud.ttlHours or reservation.end and run make "
            "up, or keep less"
        )
    return replace(before, keep_until=now + seconds)


def verdict(state: WatchState, now: float, rules: Rules) -> dict[str, Any]:
    """Return the answer for clients."""
    ends_at, after = state.ends_at(rules), HEAD_SECONDS + rules.command_seconds
    return {
        **asdict(state),
        "idle_seconds": rules.idle_seconds,
        "ends_in": ends_at - now if ends_at else None,
        "end": bool(state.ending),
        "end_head": bool(state.ending) and now >= state.ending + after,
    }


def look(readers: Mapping[str, Callable[[], Sequence[str]]]) -> list[str]:
    """Return the readers' reasons why the cluster is not idle."""
    found: list[str] = []
    for what, read in readers.items():
        try:
            found += read()
        except Exception as error:  # after any error, something may be there
            found.append(f"{what} cannot be read ({error or repr(error)})")
    return found


class Server:
    """A server of the stack, which answers JSON."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url, token
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path: str) -> Any:
        request = urllib.request.Request(  # noqa: S310 (written by the stack)
            self._url + path, headers={"Authorization": f"Bearer {self._token}"}
        )
        with self._opener.open(request, timeout=REQUEST_SECONDS) as answer:
            content = answer.read(ANSWER_MIB * 2**20 + 1)
        if len(content) > ANSWER_MIB * 2**20:
            raise ValueError(f"more than {ANSWER_MIB} MiB, which are not read")
        return json.loads(content)


class Notebook(Server):
    """The notebook, which may have a page open and kernels that know of no cluster."""

    def used(self) -> list[str]:
        """Return kernels that compute, and whether somebody used the notebook lately."""
        # Otherwise this question would be such a use.
        kernels = self.ask("/api/kernels?no_track_activity=1")
        busy = any(each["execution_state"] != "idle" for each in kernels)
        last = datetime.fromisoformat(self.ask("/api/status")["last_activity"]).timestamp()
        lately = time.time() - last < BLIND_SECONDS
        return ["a kernel of the notebook computes"] * busy + ["the notebook is used"] * lately


class Ray(Server):
    """The cluster's work, read from its dashboard."""

    def jobs(self, *statuses: str) -> list[str]:
        """Return jobs of some statuses, also jobs of Ray's client and of `train dev`.

        Entries of a queue that make jobs at some times are none.
        """
        return [
            f"job {each.get('submission_id') or each.get('job_id')} is {each['status']}"
            for each in self.ask("/api/jobs/")
            if each["status"] in statuses and "every" not in (each.get("metadata") or ())
        ]

    def served(self) -> list[str]:
        return [
            f"{name} is served" for name in self.ask("/api/serve/applications/")["applications"]
        ]

    def actors(self) -> list[str]:
        """Return actors that have outlived their jobs; Ray's own are left out."""
        return [
            f"actor {each['name'] or each['class_name']} lives"
            for each in self._living("actors")
            if not str(each["ray_namespace"]).startswith("_")
            and not str(each["class_name"]).startswith("_")
        ]

    def nodes(self) -> int:
        """Return how many nodes are alive."""
        return len(self._living("nodes"))

    def is_used(self, bounds: IdleLimits) -> bool:
        """Return whether a machine is used beyond bounds, or its current use is unknown."""
        listed = self.ask("/nodes?view=summary")["data"]["summary"]
        alive = [each for each in listed if each["raylet"]["state"] == "ALIVE"]
        return not alive or any(
            abs(time.time() - each["now"]) > BLIND_SECONDS
            or each["cpu"] * each["cpus"][0] > bounds.cpu_percent
            or any(gpu["utilizationGpu"] > bounds.gpu_percent for gpu in each["gpus"])
            for each in alive
        )

    def _living(self, what: str) -> list[dict[str, Any]]:
        asked = f"/api/v0/{what}?detail=1&limit={LISTED}"
        asked += "&filter_keys=state&filter_predicates=%21%3D&filter_values=DEAD"
        found: list[dict[str, Any]] = self.ask(asked)["data"]["result"]["result"]
        return found


def work(ray: Ray, bounds: IdleLimits) -> list[str]:
    """Return waiting jobs, and running ones with their actors if use exceeds a limit."""
    # First: it may run a moment later. It counts, as it may be about to install its packages.
    waiting = ray.jobs("PENDING")
    living = [*ray.jobs("RUNNING"), *ray.actors()]
    if living and bounds.cpu_percent and not ray.is_used(bounds):
        living = []
    return waiting + living


class Joining:
    """Whether nodes that the stack always has must yet join: no machine that installs is idle.

    Once so many were there, or after a time in seconds since 1970, nobody asks again: a node that
    dies later keeps no machine.
    """

    def __init__(self, ray: Ray, nodes: int, until: float) -> None:
        self._ray, self._nodes, self._until = ray, nodes, until

    def __call__(self) -> list[str]:
        """Return the reason that nodes have yet to join; nothing once they have."""
        there = self._ray.nodes() if self._nodes and time.time() < self._until else self._nodes
        if there < self._nodes:
            return [f"{there} of {self._nodes} nodes have joined"]
        self._nodes = 0
        return []


def logins(idle_seconds: float) -> list[str]:
    """Return the logins at terminals of this machine that were used lately."""
    if not UTMP.exists():
        return []
    import psutil  # noqa: PLC0415 - images of pods may lack it

    found = []
    for each in psutil.users():
        terminal = Path("/dev", each.terminal or "")
        if terminal.is_char_device() and time.time() - terminal.stat().st_atime < idle_seconds:
            found.append(f"{each.name} is logged in at {each.terminal}")
    return found


class Results:
    """Runs whose results are in the store only, neither pulled nor copied.

    A file is read again only after it has changed: a store may hold thousands of runs.
    """

    def __init__(self, source: Store) -> None:
        self._source = source
        self._known: dict[str, tuple[Listed, Any]] = {}  # made of a file, by its name

    def __call__(self) -> list[str]:
        listed = self._source.listed()
        manifests: dict[str, dict[str, str]] = {}  # of each run, by their checkpoints
        for name, stamp in listed.items():
            folder = replicate.described(name)
            if folder and stamp.size <= replicate.MANIFEST_BYTES:
                manifests.setdefault(name.partition("/")[0], {})[folder] = name
        runs = sorted(
            run for run, _, rest in (n.partition("/") for n in listed) if rest == replicate.CONFIG
        )
        trials = replicate.inner(listed)
        known, self._known = self._known, {}  # files that are gone are forgotten

        def of(name: str, make: Callable[[bytes], Any]) -> Any:
            if name not in listed:
                return None
            stamp, made = known.get(name, (None, None))
            if stamp != listed[name]:
                made = make(self._source.read(name, MOST_STATE_BYTES))
            self._known[name] = listed[name], made
            return made

        found = []
        for run in runs:
            epochs = of(f"{run}/{replicate.METRICS}", replicate.records) or 0
            whole = [
                folder
                for folder, name in manifests.get(run, {}).items()
                if replicate.is_whole(folder, of(name, replicate.named), listed)
            ]
            newest = {"checkpoint": replicate.newest(run, whole), "epochs": epochs}
            newest["files"] = trials[run]
            saved = [of(f"{run}/{mark}", _json) for mark in MARKS]
            if any(newest.values()) and newest not in saved:
                found.append(f"run {run} was neither pulled nor copied")
        return found


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


class IdleWatch:
    """State of the watch, which looks update; a file keeps it for another start."""

    def __init__(self, rules: Rules, file: Path) -> None:
        self._rules, self._file = rules, file
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        known = _json(file.read_bytes()) if file.exists() else None
        kept = {key: float(known[key]) for key in ("keep_until", "ending")} if known else {}
        self._state = WatchState(active=("nothing was looked at yet",), **kept)

    def change(self, make: Callable[..., WatchState], *given: Any) -> None:
        """Take the state that `decide` or `keep` makes of the present one."""
        with self._lock:
            state = make(self._state, *given, time.time(), self._rules)
            if (state.keep_until, state.ending) != (self._state.keep_until, self._state.ending):
                draft = self._file.with_suffix(".new")
                draft.write_text(json.dumps(asdict(state)))
                draft.replace(self._file)
            self._state = state

    def verdict(self) -> dict[str, Any]:
        return verdict(self._state, time.time(), self._rules)

    def said(self) -> str:
        """Return a line for the log: why the cluster is active, or that it ends soon."""
        known = self.verdict()
        if known["ends_in"] is None or known["ends_in"] > WARN_SECONDS:
            return "; ".join(known["active"]) or "idle"
        return f"idle: all ends within {WARN_SECONDS / 60:g} min; train keep 2h puts it off"


def serve(watch: IdleWatch, address: tuple[str, int], token: str) -> ThreadingHTTPServer:
    """Answer requests in a separate thread."""

    class Answers(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            if self.path == "/health":
                self._say(HTTPStatus.OK, {})
            elif self.path == "/metrics":
                ends_in = watch.verdict()["ends_in"]
                text = "" if ends_in is None else f"{METRIC} {ends_in:.0f}\n"
                self._answer(HTTPStatus.OK, text, "text/plain; version=0.0.4")
            elif self._may():
                known = self.path == "/verdict"
                self._say(
                    HTTPStatus.OK if known else HTTPStatus.NOT_FOUND,
                    watch.verdict() if known else {},
                )

        def do_POST(self) -> None:
            if not self._may():
                return
            if self.path != "/keep":
                self._say(HTTPStatus.NOT_FOUND, {})
                return
            try:
                length = min(int(self.headers["Content-Length"]), BODY_BYTES)
                watch.change(keep, float(json.loads(self.rfile.read(length))["seconds"]))
            except (ValueError, TypeError, LookupError) as error:
                self._say(HTTPStatus.BAD_REQUEST, {"error": str(error)})
            else:
                self._say(HTTPStatus.OK, watch.verdict())

        def _may(self) -> bool:
            given = self.headers.get("Authorization", "")
            if hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
                return True
            self._say(HTTPStatus.UNAUTHORIZED, {})
            return False

        def _say(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
            self._answer(status, json.dumps(content), "application/json")

        def _answer(self, status: HTTPStatus, content: str, kind: str) -> None:
            body = content.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: clients ask every minute."""

    server = ThreadingHTTPServer(address, Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main(settings: Mapping[str, Any]) -> None:
    """Look until the process is ended.

    Args:
        settings: `listen`, `port`, `token`, `idleSeconds`, `commandSeconds`, `cpuPercent`,
            `gpuPercent`, `deadline` (seconds since 1970), `file`, `dashboard` and `rayToken`,
            `notebook` (`url` and `token`, {} without one), `nodes` (how many the stack always has),
            `source` as replicate.py's `location` takes it, or None where results outlive the end.
    """
    rules = Rules(settings["idleSeconds"], settings["deadline"], settings["commandSeconds"])
    watch = IdleWatch(rules, Path(settings["file"]))
    serve(watch, (settings["listen"], int(settings["port"])), settings["token"])
    ray = Ray(settings["dashboard"], settings["rayToken"])
    bounds = IdleLimits(settings["cpuPercent"], settings["gpuPercent"])
    readers: dict[str, Callable[[], Sequence[str]]] = {
        "jobs and actors": lambda: work(ray, bounds),
        "served models": ray.served,
        "logins": lambda: logins(rules.idle_seconds),
        "nodes": Joining(ray, settings["nodes"], time.time() + JOIN_SECONDS),
    }
    if settings["notebook"]:
        readers["notebook"] = Notebook(**settings["notebook"]).used
    # Last: all of the store is listed.
    stored: dict[str, Callable[[], Sequence[str]]] = {}
    if settings["source"]:
        stored["results"] = Results(replicate.location(settings["source"]))
    said = ""
    while True:
        began = time.time()
        # The store may take minutes, and a user may submit a job meanwhile: ask the rest again.
        active = look(readers) or look(stored) or look(readers)
        watch.change(decide, active, began)
        before, said = said, watch.said()
        if said != before:
            print(said, flush=True)  # noqa: T201 - the service's log
        time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
