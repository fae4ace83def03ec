"""What a job and its machines use while it runs: processors, memory, GPUs, disk and network.

On the job's own machine its processes are those whose environment has its run: its forks too. On
others they are Ray's workers of the job. These, and what machines use, are known from Ray's agents
by the head's dashboard: while it does not answer, rows have the processes of this machine only.
"""

import json
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from trainyard import json_values
from trainyard.housekeeping import housekeeping
from trainyard.tracking.run_folder import RUN_VARIABLE, STORAGE_VARIABLE

PROC, TICKS = Path("/proc"), os.sysconf("SC_CLK_TCK")  # ticks of processor time a second
DASHBOARD_VARIABLE = "TRAINYARD_DASHBOARD"  # host:port, on the nodes of a stack
PAUSE_S = 5.0  # between two looks, as Ray's agents have it
SHARE = 50  # and this many times as long as a look took
TIMEOUT_S, MOST_BYTES = 5.0, 2**26  # of an answer
MOST_ROWS = 300  # then every second one is left out, and the pause is doubled
ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Usage(threading.Thread):
    """Looks at what a job uses until the process ends.

    Attributes:
        rows: `step` and `time` (s since 1970); of the job `CPU` (processors), `memory` (bytes), and
            with GPUs `GPU` (%) and `GPU memory`; `_of_machine` after the name of its first node.
    """

    def __init__(self, job: str) -> None:
        super().__init__(daemon=True)
        self.rows: list[dict[str, float]] = []
        self._job, self._pause = job, PAUSE_S
        self._known: dict[str, Any] = {}  # the head's answer about the job
        names = (RUN_VARIABLE, STORAGE_VARIABLE)
        self._marks = [f"\0{name}={os.environ.get(name)}\0".encode() for name in names]
        self._zero = time.time() - time.monotonic()  # read once: the clock may jump
        self._began = _times(PROC / "self")[1]
        self._last: tuple[float, float] | None = None  # moment, and seconds of processor time

    def run(self) -> None:
        """Looks again and again."""
        with housekeeping("what this job uses is not recorded any more"):
            while True:
                began = time.monotonic()
                self.look()
                pause = min(self._pause, 1.0 + len(self.rows))  # short jobs have rows too
                time.sleep(max(pause, SHARE * (time.monotonic() - began)))

    def look(self) -> None:
        """Adds a row, but not at the first look: the next one counts from it."""
        pids, seconds, memory = processes(PROC, self._marks, self._began)
        now, found = time.monotonic(), {"CPU": 0.0, "memory": 0.0}
        with suppress(*ODD, OSError, HTTPException):
            found = self._machines(pids)
        if self._last:
            found["CPU"] += max(0.0, seconds - self._last[1]) / (now - self._last[0])
            found["memory"] += memory
            row = {name: round(value, 2) for name, value in found.items()}
            self.rows.append({"step": int(self._zero + now), "time": self._zero + now} | row)
        self._last = now, seconds
        if len(self.rows) > MOST_ROWS:
            del self.rows[1::2]
            self._pause *= 2

    def _machines(self, here: set[int]) -> dict[str, float]:
        """Return figures of the job's machines, and of its workers on others than this one."""
        found, gpus, looks = {"CPU": 0.0, "memory": 0.0}, list[Any](), len(self.rows)
        at = os.environ[DASHBOARD_VARIABLE]
        # The head's dearest answer; a job has an id of Ray's once it has connected to Ray.
        if not self._known.get("job_id") and looks & (looks - 1) == 0:
            told = ask(at, f"/api/jobs/{self._job}")
            self._known = told if isinstance(told, dict) else {}
        job = self._known
        for machine in by_machine(ask(at, "/nodes?view=summary")["data"]["summary"]):
            own = job["driver_node_id"] in machine["ids"]
            pids = here if own else set[int]()
            for node in machine["ids"] if job["job_id"] and not own else []:
                for worker in ask(at, f"/nodes/{node}")["data"]["detail"]["workers"]:
                    if worker["jobId"] == job["job_id"]:
                        pids.add(worker["pid"])
                        found["CPU"] += worker["cpuPercent"] / 100
                        found["memory"] += worker["memoryInfo"]["rss"]
            if pids:
                every = machine["gpus"]
                used = [x for x in every if any(p["pid"] in pids for p in x["processesPids"] or [])]
                gpus += used or every  # in a container processes have other numbers
                first = machine["name"].partition(",")[0]
                found |= {f"{first} {name}": use for name, use in _of_machine(machine).items()}
        return found | _of_gpus(gpus)


