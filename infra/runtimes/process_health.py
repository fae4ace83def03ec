"""Whether a program of a supervisord is well: it runs and stays up, answers, and has its ports.

supervisord counts no restarts, so its log does. Runs on other machines too.
"""

import calendar
import http.client
import re
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra.runtimes import health, owned_processes
from infra.runtimes import ports as port_check
from infra.runtimes.supervisor import Supervisor, tail

REQUEST_SECONDS = 2.0
PATIENT_SECONDS = 10.0  # for the answer of a program that was up: a busy machine is slow
LOG_LINES = 200
LOG_MOST = 20_000  # lines of supervisord's own log
RUNS = ("RUNNING", "STARTING")
TCP = "tcp"  # scheme of a health check that is a connection only
STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d+ ")
ENDED = re.compile(r"\w+ exited: (\S+) \((.*?)(?:; (?:not )?expected)?\)")

Props = dict[str, Any]


def fault(daemon: Supervisor, props: Props) -> str:
    """Return what is wrong with a program that was up, "" if nothing is."""
    name = props["name"]
    try:
        state = daemon.state(name)
    except OSError:
        return gone(daemon)
    if state is None:
        return f"{name} is gone from its supervisord"
    if props.get("onDemand"):  # whether it runs is its starter's business
        return ""
    up, ended = _up_seconds(state), endings(daemon, name)
    runs = state["statename"] in RUNS
    silent = next((url for url in props["health"] if not answers(url, PATIENT_SECONDS)), "")
    suspect = ended or silent or up < health.STEADY_SECONDS
    held = held_ports(daemon, props) if suspect else []
    if runs and not silent and not held and not health.loops(len(ended), up):
        return ""
    found = f"does not answer {silent}" if silent else "lacks a port"
    if ended:
        found = health.ended(len(ended), ended[-1])
    elif not runs:
        found = "is stopped"
    return "; ".join([f"{name} {found}{health.last_error(daemon.log(name, LOG_LINES))}", *held])


def gone(daemon: Supervisor) -> str:
    """Return that supervisord does not answer, and why."""
    reason = daemon.distrust() or "was killed, or this machine was restarted"
    return f"supervisord of {daemon.folder} does not answer: it {reason}"


def stays_up(daemon: Supervisor, props: Props, state: Props) -> bool:
    """Return whether a program that answers has run for long enough to be called up."""
    up = _up_seconds(state)
    steady = up >= float(props.get("steadySeconds", 0))
    return steady and not health.loops(len(endings(daemon, props["name"])), up)


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
    since = max(begun - 1, time.time() - health.WINDOW_SECONDS) - shift
    return [
        ended[2]
        for found, line in stamped
        if (ended := ENDED.match(line, found.end()))
        and ended[1] == name
        and _seconds(found[1]) >= since
    ]


def held_ports(daemon: Supervisor, props: Props) -> list[str]:
    """Return a line for each port of a program that another program listens on."""
    own = owned_processes.supervised(daemon.url, daemon.mark, props["name"])
    return port_check.held(settings(props), {process.pid for process in own})


def settings(props: Props) -> dict[str, list[int]]:
    """Return the ports of a program, by the settings that change them."""
    found: dict[str, list[int]] = {}
    for port in props["ports"]:
        found.setdefault(port["setting"], []).append(int(port["number"]))
    return found


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


def _up_seconds(state: Props) -> float:
    return float(state["now"] - state["start"]) if state["statename"] in RUNS else 0.0


def _seconds(stamp: str) -> int:
    return calendar.timegm(time.strptime(stamp, "%Y-%m-%d %H:%M:%S"))
