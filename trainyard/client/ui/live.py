"""What the nodes of a cluster do now, and its alerts."""

from typing import Any

import urllib3

from trainyard.client import disks, fields
from trainyard.client.dashboard import DashboardError, JsonServer
from trainyard.client.errors import ClientError
from trainyard.client.info import MONITORING
from trainyard.client.outputs import StackOutputs
from trainyard.json_values import number

TIMEOUT_S = 5
MIB = 2**20


def nodes(outputs: StackOutputs) -> list[dict[str, Any]]:
    """Return the machines of nodes that are alive, the head's first, as of some seconds ago.

    Returns:
        `node` (or several with commas), `cpu` (% of all), `memory` and `disk` ([used, size] in
        bytes), `gpus` (`name`, `used` in %, `memory` as [used, size]). What is not known is None.

    Raises:
        DashboardError: it cannot be asked.
    """
    rows = disks.summary(outputs, _node, _unreadable)
    return sorted(rows, key=lambda row: (row["node"][:4] != "head", row["node"]))


def alerts(outputs: StackOutputs) -> list[dict[str, str]] | None:
    """Return the alerts that Prometheus raises now; None without Prometheus.

    Returns:
        `alert`, `state` (pending or firing), `since`, `about`, `summary`.

    Raises:
        ClientError: Prometheus does not answer.
    """
    service = next((each for each in outputs.services if each.title == MONITORING), None)
    if service is None or not service.url:
        return None
    headers = urllib3.make_headers(
        basic_auth=f"{service.user}:{service.password}" if service.password else None
    )
    try:
        found = JsonServer(service.url, headers).get("/api/v1/alerts", TIMEOUT_S)
        return fields.decoded(found["data"]["alerts"], _alert, _odd_alert)
    except (DashboardError, *fields.FAULTS) as error:
        why = error if isinstance(error, DashboardError) else type(error).__name__
        raise ClientError(
            f"Prometheus at {service.url} does not tell its alerts ({why}): is it up? `train info` "
            "has its address"
        ) from None


def _unreadable(_node: Any, _why: str) -> dict[str, Any]:
    unknown = dict.fromkeys(("cpu", "memory", "disk"))
    return {"node": fields.UNREADABLE, "host": "", **unknown, "gpus": []}


def _node(node: Any) -> dict[str, Any]:
    memory = list(node.get("mem") or [])
    disk = disks.of_node(node)
    return {
        "node": str(node["name"]),
        "host": str(node.get("hostname") or ""),
        "cpu": number(node.get("cpu")),
        "memory": [number(memory[3]), number(memory[0])] if len(memory) > 3 else None,
        "disk": [disk.size - disk.free, disk.size] if disk else None,
        "gpus": [_gpu(each) for each in node.get("gpus") or []],
    }


def _gpu(gpu: Any) -> dict[str, Any]:
    used, size = number(gpu.get("memoryUsed")), number(gpu.get("memoryTotal"))
    return {
        "name": str(gpu.get("name") or "GPU"),
        "used": number(gpu.get("utilizationGpu")),
        "memory": None if used is None or size is None else [used * MIB, size * MIB],
    }


def _alert(alert: Any) -> dict[str, str]:
    labels, said = dict(alert["labels"]), dict(alert["annotations"])
    about = ", ".join(
        f"{name} {value}"
        for name, value in labels.items()
        if name not in {"alertname", "severity", "job"}
    )
    return {
        "alert": str(labels.get("alertname", "")),
        "state": str(alert["state"]),
        "since": str(alert.get("activeAt", "")),
        "about": about[:500],
        "summary": str(said.get("summary") or said.get("description") or ""),
    }


def _odd_alert(_: Any, why: str) -> dict[str, str]:
    return {"alert": fields.UNREADABLE, "state": "", "since": "", "about": "", "summary": why}
