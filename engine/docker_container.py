"""Containers of a Docker Engine."""

from __future__ import annotations

import base64
import io
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from docker.errors import DockerException, NotFound

from engine.docker_engine import explained, fetch_image, to_labels
from engine.docker_schema import CONTAINER, differing, without_notes
from engine.durations import format_duration, parse_duration
from engine.errors import EngineError
from engine.providers import Live, Say
from engine.values import Properties

MIB = 1024 * 1024
POLL = 0.25  # seconds between two looks at a container that is to become healthy
SHOWN_LINES = 20  # of the log of a container that does not


def _same(value: Any) -> Any:
    return value


def _to_mib(number: int) -> int:
    return number * MIB if number > 0 else number


def _from_mib(number: int) -> int:
    return number // MIB if number > 0 else number


def _to_healthcheck(check: Properties) -> dict[str, Any]:
    times = ("interval", "timeout", "startPeriod", "startInterval")
    durations = {time[0].upper() + time[1:]: parse_duration(check[time]) for time in times}
    return durations | {"Test": check.get("tests", []), "Retries": check.get("retries", 0)}


def _from_healthcheck(found: dict[str, Any]) -> Properties:
    times = ("Interval", "Timeout", "StartPeriod", "StartInterval")
    durations = {time[0].lower() + time[1:]: format_duration(found.get(time, 0)) for time in times}
    return durations | {"tests": found.get("Test") or [], "retries": found.get("Retries", 0)}


def _to_gpus(gpus: str) -> list[dict[str, Any]]:
    chosen = {"Count": -1} if gpus == "all" else {"DeviceIDs": [gpus.removeprefix("device=")]}
    return [{**chosen, "Capabilities": [["gpu"]]}]


def _from_gpus(requests: list[dict[str, Any]]) -> str:
    request = requests[0] if requests else {}
    if request.get("DeviceIDs"):
        return f"device={','.join(request['DeviceIDs'])}"
    return "all" if request.get("Count") == -1 else ""


def _objects(names: dict[str, str]) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """To and from Docker for a list of objects whose fields only have other names there."""

    def to_docker(items: list[Properties]) -> list[dict[str, Any]]:
        return [{names[k]: v for k, v in item.items() if k in names} for item in items]

    def from_docker(items: list[dict[str, Any]]) -> list[Properties]:
        return [{k: item.get(name) for k, name in names.items()} for item in items]

    return to_docker, from_docker


@dataclass(frozen=True)
class Field:
    """Where Docker keeps a property, in what it takes and in what it tells of a container."""

    path: str
    to_docker: Callable[[Any], Any] = _same
    from_docker: Callable[[Any], Any] = _same


DEVICE = {
    "hostPath": "PathOnHost",
    "containerPath": "PathInContainer",
    "permissions": "CgroupPermissions",
}
MOUNT = {"type": "Type", "target": "Target", "source": "Source", "readOnly": "ReadOnly"}
ULIMIT = {"name": "Name", "soft": "Soft", "hard": "Hard"}

