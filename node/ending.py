#!/usr/bin/env python3
"""Ends a stack at a time: one program, wherever the stack is.

    ending.py wait SETTINGS                wait for the end, then end all
    ending.py start|look|resume FILE JSON  of a timer on another machine: see these functions
    ending.py stop FILE
    ending.py                              look once, on a rented machine; cron runs it each minute

SETTINGS is JSON or a file of it: `end` (ISO 8601), `ends` (one of WAYS) with what that needs,
`drainSeconds` with `leave`, how the head's script `ray_leave.py` is run, and `beforeEnd`: `run`, a
command of the user for the head, and the `seconds` that it may take.

The clock of the machine is asked each second, so one that is set right is followed, and a machine
that was suspended ends its stack when it wakes up. Before the end runs have `drainSeconds` to store
a checkpoint and leave. A drain that fails or hangs delays nothing.

Machines and pods get this file. It needs Python 3.8 and its standard library. Only programs of a
supervisord and the Engine of DOCKER_HOST need this project, which is where they are.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Props = dict[str, Any]

NAME = "reservation-end"  # of the timer as a program, and as a pod
FILE = "ending.py"
LOOK_SECONDS = 1.0
REQUEST_SECONDS = 30.0
ANSWER_BYTES = 4 * 2**20  # bound of an answer: a job may listen at the idle watch's port
NO_ANSWER = (OSError, http.client.HTTPException, ValueError, RecursionError)

PYTHON = "python3"  # of the head's image
NOTICE = "reservation-ends-"  # a file in the notebook's folder; its name is the end
NOTICE_SECONDS = 10.0
ENGINE_SECONDS = 60.0
STOP_SECONDS = 900.0  # that the slowest container may take
START_SECONDS = 180.0  # of the head's script: Ray loads slowly on a busy machine
HEALTHY_SECONDS = 120.0

# The answer of Kubernetes will be the same next time.
FINAL = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
JOBS = "/jobs/"  # one that has ended has no pods left to end, and is not run again

MACHINE = Path("/etc/trainyard/ttl.json")  # settings of a rented machine, with the API key
LOG = Path("/var/log/trainyard-ttl.log")
WARNED = Path("/run/trainyard-ttl")  # minutes of the last warning
IDLE_WARNED = Path("/run/trainyard-ttl-idle")
ENDING = Path("/run/trainyard-ttl-ending")  # the cluster is idle: the watch may have ended by now
WARN_MINUTES = (5, 10, 30, 60)
IDLE_WARN_SECONDS = 300
IDLE_SECONDS = 15.0  # between two questions to the watch


class Way:
    """A way to end a stack.

    With idleEnd it needs `idle`: `url` and `token` of the idle watch (node/idle_watch.py), and
    `last`, whether that ends with this machine. Without its answer only the end counts.
    """

    _asks = 0.0  # the watch, when the clock of this process shows that

    def __init__(self, settings: Props) -> None:
        self.settings = settings

    def look(self) -> bool:
        """Warn or act before the end; return whether it is now, as the cluster is idle.

        It is called each second.
        """
        idle = self.settings.get("idle")
        if not idle or time.monotonic() < self._asks:
            return False
        self._asks = time.monotonic() + IDLE_SECONDS
        return self.ask(idle)

    def ask(self, idle: Props) -> bool:
        """Return whether the watch says that the cluster is idle."""
        return ask_watch(idle)[0] is True

    def drain(self, seconds: float) -> None:
        """Have all runs store a checkpoint and leave."""

    def run_at_head(self, words: Sequence[str], seconds: float) -> None:
        """Run a command where the head runs, with its environment; its output goes to the log."""

    def end(self) -> None:
        """End all; what cannot be ended now is tried again."""


def wait(settings: Props, way: Way) -> None:
    """Wait for the end, then end all."""
    hook = settings.get("beforeEnd") or {"run": "", "seconds": 0}
    end = moment(settings) - hook["seconds"]
    seconds = float(settings["drainSeconds"]) if settings.get("leave") else 0.0
    say(f"the services end at {settings['end']}")
    idle = wait_until(end - seconds, way.look)
    if not idle and (left := min(seconds, end - time.time())) > 0:
        say(f"runs store a checkpoint and leave, for at most {left:.0f} s")
        # The end comes even if the drain hangs or the clock is set.
        Thread(target=_drain, args=(way, left), daemon=True).start()
    idle = idle or wait_until(end, way.look)
    if hook["run"]:
        say(f"the command before the end begins, for at most {hook['seconds']} s")
        command = Thread(target=_run_hook, args=(way, hook), daemon=True)
        command.start()
        command.join(hook["seconds"])  # the end comes even if it hangs
    idle = idle or wait_until(moment(settings), way.look)
    say(f"{'the cluster is idle' if idle else 'the reservation is over'}: all services end")
    way.end()


def moment(settings: Props) -> float:
    """Return the end in seconds since 1970."""
    return datetime.fromisoformat(settings["end"]).timestamp()


def wait_until(until: float, look: Callable[[], bool]) -> bool:
    """Wait until the clock has reached a time, in seconds since 1970; call `look` each second.

    Return whether that has ended the wait.
    """
    while (left := until - time.time()) > 0:
        if look():
            return True
        time.sleep(min(left, LOOK_SECONDS))
    return False


def _drain(way: Way, seconds: float) -> None:
    try:
        way.drain(seconds)
    except Exception as error:  # its type depends on the way
        say(f"the workers could not be drained ({error}): runs have their last checkpoints")


def _run_hook(way: Way, hook: Props) -> None:
    words = ["timeout", "-k", "5", str(hook["seconds"]), "sh", "-c", hook["run"]]
    try:
        way.run_at_head(words, hook["seconds"])
    except Exception as error:  # its type depends on the way
        say(f"the command before the end failed: {error}")


def say(text: str) -> None:
    """Write a line to this program's log, which a killed supervisord no longer reads."""
    with contextlib.suppress(OSError):
        print(f"{_now()} {text}", flush=True)  # noqa: T201


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