def ask(at: str, path: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Return an answer in JSON of the head or the queue, at host:port, by the cluster's token.

    Raises:
        OSError, HTTPException: it does not answer. One of ODD: not so.
    """
    token, file = os.environ.get("RAY_AUTH_TOKEN"), os.environ.get("RAY_AUTH_TOKEN_PATH")
    sent = {"Authorization": f"Bearer {token or (file and Path(file).read_text().strip())}"}
    with closing(HTTPConnection(at, timeout=timeout_s)) as connection:
        connection.request("GET", path, headers=sent)
        return json.loads(connection.getresponse().read(MOST_BYTES))


def by_machine(nodes: Iterable[Any]) -> list[Any]:
    """Return the living nodes of the dashboard's list, of each machine one, with all `ids`, `name`.

    Nodes that cannot be read stay as they are. A container is a machine here: it has its limits.
    """
    found: dict[object, Any] = {}
    for node in nodes:
        try:
            raylet = node["raylet"]
            name = "head" if raylet["isHeadNode"] else str(raylet["nodeManagerAddress"])
            machine = node.get("hostname"), json_values.number(node.get("bootTime")) or name
            if raylet["state"] == "ALIVE":
                first = found.setdefault(machine, {**node, "name": name, "ids": []})
                first["ids"].append(raylet.get("nodeId"))
                names = {*first["name"].split(", "), name}
                first["name"] = ", ".join(sorted(names, key=lambda each: (each != "head", each)))
        except ODD:
            found[object()] = node
    return [*found.values()]


def processes(proc: Path, marks: Sequence[bytes], after: int) -> tuple[set[int], float, int]:
    """Return ids, seconds of processor time (with ended children) and bytes (shared ones once).

    They are of the processes with all marks in their environment that began after some ticks.
    """
    found, ticks, memory = set[int](), 0, 0
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError, LookupError, ValueError):  # of another user, or ended meanwhile
            environment = b"\0%b" % (folder / "environ").read_bytes()
            if all(mark in environment for mark in marks) and (times := _times(folder))[1] > after:
                kib = (folder / "smaps_rollup").read_bytes().split(b"\nPss:")[1].split()[0]
                found.add(int(folder.name))
                ticks, memory = ticks + times[0], memory + int(kib) * 1024
    return found, ticks / TICKS, memory


def _times(folder: Path) -> tuple[int, int]:
    """Return the processor time of a process, with ended children, and when it began; in ticks."""
    fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    return sum(map(int, fields[11:15])), int(fields[19])


def _of_machine(node: Any) -> dict[str, float]:
    """Return what a machine uses: CPU and GPU in %, the rest in bytes or bytes a second."""
    memory, disk, network = node["mem"], node["diskIoSpeed"], node["networkSpeed"]
    found = {"CPU": node["cpu"], "memory": memory[3], "memory size": memory[0]}
    found |= {"disk read": disk[0], "disk written": disk[1]}
    return found | {"sent": network[0], "received": network[1]} | _of_gpus(node["gpus"])


def _of_gpus(gpus: Sequence[Any]) -> dict[str, float]:
    use, memory = ([gpu[key] or 0 for gpu in gpus] for key in ("utilizationGpu", "memoryUsed"))
    return {"GPU": sum(use) / len(gpus), "GPU memory": sum(memory) * 2**20} if gpus else {}
