"""A Docker Engine that is a recording: what is there, and what was asked of it."""

import json
from types import SimpleNamespace
from typing import Any

import requests
from docker.errors import APIError, ImageNotFound, NotFound

NOW = "2026-11-28T12:00:00+00:00"  # by the Engine's clock
RUNNING = {"Status": "running", "Running": True, "Restarting": False, "ExitCode": 0}
RESTARTING = {"Status": "restarting", "Running": True, "Restarting": True, "ExitCode": 3}
ENDED = {"Status": "exited", "Running": False, "Restarting": False, "ExitCode": 0}
FAILED = {**ENDED, "ExitCode": 1}


def api_error(text: str) -> APIError:
    return APIError("500", explanation=text)


class FakeContainer:
    """A container that is in one state after the other; it stays in the last one."""

    def __init__(self, *states: dict[str, Any], networks: tuple[str, ...] = ("net",)) -> None:
        self.name = "lab-web"
        self._states = list(states)
        self.networks: dict[str, Any] = {name: {} for name in networks}
        self.attrs: dict[str, Any] = {}
        self.complaints: list[str] = []
        self.log = b"line 1\nline 2\n"
        self.started = 0
        self.id = "id"
        self.processes: int | None = None

    def step(self) -> None:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        started = "2026-11-20T22:30:00.123456789Z"
        self.attrs = {
            "State": {"StartedAt": started, **state},
            "RestartCount": state.get("RestartCount", 0),
            "NetworkSettings": {"Networks": self.networks},
            "Mounts": [{"Type": "volume", "Name": "food11", "Destination": "/mnt"}],
            "HostConfig": {"PidsLimit": self.processes},
        }

    def exec_run(self, _check: list[str]) -> tuple[int, bytes]:
        return (7, self.complaints.pop(0).encode()) if self.complaints else (0, b"")

    def start(self) -> None:
        self.started += 1

    def logs(self, **options: Any) -> Any:
        return iter(self.log.splitlines(keepends=True)) if options.get("stream") else self.log

    def wait(self, timeout: float) -> dict[str, int]:
        return {"StatusCode": self.attrs["State"]["ExitCode"]}


class FakeEngine:
    """A Docker Engine: what is there, and what was asked of it."""

    def __init__(self) -> None:
        self.container: FakeContainer | Exception = NotFound("none")
        self.listed: list[dict[str, Any]] = []
        self.nets: list[dict[str, Any]] = []
        self.images_here: set[str] = set()
        self.pulled: list[str] = []
        self.pull_error: str | Exception = ""
        self.connected: list[tuple[str, list[str]]] = []
        self.kept_volumes: dict[str, dict[str, str] | None] = {}
        self.refuses = 0  # updates of a container
        self.api = SimpleNamespace(
            containers=lambda **options: [
                each for each in self.listed if options or each["State"] == "running"
            ],
            networks=lambda names: self.nets,
            inspect_image=self._inspect_image,
            pull=self._pull,
            base_url="http+docker://localhost",
            api_version="1.41",
            timeout=60,
            post=self._post,
            get=self._ends,
        )
        self.info = lambda: {"SystemTime": NOW}
        self.containers = SimpleNamespace(get=self._get)
        self.networks = SimpleNamespace(get=self._network)
        self.volumes = SimpleNamespace(
            list=lambda: [
                SimpleNamespace(name=name, attrs={"Labels": labels})
                for name, labels in self.kept_volumes.items()
            ]
        )

    def _get(self, _id: str) -> FakeContainer:
        if isinstance(self.container, Exception):
            raise self.container
        self.container.step()
        return self.container

    def _post(self, url: str, *, json: dict[str, Any], timeout: float) -> requests.Response:
        assert url == "http+docker://localhost/v1.41/containers/id/update"
        assert timeout == 60
        reply = requests.Response()
        reply.status_code = 500 if self.refuses else 200
        reply._content = b'{"message": "no cgroup"}'
        if self.refuses:
            self.refuses -= 1
            return reply
        found = self.container
        assert isinstance(found, FakeContainer)
        found.processes = found.attrs["HostConfig"]["PidsLimit"] = json["PidsLimit"]
        return reply

    def _ends(self, url: str, *, params: dict[str, Any], timeout: float) -> Any:
        """Answer which of the last minutes' events were ends of the container."""
        assert url == "http+docker://localhost/v1.41/events"
        assert timeout == 60
        assert params["until"] - params["since"] == 600
        assert json.loads(params["filters"]) == {"container": ["id"], "event": ["die"]}
        assert isinstance(self.container, FakeContainer)
        return SimpleNamespace(text="{}\n" * self.container.attrs["State"].get("Ends", 0))

    def _network(self, name: str) -> Any:
        def connect(found: FakeContainer, aliases: list[str]) -> None:
            found.networks[name] = {}
            self.connected.append((name, aliases))

        return SimpleNamespace(connect=connect)

    def _inspect_image(self, reference: str) -> None:
        if reference not in self.images_here:
            raise ImageNotFound("none")

    def _pull(self, repository: str, tag: str, **_: Any) -> Any:
        self.pulled.append(f"{repository}:{tag}")
        if isinstance(self.pull_error, Exception):
            raise self.pull_error
        lines = [{"status": "Pulling"}]
        return iter([*lines, {"error": self.pull_error}] if self.pull_error else lines)