PLACES = {
    "hostname": Field("Config.Hostname"),
    "command": Field("Config.Cmd"),
    "entrypoints": Field("Config.Entrypoint"),
    "user": Field("Config.User"),
    "workingDir": Field("Config.WorkingDir"),
    "stopSignal": Field("Config.StopSignal"),
    "stopTimeout": Field("Config.StopTimeout"),
    "healthcheck": Field("Config.Healthcheck", _to_healthcheck, _from_healthcheck),
    "init": Field("HostConfig.Init"),
    "readOnly": Field("HostConfig.ReadonlyRootfs"),
    "tmpfs": Field("HostConfig.Tmpfs"),
    "networkMode": Field("HostConfig.NetworkMode"),
    "dns": Field("HostConfig.Dns"),
    "hosts": Field(
        "HostConfig.ExtraHosts",
        lambda hosts: [f"{host['host']}:{host['ip']}" for host in hosts],
        lambda found: [
            dict(zip(("host", "ip"), host.split(":", 1), strict=True)) for host in found
        ],
    ),
    "mounts": Field("HostConfig.Mounts", *_objects(MOUNT)),
    "devices": Field("HostConfig.Devices", *_objects(DEVICE)),
    "ulimits": Field("HostConfig.Ulimits", *_objects(ULIMIT)),
    "gpus": Field("HostConfig.DeviceRequests", _to_gpus, _from_gpus),
    "groupAdds": Field("HostConfig.GroupAdd"),
    "securityOpts": Field("HostConfig.SecurityOpt"),
    "shmSize": Field("HostConfig.ShmSize", _to_mib, _from_mib),
    "memory": Field("HostConfig.Memory", _to_mib, _from_mib),
    "memoryReservation": Field("HostConfig.MemoryReservation", _to_mib, _from_mib),
    "memorySwap": Field("HostConfig.MemorySwap", _to_mib, _from_mib),
    "cpuShares": Field("HostConfig.CpuShares"),
    "cpuSet": Field("HostConfig.CpusetCpus"),
    "logDriver": Field("HostConfig.LogConfig.Type"),
    "logOpts": Field("HostConfig.LogConfig.Config"),
    "restart": Field("HostConfig.RestartPolicy.Name"),
    "maxRetryCount": Field("HostConfig.RestartPolicy.MaximumRetryCount"),
}
# The plugin reads these back only where the program gives them.
READ_WHERE_GIVEN = {"devices", "ulimits", "gpus", "logOpts"}
# Taken over from the program: an image adds to the first two, Docker does not tell the others.
NOT_READ = (
    "envs", "labels", "volumes", "uploads", "networksAdvanced", "mustRun", "start", "wait",
    "waitTimeout", "attach", "logs", "destroyGraceSeconds", "removeVolumes",
    "containerReadRefreshTimeoutMilliseconds", "capabilities", "containerLogs", "exitCode",
)  # fmt: skip
# What the Engine changes of a container that runs.
LIMITS = {
    "restart", "maxRetryCount", "memory", "memoryReservation", "memorySwap", "cpuShares", "cpuSet",
}  # fmt: skip
# What the plugin takes for that too, and then does not change.
NEVER_CHANGED = {"healthcheck", "init", "tmpfs"}
# What the plugin would take for a change, were it missing.
FIXED: Properties = {
    "attach": False, "command": [], "entrypoints": [], "envs": [], "labels": [], "logs": False,
    "rm": False, "securityOpts": [], "stdinOpen": False, "tty": False, "wait": False,
}  # fmt: skip


def request_of(news: Properties) -> dict[str, Any]:
    """What to ask Docker for: the body of POST /containers/create."""
    request: dict[str, Any] = {"Labels": to_labels(news.get("labels", []))}
    host: dict[str, Any] = {"CapAdd": [], "CapDrop": [], "Binds": [], "PortBindings": {}}
    request |= {"Image": news["image"], "Env": news.get("envs", []), "HostConfig": host}
    for key, place in PLACES.items():
        if key in news:
            *path, last = place.path.removeprefix("Config.").split(".")
            section = request
            for part in path:
                section = section.setdefault(part, {})
            section[last] = place.to_docker(news[key])
    # The plugin says so when the program does not: the daemon may have another default.
    host.setdefault("Init", False)
    for device in host.get("Devices", []):
        device.setdefault("PathInContainer", device["PathOnHost"])
    capabilities = news.get("capabilities", {})
    host |= {"CapAdd": capabilities.get("adds", []), "CapDrop": capabilities.get("drops", [])}
    for port in news.get("ports", []):
        binding = {"HostIp": port["ip"], "HostPort": str(port["external"])}
        host["PortBindings"].setdefault(f"{port['internal']}/{port['protocol']}", []).append(
            binding
        )
    request["ExposedPorts"] = {port: {} for port in host["PortBindings"]}
    for volume in news.get("volumes", []):
        source = volume.get("hostPath") or volume.get("volumeName")
        mode = "ro" if volume.get("readOnly") else "rw"
        if source:
            host["Binds"].append(f"{source}:{volume['containerPath']}:{mode}")
        request.setdefault("Volumes", {})[volume["containerPath"]] = {}
    return request


