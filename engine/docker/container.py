"""Containers of a Docker Engine."""

import io
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from docker.errors import DockerException

from engine.docker.connection import Resources, explained, fetch_image, look, to_labels
from engine.docker.schema import CONTAINER, differing, without_notes
from engine.durations import format_duration, parse_duration
from engine.providers import Live
from engine.values import Properties

MIB = 1024 * 1024

# Where Docker keeps a property, in requests and in answers about a container. The program
# gives some of them only; the plugin records all.
PLACES = {
    "hostname": "Config.Hostname",
    "command": "Config.Cmd",
    "entrypoints": "Config.Entrypoint",
    "user": "Config.User",
    "workingDir": "Config.WorkingDir",
    "stopSignal": "Config.StopSignal",
    "stopTimeout": "Config.StopTimeout",
    "healthcheck": "Config.Healthcheck",
    "init": "HostConfig.Init",
    "readOnly": "HostConfig.ReadonlyRootfs",
    "tmpfs": "HostConfig.Tmpfs",
    "networkMode": "HostConfig.NetworkMode",
    "dns": "HostConfig.Dns",
    "devices": "HostConfig.Devices",
    "gpus": "HostConfig.DeviceRequests",
    "groupAdds": "HostConfig.GroupAdd",
    "securityOpts": "HostConfig.SecurityOpt",
    "shmSize": "HostConfig.ShmSize",
    "memory": "HostConfig.Memory",
    "memoryReservation": "HostConfig.MemoryReservation",
    "memorySwap": "HostConfig.MemorySwap",
    "cpuShares": "HostConfig.CpuShares",
    "cpuSet": "HostConfig.CpusetCpus",
    "logDriver": "HostConfig.LogConfig.Type",
    "logOpts": "HostConfig.LogConfig.Config",
    "restart": "HostConfig.RestartPolicy.Name",
    "maxRetryCount": "HostConfig.RestartPolicy.MaximumRetryCount",
}
# The plugin reads these back only where the program gives them.
READ_WHERE_GIVEN = {"devices", "gpus", "logOpts"}
# Taken over from the program: an image adds to the first two, Docker does not report the others.
NOT_READ = (
    "envs", "labels", "volumes", "uploads", "networksAdvanced", "mustRun", "start", "waitTimeout",
    "destroyGraceSeconds", "removeVolumes", "containerReadRefreshTimeoutMilliseconds",
    "capabilities", "exitCode",
)  # fmt: skip
# If one of these were missing, the plugin would see a change.
FIXED: Properties = {
    "attach": False, "command": [], "entrypoints": [], "envs": [], "labels": [], "logs": False,
    "rm": False, "securityOpts": [], "stdinOpen": False, "tty": False, "wait": False,
}  # fmt: skip
LIMITS = {"restart", "memory", "memorySwap"}  # changeable in a running container
TIMES = ("interval", "timeout", "startPeriod", "startInterval")


def _to_mib(number: int) -> int:
    return number * MIB if number > 0 else number


def _from_mib(number: int) -> int:
    return number // MIB if number > 0 else number


def _to_healthcheck(check: Properties) -> dict[str, Any]:
    durations = {time[0].upper() + time[1:]: parse_duration(check[time]) for time in TIMES}
    return durations | {"Test": check["tests"], "Retries": check["retries"]}


def _from_healthcheck(found: dict[str, Any]) -> Properties:
    durations = {time: format_duration(found.get(time[0].upper() + time[1:], 0)) for time in TIMES}
    return durations | {"tests": found.get("Test") or [], "retries": found.get("Retries", 0)}


def _to_gpus(gpus: str) -> list[dict[str, Any]]:
    return [{"DeviceIDs": [gpus.removeprefix("device=")], "Capabilities": [["gpu"]]}]


def _from_gpus(requests: list[dict[str, Any]]) -> str:
    ids = (requests or [{}])[0].get("DeviceIDs")
    return f"device={','.join(ids)}" if ids else ""


def _to_devices(devices: list[Properties]) -> list[dict[str, str]]:
    return [
        {
            "PathOnHost": device["hostPath"],
            "PathInContainer": device["hostPath"],
            "CgroupPermissions": device["permissions"],
        }
        for device in devices
    ]


def _from_devices(found: list[dict[str, str]]) -> list[Properties]:
    return [{"hostPath": d["PathOnHost"], "permissions": d["CgroupPermissions"]} for d in found]


# To and from Docker's form, where it differs.
FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "healthcheck": (_to_healthcheck, _from_healthcheck),
    "devices": (_to_devices, _from_devices),
    "gpus": (_to_gpus, _from_gpus),
    "shmSize": (_to_mib, _from_mib),
    "memory": (_to_mib, _from_mib),
    "memorySwap": (_to_mib, _from_mib),
}


