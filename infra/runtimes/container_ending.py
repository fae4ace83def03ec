"""A stack's containers at the end of its reservation; used by the timer (`ending.py`).

The timer is a program of this machine: no container gets the Engine's socket. What it stops stays
stopped, also when Docker or the machine restarts, until `up` extends the reservation. Containers of
another machine have a timer there (`container_deadline.py`), and only run again by this module.
"""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from http import HTTPStatus
from typing import Any

from docker.errors import APIError, NotFound

from infra.hosts import docker_engine
from infra.runtimes import notice

PYTHON = "python3"  # of the head's image
HEALTHY_SECONDS = 120.0
POLL_SECONDS = 0.5
STAYS = "no"  # restart policy of what runs once

Props = dict[str, Any]


class Containers:
    """The containers of a network.

    Args:
        settings: `network`, `end` (ISO 8601), `leave` (container, script and arguments) and
            `notebook` (container, folder), None without one; `host`, see `docker_engine.of`.
    """

    def __init__(self, settings: Props) -> None:
        self._settings = settings
        self._told = settings["notebook"] is None

    def look(self) -> None:
        """Say in the notebook's folder when the services end, once the notebook runs."""
        if self._told:
            return
        where, end = self._settings["notebook"], datetime.fromisoformat(self._settings["end"])
        words = ["sh", "-c", notice.command(where["folder"], end)]
        for each in self._all():
            if each.name == where["container"] and each.status == "running":
                with _unless_removed():
                    self._told = each.exec_run(words)[0] == 0

    def drain(self, seconds: float) -> None:
        """Have the runs store a checkpoint and leave."""
        leave = self._settings["leave"]
        words = [PYTHON, leave["script"], *leave["arguments"], "drain", f"{seconds:g}"]
        head: Any = docker_engine.client(int(seconds) + 180).containers.get(leave["container"])
        code, said = head.exec_run(words)
        if code:
            raise OSError(said.decode(errors="replace").strip()[-200:])

    def end(self) -> None:
        """Stop all, each within its own time."""
        running = [each for each in self._all() if each.status != "exited"]
        with ThreadPoolExecutor() as pool:
            list(pool.map(_stop, running))

    def resume(self) -> None:
        """Start those that have ended, and wait until they are healthy.

        The same `up` may replace some of them meanwhile: it starts the new ones itself.

        Raises:
            OSError: one is not in time.
        """
        stopped = [each for each in self._all() if each.status == "exited" and not _is_once(each)]
        for each in stopped:
            with _unless_removed():
                each.start()
        deadline = time.monotonic() + HEALTHY_SECONDS
        for each in stopped:
            with _unless_removed():
                while not _is_healthy(each):
                    if time.monotonic() > deadline:
                        raise OSError(f"{each.name} is not healthy: see docker logs {each.name}")
                    time.sleep(POLL_SECONDS)
                    each.reload()

    def _all(self) -> list[Any]:
        client = docker_engine.of(self._settings)
        found: list[Any] = client.containers.list(
            all=True, ignore_removed=True, filters={"network": self._settings["network"]}
        )
        return found


def _stop(container: Any) -> None:
    with _unless_removed():
        container.stop()


@contextlib.contextmanager
def _unless_removed() -> Iterator[None]:
    """Do nothing more with a container that is gone or being removed, or that has just ended."""
    try:
        yield
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != HTTPStatus.CONFLICT:
            raise


def _is_once(container: Any) -> bool:
    return bool(container.attrs["HostConfig"]["RestartPolicy"]["Name"] == STAYS)


def _is_healthy(container: Any) -> bool:
    return bool(container.attrs["State"].get("Health", {}).get("Status", "healthy") == "healthy")
