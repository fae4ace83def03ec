"""A program of a supervisord as a service: it runs and stays up, answers, and has its ports.

supervisord counts no restarts, so its log does. Runs on other machines too.
"""

import calendar
import http.client
import re
import socket
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from node import owned_processes
from node import ports as port_check
from node.life import STARTS_LIMIT, STEADY_SECONDS, WINDOW_SECONDS, Driver, Look, ServiceError
from node.supervisor import Supervisor, tail

REQUEST_SECONDS = 2.0
PATIENT_SECONDS = 10.0  # for the answer of a program that was up: a busy machine is slow
POLL_SECONDS = 0.1
HELD_SECONDS = 1.0  # between two looks at who holds ports
LOG_MOST = 20_000  # lines of supervisord's own log
RUNS = ("RUNNING", "STARTING")
TCP = "tcp"  # scheme of a health check that is a connection only
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ ")
ENDED = re.compile(r"\w+ exited: (\S+) \((.*?)(?:; (?:not )?expected)?\)")

Props = dict[str, Any]


class ProgramDriver(Driver):
    """A program of a supervisord, which starts it again whenever it ends."""

    def __init__(self, daemon: Supervisor, props: Props) -> None:
        self.name, self._on_demand = props["name"], bool(props.get("onDemand"))
        self.checks = [] if self._on_demand else props["health"]
        self.steady_seconds = float(props.get("steadySeconds", 0))
        self.poll_seconds = POLL_SECONDS
        self._daemon, self._props = daemon, props
        self._starts: set[int] = set()
        self._up, self._pid, self._ends = 0.0, 0, list[str]()

    def look(self) -> Look:
        try:
            state = self._daemon.state(self.name)
        except OSError:
            raise ServiceError(no_answer_error(self._daemon)) from None
        if state is None:
            raise ServiceError(f"{self.name} is gone from its supervisord")
        # Whether one that is on demand runs is its starter's business.
        runs, start = self._on_demand or state["statename"] in RUNS, int(state["start"])
        self._up, self._pid = float(state["now"] - start) if runs else 0.0, int(state["pid"])
        self._starts.add(start)
        ended = f"ended {STARTS_LIMIT} times before it was up"
        return Look(runs=runs, start=start, over=ended if len(self._starts) > STARTS_LIMIT else "")

    def ask(self, url: str) -> str:
        return "" if answers(url) else f"does not answer {url}"

    def lately(self) -> tuple[int, str, float]:
        if self._on_demand:
            return super().lately()
        self._ends = endings(self._daemon, self.name)
        return len(self._ends), self._ends[-1] if self._ends else "", self._up

    def amiss(self, *, asked: bool) -> list[str]:
        """Look at its ports; what a former start has left may hold one, and answer, for moments."""
        if self._on_demand:
            return []
        asks = [] if asked or not self._up else self.checks
        silent = next((url for url in asks if not answers(url, PATIENT_SECONDS)), "")
        suspect = asked or silent or self._ends or self._up < STEADY_SECONDS
        held = self._held() if suspect else []
        self.poll_seconds = HELD_SECONDS if held else POLL_SECONDS
        return [*([f"{self.name} does not answer {silent}"] if silent else []), *held]

    def log(self, lines: int) -> list[str]:
        return tail(self._daemon.folder / self.name / "log", lines)

    def _held(self) -> list[str]:
        """Return a line for each of its ports that another program holds."""
        ports = ports_of(self._props)
        with suppress(psutil.Error):
            itself = psutil.Process(self._pid)
            below = [each.pid for each in itself.children(recursive=True)]
            if port_check.are_of([itself.pid, *below], ports):
                return []
        daemon = self._daemon
        own = owned_processes.of_supervisord(daemon.url, daemon.mark, self.name)
        return port_check.describe_listening(ports, {each.pid for each in own})


def no_answer_error(daemon: Supervisor) -> str:
    """Return that supervisord does not answer, and why."""
    reason = daemon.distrust() or "was killed, or this machine was restarted"
    return f"supervisord of {daemon.folder} does not answer: it {reason}"


def endings(daemon: Supervisor, name: str) -> list[str]:
    """Return how a program ended, each time lately; times before `up` started it do not count."""
    log = daemon.folder / "supervisord.log"
    lines = [line for each in (f"{log}.1", log) for line in tail(Path(each), LOG_MOST)]
    stamped = [(found, line) for line in lines if (found := STAMP.match(line))]
    try:
        # Lines have supervisord's local time. The file was last changed when it wrote the last one.
        shift = log.stat().st_mtime - _seconds(stamped[-1][0][1])
        begun = (daemon.folder / "conf.d" / f"{name}.conf").stat().st_mtime
    except (OSError, IndexError):
        return []
    since = max(begun - 1, time.time() - WINDOW_SECONDS) - shift
    return [
        ended[2]
        for found, line in stamped
        if (ended := ENDED.match(line, found.end()))
        and ended[1] == name
        and _seconds(found[1]) >= since
    ]


def ports_of(props: Props) -> dict[str, list[int]]:
    """Return the ports of a program, by the settings that change them."""
    return port_check.by_setting((each["setting"], int(each["number"])) for each in props["ports"])


def answers(url: str, seconds: float = REQUEST_SECONDS) -> bool:
    """Return whether a health check succeeds."""
    place = urlsplit(url)
    # A proxy of the user cannot reach this machine's loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        if place.scheme == TCP:
            socket.create_connection((place.hostname, place.port), seconds).close()
            return True
        with opener.open(url, timeout=seconds) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def _seconds(stamp: str) -> int:
    return calendar.timegm(time.strptime(stamp, "%Y-%m-%d %H:%M:%S"))