def outputs_of(found: dict[str, Any], declared: Properties) -> Properties:
    """A container as the plugin records it.

    Args:
        found: what Docker tells of it.
        declared: inputs or former outputs, for what Docker does not tell.
    """
    outputs: Properties = FIXED | {key: declared[key] for key in NOT_READ if key in declared}
    for key, place in PLACES.items():
        value: Any = found
        for part in place.path.split("."):
            value = value.get(part) if value else None
        if value is not None and (key not in READ_WHERE_GIVEN or declared.get(key)):
            outputs[key] = place.from_docker(value)
    bare = {d["hostPath"] for d in declared.get("devices") or [] if not d.get("containerPath")}
    for device in outputs.get("devices", []):
        if device["hostPath"] in bare:
            del device["containerPath"]
    host, running = found["HostConfig"], found["State"]["Running"]
    if host["CapAdd"] or host["CapDrop"]:
        outputs["capabilities"] = {"adds": host["CapAdd"] or [], "drops": host["CapDrop"] or []}
    by_id = declared["image"].startswith("sha256:")
    outputs |= {
        "id": found["Id"],
        "name": found["Name"].lstrip("/"),
        "image": found["Image"] if by_id else found["Config"]["Image"],
        "platform": found["Platform"],
        "runtime": host["Runtime"],
        "ipcMode": host["IpcMode"],
        "networkDatas": _networks(found["NetworkSettings"]["Networks"]),
        # Of a stopped one that has to run, the plugin notes no ports.
        "ports": declared.get("ports", []),
    }
    if outputs["ports"] and (running or declared.get("mustRun")):
        outputs["ports"] = _ports(found["NetworkSettings"]["Ports"] or {})
    if not running:
        outputs |= {"exitCode": found["State"]["ExitCode"], "mustRun": False}
    present: Properties = without_notes({k: v for k, v in outputs.items() if v is not None})
    return present


def _ports(found: dict[str, list[dict[str, str]] | None]) -> list[Properties]:
    return [
        {
            "internal": int(internal.partition("/")[0]),
            "external": int(binding["HostPort"]),
            "ip": binding["HostIp"],
            "protocol": internal.partition("/")[2],
        }
        for internal, bindings in sorted(found.items())
        for binding in bindings or []
    ]


def _networks(found: dict[str, dict[str, Any]]) -> list[Properties]:
    return [
        {
            "networkName": name,
            "ipAddress": network["IPAddress"],
            "ipPrefixLength": network["IPPrefixLen"],
            "gateway": network["Gateway"],
            "globalIpv6Address": network["GlobalIPv6Address"],
            "globalIpv6PrefixLength": network["GlobalIPv6PrefixLen"],
            "ipv6Gateway": network["IPv6Gateway"],
            "macAddress": network["MacAddress"],
        }
        for name, network in sorted(found.items())
    ]


def _is_whole(state: dict[str, Any], news: Properties) -> bool:
    """True when a create that was cut off had come to its end."""
    if not state["Running"]:
        return bool(state["Status"] == "exited" and not news["mustRun"])
    healthy = state.get("Health", {}).get("Status") == "healthy"
    return not news.get("attach") and (healthy or not news.get("wait"))