class Programs(Way):
    """The programs of a supervisord, which restarts this one.

    If supervisord was killed, this one still ends what that has started. It needs `folder` and
    `mark` of supervisord, and `leave`: `service`, `file` and `arguments`. `idle` has the watch's
    `file` too where that runs.
    """

    def __init__(self, settings: Props) -> None:
        super().__init__(settings)
        from node.folders import FolderMark  # noqa: PLC0415 - only here
        from node.supervisor import Supervisor  # noqa: PLC0415 - only here

        mark = FolderMark.of(settings["mark"])
        self._daemon = Supervisor(folder=Path(settings["folder"]), mark=mark)

    def ask(self, idle: Props) -> bool:
        """Ask the watch, and forget what it decided."""
        over = super().ask(idle)
        if over and "file" in idle:  # with it, the watch of the next `up` would end that at once
            Path(idle["file"]).unlink(missing_ok=True)
        return over

    def drain(self, seconds: float) -> None:
        """Run the script as its service would, with its Python, which has Ray."""
        leave = self.settings["leave"]
        service = self._daemon.folder / leave["service"]
        command = (service / "run").read_text().rpartition("\nexec ")[2]
        python = Path(shlex.split(command)[0]).with_name("python")
        script = service / "files" / leave["file"]
        words = [str(python), str(script), *leave["arguments"], "drain", f"{seconds:g}"]
        self.run_at_head(words, seconds)

    def run_at_head(self, words: Sequence[str], seconds: float) -> None:  # noqa: ARG002
        """Run it with the variables of the head's program."""
        service = self._daemon.folder / self.settings["leave"]["service"]
        variables = (service / "run").read_text().rpartition("\nexec ")[0]
        subprocess.run(
            ["/bin/sh", "-c", f"{variables}\nexec {shlex.join(words)}"],
            stdin=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            check=True,
        )

    def end(self) -> None:
        """End all programs, then supervisord, which ends this one; files and logs stay."""
        from node import owned_processes  # noqa: PLC0415 - only here

        daemon, own = self._daemon, os.getpid()
        try:
            daemon.finish(NAME)
        except OSError:  # it was killed: its programs have no parent
            owned_processes.end(
                lambda: [
                    process
                    for process in owned_processes.of_supervisord(daemon.url, daemon.mark)
                    if process.pid != own
                ],
                daemon.folder,
            )


