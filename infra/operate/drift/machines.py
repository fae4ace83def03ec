"""Whether machines of a stack have room: a full disk stops everything at once."""

import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from infra.machines import probe
from infra.operate.drift.findings import HOSTS, Finding
from infra.operate.drift.look import ResourceLook
from trainyard.access.ssh import Connection, SshError

MIB = 2**20
FOLDERS = ("process:Data", "process:Supervisor")  # resources that are a folder
HERE = "this machine"


def full(seen: Iterable[ResourceLook]) -> list[Finding]:
    """Return machines without room; unreachable machines are reported elsewhere."""
    folders = [each.props for each in seen if each.type in FOLDERS and each.error is None]
    here = {props["folder"] for props in folders if "host" not in props}
    hosts = {
        (props["host"]["host"], props["host"]["port"]): props["host"]
        for props in folders
        if "host" in props
    }
    found = [text for folder in sorted(here) for text in _of_folder(Path(folder))]
    with ThreadPoolExecutor() as pool:
        for texts in pool.map(_of_host, hosts.values()):
            found += texts
    return [
        Finding(
            layer=HOSTS,
            name=f"{name}:{place}",
            expected=f"at least {probe.LEAST_MIB} MiB free",
            found=f"{free} MiB free",
            action="make room there",
        )
        for name, place, free in found
        if free < probe.LEAST_MIB
    ]


def _of_folder(folder: Path) -> list[tuple[str, str, int]]:
    # A missing folder is reported with its resource.
    return [(HERE, str(folder), shutil.disk_usage(folder).free // MIB)] if folder.exists() else []


def _of_host(host: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    connection = Connection.of(host)
    try:
        facts = probe.probe(connection)
    except SshError:
        return []
    name = connection.name
    return [(name, facts.home, facts.free_mib), (name, "/var/tmp", facts.free_tmp_mib)]  # noqa: S108