def request_of(news: Properties) -> dict[str, Any]:
    """The body of POST /containers/create."""
    # Like the plugin, set Init when the program does not: the daemon may have another default.
    host: dict[str, Any] = {
        "CapDrop": news.get("capabilities", {}).get("drops", []),
        "Binds": [],
        "PortBindings": {},
        "Init": False,
    }
    request: dict[str, Any] = {
        "Image": news["image"],
        "Env": news.get("envs", []),
        "Labels": to_labels(news.get("labels", [])),
        "Volumes": {},
        "HostConfig": host,
    }
    for key in PLACES.keys() & news.keys():
        *path, last = PLACES[key].removeprefix("Config.").split(".")
        section = request
        for part in path:
            section = section.setdefault(part, {})
        section[last] = FORMS[key][0](news[key]) if key in FORMS else news[key]
    for port in news.get("ports", []):
        inside = f"{port['internal']}/{port['protocol']}"
        binding = {"HostIp": port["ip"], "HostPort": str(port["external"])}
        host["PortBindings"].setdefault(inside, []).append(binding)
    request["ExposedPorts"] = {port: {} for port in host["PortBindings"]}
    for volume in news.get("volumes", []):
        source = volume.get("hostPath") or volume.get("volumeName")
        mode = "ro" if volume.get("readOnly") else "rw"
        if source:
            host["Binds"].append(f"{source}:{volume['containerPath']}:{mode}")
        request["Volumes"][volume["containerPath"]] = {}
    return request


def outputs_of(found: dict[str, Any], declared: Properties) -> Properties:
    """A container that Docker found, as the plugin records it.

    What Docker does not report is taken from `declared`: inputs or former outputs.
    """
    outputs: Properties = FIXED | {key: declared[key] for key in NOT_READ if key in declared}
    for key, place in PLACES.items():
        value: Any = found
        for part in place.split("."):
            value = value.get(part) if value else None
        if value is not None and (key not in READ_WHERE_GIVEN or declared.get(key)):
            outputs[key] = FORMS[key][1](value) if key in FORMS else value
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
        # The plugin records no ports of a stopped container that has to run.
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


class Container(Resources):
    """Containers."""

    def create(self, news: Properties) -> Live:
        name = news["name"]
        with explained(f"container {name}"):
            fetch_image(self._client, news["image"], self._say)
            made = self._client.create_container_from_config(request_of(news), name)["Id"]
            try:
                self._connect(made, news)
                self._upload(made, news)
                self._client.start(made)
            except BaseException:
                with suppress(DockerException):
                    self._client.remove_container(made, v=True, force=True)
                raise
            return self._live(made, news)

    def find(self, news: Properties) -> Live | None:
        return look(f"container {news['name']}", lambda: self._find(news))

    def read(self, id_: str, olds: Properties) -> Live | None:
        return look(f"container {olds['name']}", lambda: self._live(id_, olds))

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        """A stopped container that has to run is started again."""
        with explained(f"container {news['name']}"):
            if LIMITS & set(differing(CONTAINER, olds, news)):
                limits = request_of(news)["HostConfig"]
                self._client.update_container(
                    id_,
                    mem_limit=limits.get("Memory"),
                    memswap_limit=limits.get("MemorySwap"),
                    restart_policy=limits["RestartPolicy"],
                )
            if news["mustRun"] and not olds.get("mustRun"):
                self._client.start(id_)
            return self._live(id_, news).outputs

    def delete(self, id_: str, olds: Properties) -> None:

        def end() -> None:
            self._client.stop(id_, timeout=olds.get("destroyGraceSeconds") or 0)
            self._client.remove_container(id_, v=True, force=True)

        look(f"container {olds['name']}", end)

    def _find(self, news: Properties) -> Live | None:
        found = self._client.inspect_container(news["name"])
        image = self._client.inspect_image(news["image"])["Id"]
        wanted, labels = to_labels(news.get("labels", [])), found["Config"]["Labels"] or {}
        if found["Image"] != image or not wanted.items() <= labels.items():
            return None
        state = found["State"]
        # It is started last, so a container that runs or has ended is complete.
        if state["Running"] or (state["Status"] == "exited" and not news["mustRun"]):
            return self._live(found["Id"], news)
        self._client.remove_container(found["Id"], v=True, force=True)
        return None

    def _live(self, id_: str, declared: Properties) -> Live:
        return Live(id=id_, outputs=outputs_of(self._client.inspect_container(id_), declared))

    def _connect(self, id_: str, news: Properties) -> None:
        networks = news.get("networksAdvanced", [])
        if networks:
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
                content = upload["content"].encode()
                file = tarfile.TarInfo(upload["file"].lstrip("/"))
                file.size, file.mtime = len(content), int(time.time())
                file.mode = int(upload["permissions"], 8)
                tar.addfile(file, io.BytesIO(content))
        self._client.put_archive(id_, "/", archive.getvalue())