class Containers(Way):
    """The containers of a network. No container gets the Engine's socket, so none ends the others.

    They stay stopped until `resume`, also when Docker or the machine restarts. It needs
    `network`, `notebook` (container, folder; None without one), `leave` (container, script,
    arguments), and `socket` of the Engine; without that it is the Engine of DOCKER_HOST. `idle` is
    the watch's `container` and `file`: the command line of a timer would show a token.
    """

    def __init__(self, settings: Props) -> None:
        super().__init__(settings)
        self._told = not settings["notebook"]

    def look(self) -> bool:
        """Say in the notebook's folder when the services end, once the notebook runs."""
        if not self._told:
            self._tell()
        return super().look()

    def ask(self, idle: Props) -> bool:
        """Read what the watch decided, and forget it: the next `up` starts the same container."""
        try:
            container, file = idle["container"], idle["file"]
            code, said = self._run(container, ["cat", file], NOTICE_SECONDS)
            if code or not json.loads(said)["ending"]:
                return False
            return self._run(container, ["rm", file], NOTICE_SECONDS)[0] == 0
        except (*NO_ANSWER, LookupError, TypeError):
            return False

    def _tell(self) -> None:
        where, end = self.settings["notebook"], datetime.fromisoformat(self.settings["end"])
        with contextlib.suppress(*NO_ANSWER):  # Docker may be starting
            words = ["sh", "-c", notice(where["folder"], end)]
            self._told = self._run(where["container"], words, NOTICE_SECONDS)[0] == 0

    def drain(self, seconds: float) -> None:
        leave = self.settings["leave"]
        words = [PYTHON, leave["script"], *leave["arguments"], "drain", f"{seconds:g}"]
        self.run_at_head(words, seconds)

    def run_at_head(self, words: Sequence[str], seconds: float) -> None:
        """Run it in the head's container."""
        container = self.settings["leave"]["container"]
        code, said = self._run(container, words, seconds + START_SECONDS)
        if said:
            say(said[-2000:])
        if code:
            raise OSError(said[-200:])

    def end(self) -> None:
        """Stop all running ones, each within its own time; then this program's supervisord."""
        while True:
            try:
                if not (running := self._all("running", "restarting", "paused")):
                    break
                with ThreadPoolExecutor(len(running)) as pool:
                    list(pool.map(self._stop, running))
            except NO_ANSWER as error:  # Docker may be starting
                say(f"not all containers could be stopped: {error}")
            time.sleep(LOOK_SECONDS)
        say("all containers have ended")
        if "folder" in self.settings:
            Programs(self.settings).end()

    def resume(self) -> None:
        """Start the ended containers, and wait until they are healthy.

        The same `up` may replace some of them: it starts the new ones itself.

        Raises:
            OSError: a container is late, or the Engine refuses.
            NO_ANSWER: it cannot be used.
        """
        stopped = [
            container
            for container in self._all("exited")
            if (found := self._inspect(container))
            and found["HostConfig"]["RestartPolicy"]["Name"] != "no"  # it runs once
        ]
        for container in stopped:
            self._ask("POST", f"/containers/{container}/start")
        deadline = time.monotonic() + HEALTHY_SECONDS
        for container in stopped:
            while (found := self._inspect(container)) and not _is_healthy(found):
                if time.monotonic() > deadline:
                    name = found["Name"][1:]
                    raise OSError(f"{name} is not healthy: see docker logs {name}")
                time.sleep(LOOK_SECONDS / 2)

    def _all(self, *statuses: str) -> list[str]:
        """Return the ids of the network's containers that have one of some statuses."""
        chosen = quote(json.dumps({"network": [self.settings["network"]], "status": statuses}))
        answer = self._ask("GET", f"/containers/json?all=1&filters={chosen}")
        return [each["Id"] for each in json.loads(answer or "[]")]

    def _inspect(self, container: str) -> Props | None:
        answer = self._ask("GET", f"/containers/{container}/json")
        return None if answer is None else dict(json.loads(answer))

    def _stop(self, container: str) -> None:
        self._ask("POST", f"/containers/{container}/stop", seconds=STOP_SECONDS)

    def _run(self, container: str, words: Sequence[str], seconds: float) -> tuple[int, str]:
        # With a terminal the answer is the plain output, without Docker's frames.
        asked = {"Cmd": words, "AttachStdout": True, "AttachStderr": True, "Tty": True}
        made = self._ask("POST", f"/containers/{container}/exec", asked)
        if made is None:
            raise OSError(f"container {container} does not run")
        path = f"/exec/{json.loads(made)['Id']}"
        said = self._ask("POST", f"{path}/start", {"Tty": True}, seconds) or b""
        ended = json.loads(self._ask("GET", f"{path}/json") or "{}")
        return ended.get("ExitCode", 1), said.decode(errors="replace").strip()

    def _ask(
        self, method: str, path: str, content: Any = None, seconds: float = ENGINE_SECONDS
    ) -> bytes | None:
        """Send a request to the Engine; None: the container is gone, or has just ended.

        Raises:
            OSError: the Engine refuses.
            NO_ANSWER: it does not answer.
        """
        send = by_socket if "socket" in self.settings else by_sdk
        status, answer = send(self.settings.get("socket", ""), method, path, content, seconds)
        if status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            return None
        if status >= HTTPStatus.BAD_REQUEST:
            said = answer.decode(errors="replace").strip()
            raise OSError(f"Docker's Engine answers {status} to {method} {path}: {said}")
        return answer


