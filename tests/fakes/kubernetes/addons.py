"""Additions that every cluster has to Kubernetes: names of services, and volumes for claims.

Stands in for CoreDNS (dnsmasq answers, with the names that this writes) and for a CSI driver (a
claim of the class `local` gets a folder of the node). Runs in the node: addons.py FOLDER NODE
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import lightkube
from lightkube.core.exceptions import ApiError
from lightkube.resources.core_v1 import PersistentVolume, PersistentVolumeClaim, Service
from lightkube.resources.discovery_v1 import EndpointSlice

CLASS = "local"
DOMAIN = "svc.cluster.local"
OWNER = "kubernetes.io/service-name"
MADE_BY = {"pv.kubernetes.io/provisioned-by": "trainyard.test/local"}
POLL_SECONDS = 0.5
TIMEOUT_SECONDS = 60.0


def main(folder: Path, node: str) -> None:
    """Maintain names and volumes until the node ends."""
    config = lightkube.KubeConfig.from_file(folder / "kubeconfig").get()
    timeout = httpx2.Timeout(TIMEOUT_SECONDS)
    client = lightkube.Client(config=config, field_manager="addons", timeout=timeout)
    while True:
        with contextlib.suppress(ApiError, httpx2.HTTPError):  # next time, then
            _write_names(folder, sorted(_names(client)))
            _make_volumes(client, folder / "volumes", node)
            _remove_volumes(client)
        time.sleep(POLL_SECONDS)


def _names(client: lightkube.Client) -> Iterator[str]:
    """Lines of a hosts file: of services with an address, and of the pods behind those without."""
    headless = set()
    for service in client.list(Service, namespace="*"):
        name = f"{service.metadata.name}.{service.metadata.namespace}.{DOMAIN}"
        if service.spec.clusterIP == "None":
            headless.add(name)
        elif service.spec.clusterIP:
            yield f"{service.spec.clusterIP} {name}"
    for part in client.list(EndpointSlice, namespace="*"):
        name = f"{(part.metadata.labels or {}).get(OWNER)}.{part.metadata.namespace}.{DOMAIN}"
        if name not in headless:
            continue
        for endpoint in part.endpoints or []:
            if endpoint.conditions and endpoint.conditions.ready is False:
                continue
            own = [f"{endpoint.hostname}.{name}"] if endpoint.hostname else []
            for address in endpoint.addresses:
                yield " ".join([address, name, *own])


def _write_names(folder: Path, lines: list[str]) -> None:
    hosts = folder / "hosts"
    text = "".join(f"{line}\n" for line in lines)
    if hosts.read_text() == text:
        return
    draft = folder / "hosts.new"
    draft.write_text(text)
    draft.replace(hosts)
    os.kill(int((folder / "dnsmasq.pid").read_text()), signal.SIGHUP)  # it reads them again


def _make_volumes(client: lightkube.Client, folder: Path, node: str) -> None:
    for claim in client.list(PersistentVolumeClaim, namespace="*"):
        if (
            claim.spec.storageClassName != CLASS
            or claim.spec.volumeName
            or claim.metadata.deletionTimestamp
        ):
            continue
        name = f"pvc-{claim.metadata.uid}"
        path = folder / name
        path.mkdir(parents=True, exist_ok=True)
        with _unless_there():
            client.create(PersistentVolume.from_dict(_volume(name, claim, path, node)))


def _volume(name: str, claim: Any, path: Path, node: str) -> dict[str, Any]:
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": name, "annotations": MADE_BY},
        "spec": {
            "accessModes": claim.spec.accessModes,
            "capacity": {"storage": claim.spec.resources.requests["storage"]},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": claim.metadata.name,
                "namespace": claim.metadata.namespace,
                "uid": claim.metadata.uid,
            },
            "local": {"path": str(path)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": CLASS,
        },
    }


def _remove_volumes(client: lightkube.Client) -> None:
    for volume in client.list(PersistentVolume):
        ours = (volume.metadata.annotations or {}).items() >= MADE_BY.items()
        deleted = volume.spec.persistentVolumeReclaimPolicy == "Delete"
        if ours and deleted and volume.status.phase == "Released":
            shutil.rmtree(volume.spec.local.path, ignore_errors=True)
            client.delete(PersistentVolume, volume.metadata.name)


@contextlib.contextmanager
def _unless_there() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.status.code != 409:
            raise


main(Path(sys.argv[1]), sys.argv[2])