class Container:
    """Containers."""

    def __init__(self, client: Any, say: Say) -> None:
        self._client = client
        self._say = say

    def create(self, news: Properties) -> Live:
        """See Provider."""
        name = news["name"]
        with explained(f"container {name}"):
            fetch_image(self._client, news["image"], self._say)
            made = self._client.create_container_from_config(request_of(news), name)["Id"]
            try:
                self._connect(made, news)
                self._upload(made, news)
                ran = self._start(made, news)
            except BaseException:
                with suppress(DockerException):
                    self._client.remove_container(made, v=True, force=True)
                raise
            return self._live(made, news | ran)

    def find(self, news: Properties) -> Live | None:
        """See Provider."""
        with explained(f"container {news['name']}"):
            try:
                found = self._client.inspect_container(news["name"])
                image = self._client.inspect_image(news["image"])["Id"]
            except NotFound:
                return None
            wanted, labels = to_labels(news.get("labels", [])), found["Config"]["Labels"] or {}
            if found["Image"] != image or not wanted.items() <= labels.items():
                return None
            if _is_whole(found["State"], news):
                return self._live(found["Id"], news)
            self._client.remove_container(found["Id"], v=True, force=True)
            return None

    def read(self, id_: str, olds: Properties) -> Live | None:
        """See Provider."""
        with explained(f"container {olds['name']}"):
            try:
                return self._live(id_, olds)
            except NotFound:
                return None

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        """See Provider: a stopped container that has to run is started again."""
        with explained(f"container {news['name']}"):
            changed = set(differing(CONTAINER, olds, news))
            for key in changed & NEVER_CHANGED:
                self._say(
                    "warning",
                    f"{news['name']}: a change of {key} takes a new container, which "
                    f'replace_on_changes=["{key}"] makes; this one stays as it is',
                )
            if changed & LIMITS:
                limits = request_of(news)["HostConfig"]
                self._client.update_container(
                    id_,
                    cpu_shares=limits.get("CpuShares"),
                    cpuset_cpus=limits.get("CpusetCpus"),
                    mem_limit=limits.get("Memory"),
                    mem_reservation=limits.get("MemoryReservation"),
                    memswap_limit=limits.get("MemorySwap"),
                    restart_policy=limits["RestartPolicy"],
                )
            if news["mustRun"] and not olds.get("mustRun"):
                self._start(id_, news)
            return self._live(id_, news).outputs

    def delete(self, id_: str, olds: Properties) -> None:
        """See Provider."""
        with explained(f"container {olds['name']}"):
            try:
                if not olds.get("attach"):
                    self._client.stop(id_, timeout=olds.get("destroyGraceSeconds") or 0)
                self._client.remove_container(id_, v=olds.get("removeVolumes", True), force=True)
            except NotFound:
                return

    def _live(self, id_: str, declared: Properties) -> Live:
        return Live(id=id_, outputs=outputs_of(self._client.inspect_container(id_), declared))

    def _connect(self, id_: str, news: Properties) -> None:
        networks = news.get("networksAdvanced", [])
        if networks and news["networkMode"] == "bridge":
            self._client.disconnect_container_from_network(id_, "bridge")
        for network in networks:
            self._client.connect_container_to_network(
                id_, network["name"], aliases=network.get("aliases")
            )

    def _upload(self, id_: str, news: Properties) -> None:
        if not news.get("uploads"):
            return
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for upload in news["uploads"]:
                coded = upload.get("contentBase64")
                content = base64.b64decode(coded) if coded else upload["content"].encode()
                file = tarfile.TarInfo(upload["file"].lstrip("/"))
                file.size, file.mtime = len(content), int(time.time())
                usual = 0o744 if upload.get("executable") else 0o644
                file.mode = int(upload.get("permissions") or f"{usual:o}", 8)
                tar.addfile(file, io.BytesIO(content))
        self._client.put_archive(id_, "/", archive.getvalue())

    def _start(self, id_: str, news: Properties) -> Properties:
        if not news["start"]:
            return {}
        self._client.start(id_)
        return self._settle(id_, news)

    def _settle(self, id_: str, news: Properties) -> Properties:
        """Wait as the program says; what the run left to tell."""
        if news.get("wait"):
            self._wait_healthy(id_, news)
        if not news.get("attach"):
            return {}
        self._client.wait(id_)
        if not news.get("logs"):
            return {}
        return {"containerLogs": self._client.logs(id_).decode(errors="replace")}

    def _wait_healthy(self, id_: str, news: Properties) -> None:
        deadline = time.monotonic() + news["waitTimeout"]
        while True:
            state = self._client.inspect_container(id_)["State"]
            if "Health" not in state:
                raise EngineError(f"container {news['name']} cannot be waited for: no healthcheck")
            if state["Health"]["Status"] == "healthy":
                return
            ended = state["Status"] in ("exited", "dead")
            if ended or time.monotonic() > deadline:
                log = self._client.logs(id_, tail=SHOWN_LINES).decode(errors="replace")
                why = (
                    f"ended with exit code {state['ExitCode']}"
                    if ended
                    else f"was not healthy after {news['waitTimeout']} s (waitTimeout)"
                )
                lines = "\n  ".join(log.splitlines()) or "(nothing)"
                raise EngineError(
                    f"container {news['name']} {why}; the last lines of its log:\n  {lines}"
                )
            time.sleep(POLL)