def _is_healthy(found: Props) -> bool:
    return bool(found["State"].get("Health", {}).get("Status", "healthy") == "healthy")


def by_socket(path: str, method: str, url: str, content: Any, seconds: float) -> tuple[int, bytes]:
    """Send a request to the Engine of a socket; return the answer's status and content."""
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(seconds)
        there.connect(path)
        connection = http.client.HTTPConnection("localhost")
        connection.sock = there
        body = None if content is None else json.dumps(content)
        connection.request(method, url, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def by_sdk(_: str, method: str, url: str, content: Any, seconds: float) -> tuple[int, bytes]:
    """Send a request to the Engine that DOCKER_HOST names, which may be reached by TLS or SSH."""
    from trainyard.access import docker_client  # noqa: PLC0415 - only here

    try:
        api = docker_client.connect().api
    except docker_client.EngineUnavailableError as error:
        raise OSError(str(error)) from None
    answer = api.request(method, f"{api.base_url}{url}", json=content, timeout=seconds)
    return answer.status_code, answer.content


def notice(folder: str, end: datetime) -> str:
    """Return the shell command that writes the end, in UTC, into the notebook's folder.

    It removes an earlier note.
    """
    name = f"{NOTICE}{end:%Y-%m-%d-%H%M}-UTC.txt"
    text = f"All services end at {end:%Y-%m-%d %H:%M} UTC. Files in this folder are kept."
    there = shlex.quote(folder)
    return f"cd {there} && rm -f {NOTICE}* && echo {shlex.quote(text)} >{name}"


class Pods(Way):
    """The stack's pods, this one included. Claims and all other objects stay.

    It needs `objects`, the URLs in the API of what makes the pods, its own at last; `account`, the
    folder of its own account; and `leave`, the script and its arguments.
    """

    def drain(self, seconds: float) -> None:
        words = [sys.executable, *self.settings["leave"], "drain", f"{seconds:g}"]
        subprocess.run(words, check=True)

    def end(self) -> None:
        """Delete the objects, the last one when all others are deleted."""
        for url in self.settings["objects"]:
            while not self._delete(url):
                time.sleep(LOOK_SECONDS)

    def _delete(self, url: str) -> bool:
        """Delete an object; return whether to go on with the next one."""
        try:
            found = self._ask("GET", url) if JOBS in url else {}
            if "completionTime" not in found.get("status", {}):
                self._ask("DELETE", url)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return True
            why = ", because this pod has no right to end it" if error.code in FINAL else ""
            say(f"{url} stays{why}: {error}")
            return bool(why)
        except NO_ANSWER as error:
            say(f"{url}: {error!r}")
            return False
        return True

    def _ask(self, method: str, url: str) -> Any:
        account = Path(self.settings["account"])
        trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
        token = (account / "token").read_text()  # each time: the kubelet renews it
        return send_request(method, url, token, None, urllib.request.HTTPSHandler(context=trusted))


class RentedMachine(Way):
    """A rented machine, which the cloud's API terminates, at its end or when the cluster is idle.

    It needs `apiUrl`, `apiKey` and `instanceId`. Logged-in users and the log are warned.
    """

    def look(self) -> bool:
        """Terminate it if the time is over or the cluster is idle; else warn."""
        left = moment(self.settings) - time.time()
        over = left > 0 and self._is_idle()
        if left <= 0:
            self._terminate("the time of this machine is over")
        elif over or (over is None and ENDING.exists()):
            with contextlib.suppress(OSError):
                ENDING.touch()
            self._terminate("the cluster is idle")
        else:
            if over is False:
                ENDING.unlink(missing_ok=True)  # it could not be ended, and is in use again
            due = next((str(minutes) for minutes in WARN_MINUTES if left <= minutes * 60), "")
            text = f"this machine ends in {left / 60:.0f} minutes: train pull RUN saves a run; or "
            self._say_once(WARNED, due, f"{text}set a later end")
        return False

    def _is_idle(self) -> bool | None:
        """Ask the watch whether the machine ends, and warn before; None without an answer."""
        if not (idle := self.settings.get("idle")):
            return None
        over, ends_in = ask_watch(idle)
        if over is None:
            return None
        soon = ends_in is not None and ends_in <= IDLE_WARN_SECONDS
        minutes = max(0, ends_in or 0) / 60
        text = f"the cluster is idle and ends in {minutes:.0f} minutes: train keep 2h puts it off"
        self._say_once(IDLE_WARNED, "idle" if soon else "", text)
        return over

    def _terminate(self, why: str) -> None:
        """Ask the cloud to end the machine; cron tries again."""
        url = f"{self.settings['apiUrl']}/api/v1/instance-operations/terminate"
        content = {"instance_ids": [self.settings["instanceId"]]}
        try:
            send_request("POST", url, self.settings["apiKey"], content)
        except NO_ANSWER as error:
            self._say(f"this machine cannot be terminated ({error}); trying again in a minute")
        else:
            self._say(f"{why}: terminating it")

    def _say_once(self, mark: Path, key: str, text: str) -> None:
        """Say a text unless this mark's last text had the same key; "" forgets that."""
        if not key:
            mark.unlink(missing_ok=True)
        elif not (mark.exists() and mark.read_text() == key):
            self._say(text)
            with contextlib.suppress(OSError):
                mark.write_text(key)

    @staticmethod
    def _say(text: str) -> None:
        """Tell all users who are logged in, and the log."""
        # A full disk must not prevent the end.
        with contextlib.suppress(OSError), LOG.open("a") as log:
            log.write(f"{_now()} {text}\n")
        try:
            subprocess.run(["wall", text], check=False)
        except OSError:
            say(text)


DIRECT = urllib.request.ProxyHandler({})
WAYS = {"programs": Programs, "containers": Containers, "pods": Pods}


def ask_watch(idle: Props) -> tuple[bool | None, float | None]:
    """Return whether a machine ends, and in how many seconds all do; None without an answer."""
    try:
        found = send_request("GET", idle["url"], idle["token"], None, DIRECT)
        ends_in = found["ends_in"]
        over = found["end_head" if idle["last"] else "end"] is True
        return over, None if ends_in is None else float(ends_in)
    except (*NO_ANSWER, LookupError, TypeError):
        return None, None


def send_request(
    method: str, url: str, token: str, content: Any, *handlers: urllib.request.BaseHandler
) -> Any:
    """Send a request; return the answer, which is JSON.

    Raises:
        HTTPError: a refusal.
        NO_ANSWER: no answer came, or it cannot be read.
    """
    request = urllib.request.Request(  # noqa: S310 - written by the stack
        url,
        None if content is None else json.dumps(content).encode(),
        {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
            "User-Agent": "trainyard",  # some gates in front of an API refuse urllib's own
        },
        method=method,
    )
    opener = urllib.request.build_opener(*handlers)
    with opener.open(request, timeout=REQUEST_SECONDS) as answer:
        return json.loads(answer.read(ANSWER_BYTES))


def start(file: str, settings: str) -> None:
    """Start this file as the timer, in a session that outlives the login; end an earlier one."""
    _end_timers(file)
    with Path(f"{file}.log").open("w") as log:
        subprocess.Popen(
            [sys.executable, "-I", file, "wait", settings],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
        )


def print_whether_waiting(file: str, settings: str) -> None:
    """Print "running" if a timer with the same settings waits."""
    if settings in _timers(file).values():
        print("running")  # noqa: T201


def resume(_file: str, settings: str) -> None:
    """Start containers that an earlier timer has ended."""
    try:
        Containers(json.loads(settings)).resume()
    except NO_ANSWER as error:
        sys.exit(str(error))


def stop(file: str) -> None:
    """End the timer, and remove its files."""
    _end_timers(file)
    for name in (file, f"{file}.new", f"{file}.log"):
        Path(name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        for folder in [*Path(file).parents][:2]:
            folder.rmdir()


def _end_timers(file: str) -> None:
    for pid in _timers(file):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _timers(file: str) -> dict[int, str]:
    """Return the settings of this user's processes that wait, by their numbers."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            if words[1:4] == ["-I", file, "wait"] and folder.stat().st_uid == os.getuid():
                found[int(folder.name)] = words[4]
    return found


def main(words: Sequence[str]) -> None:
    """Run the command of the command line."""
    if not words:
        if MACHINE.exists():
            RentedMachine(json.loads(MACHINE.read_text())).look()
    elif words[0] == "wait":
        text = words[1] if words[1].startswith("{") else Path(words[1]).read_text()
        settings = json.loads(text)
        wait(settings, WAYS[settings["ends"]](settings))
    else:
        commands: dict[str, Callable[..., None]]
        commands = {"start": start, "look": print_whether_waiting, "resume": resume, "stop": stop}
        commands[words[0]](*words[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
