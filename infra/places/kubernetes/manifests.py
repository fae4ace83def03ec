"""Manifests of a service, by pure functions.

A service with results is a StatefulSet, of which a cluster never runs two pods at a time; others
are Deployments, and a program that runs once is a Job. Pods keep Kubernetes' profile "restricted".
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cluster import kuberay_pods
from cluster.kuberay_spec import USER, Mount, memory, source_of
from cluster.service import HealthCheck, Service, Volume
from infra.service import images
from node import ending

if TYPE_CHECKING:
    from infra.settings.config import Settings
    from infra.settings.kubernetes import Kubernetes

Manifest = dict[str, Any]

FILES = images.FILES
SHARED = "/var/lib/trainyard/shared"  # the volume that pods share, in all of them
PROJECT_LABEL, SERVICE_LABEL = "trainyard/project", "trainyard/service"
STACK_LABEL = "trainyard/stack"
USER_LABEL = "trainyard/user"  # the annotation trainyard/owner is the stack's id
MANAGED_BY = "app.kubernetes.io/managed-by"
FILES_ANNOTATION = "trainyard/files"  # digest of a pod's files: a change recreates it
FILES_VOLUME, SHARED_VOLUME, MEMORY_VOLUME = "files", "shared", "shared-memory"
FILE_MODE = 0o440  # their group is the pod's
# Users of others' images that do not give it as a number, which `runAsNonRoot` needs.
USERS = {"prometheus": 65534, "alertmanager": 65534, "grafana": 472}
# Their images have files in a volume's folder, which a fresh volume should have too.
SEEDED = frozenset({"jupyter"})
CPU_REQUEST = "100m"  # of a service: what it needs while nobody uses it
MEMORY_REQUEST_SHARE = 8  # its bound divided by this is kept for it
PROBE_SECONDS = 2
# One that hangs for three minutes is ended; a store under load may answer late.
LIVE_SECONDS, LIVE_FAILURES, LIVE_TIMEOUT_SECONDS = 30, 6, 10
JOB_TRIES = 0  # what runs once fails at once, and says why


@dataclass(frozen=True, kw_only=True)
class ObjectDefaults:
    """Values that all objects of a stack share.

    Attributes:
        where: those of them that name the cluster.
        labels: of all objects and pods.
    """

    settings: "Settings"
    where: "Kubernetes"
    labels: Mapping[str, str]

    @property
    def prefix(self) -> str:
        return self.settings.names_of_objects

    @property
    def shared(self) -> Mapping[str, Any]:
        """Source of the volume that pods share, as Kubernetes says it; {} for none."""
        return self.where.shared.source if self.where.shared else {}

    def name(self, service: str) -> str:
        return f"{self.prefix}-{service}"

    def pods(self, service: str) -> dict[str, str]:
        """Return the labels that a service's pods have, and no others."""
        return {**self.labels, SERVICE_LABEL: service}

    def manifest(
        self, kind: str, service: str, *, name: str = "", version: str = "v1", **fields: Any
    ) -> Manifest:
        """Return an object of a service, by default with the service's name."""
        metadata: Manifest = {"name": name or self.name(service), "labels": self.pods(service)}
        metadata["namespace"] = self.where.namespace
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def labels(project: str, stack: str) -> dict[str, str]:
    """Return the labels that all objects of a stack have."""
    return {MANAGED_BY: "trainyard", PROJECT_LABEL: project, STACK_LABEL: stack}


def label_value(text: str) -> str:
    """Return a text as a label may have it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:63].strip("._-")


def is_claimed(volume: Volume) -> bool:
    """Return whether a volume has a claim of its own."""
    return volume.keep and not volume.shared


def claim(defaults: ObjectDefaults, service: str, volume: Volume) -> Manifest:
    """Return the claim of a volume with results."""
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": f"{defaults.where.storage_gib}Gi"}},
    }
    if defaults.where.storage_class:
        spec["storageClassName"] = defaults.where.storage_class
    name = claim_name(defaults, service, volume)
    return defaults.manifest("PersistentVolumeClaim", service, name=name, spec=spec)


def claim_name(defaults: ObjectDefaults, service: str, volume: Volume) -> str:
    """Return the name of a volume's claim."""
    return f"{defaults.name(service)}-{volume.name}"


def config_map(defaults: ObjectDefaults, service: str, files: Mapping[str, Any]) -> Manifest:
    """Return the files of a service; keys may hold no slash, so mounts name paths."""
    data = {key(name): content for name, content in files.items()}
    return defaults.manifest("ConfigMap", service, data=data)


def secret(defaults: ObjectDefaults, service: str, name: str = "") -> Manifest:
    """Return the Secret of a service, without its content."""
    return defaults.manifest("Secret", service, name=name, type="Opaque")


def key(name: str) -> str:
    """Return the key of a file in a ConfigMap or Secret."""
    return name.replace("/", "..")


def digest(contents: Mapping[str, str]) -> str:
    """Return a text that changes with the content of files."""
    whole = hashlib.sha256()
    for name, content in sorted(contents.items()):
        whole.update(f"{name}\0{content}\0".encode())
    return whole.hexdigest()[:16]


def network_service(defaults: ObjectDefaults, service: Service) -> Manifest:
    """Return the name and ports by which other services reach a service."""
    ports = [
        {"name": f"p{port.number}", "port": port.number, "targetPort": port.number}
        for port in service.ports
    ]
    spec = {"selector": defaults.pods(service.name), "ports": ports}
    return defaults.manifest("Service", service.name, spec=spec)


def files_source(
    defaults: ObjectDefaults, service: str, files: Sequence[str], secrets: Sequence[str]
) -> Manifest:
    """Return the source of a volume with the files and secret files of a service."""
    sources = []
    for kind, names in (("configMap", files), ("secret", secrets)):
        if names:
            items = [{"key": key(name), "path": name} for name in sorted(names)]
            sources.append({kind: {"name": defaults.name(service), "items": items}})
    return {"projected": {"defaultMode": FILE_MODE, "sources": sources}}


def path(defaults: ObjectDefaults, volume: Volume) -> str:
    """Return the path at which a service finds one of its volumes.

    Shared ones are the stack's own folders in the one volume that pods share: the kubelet would
    make a missing `subPath` as root, and no other user could write there.
    """
    if volume.shared and defaults.shared:
        return f"{SHARED}/{defaults.prefix}/{volume.name}"
    return images.path(volume)


def mounted(defaults: ObjectDefaults, service: str, volume: Volume) -> Mount:
    """Return a volume of a service's pod; a shared one without a place is the pod's own."""
    if volume.source:
        [(kind, where)] = volume.source.items()
        return Mount(
            name=f"outside-{volume.name}",
            path=volume.mount,
            source=source_of(kind, where),
            read_only=volume.read_only,
        )
    if volume.shared and defaults.shared:
        return Mount(
            name=SHARED_VOLUME, path=SHARED, source=defaults.shared, read_only=volume.read_only
        )
    source: Mapping[str, Any] = {"emptyDir": {}}
    if is_claimed(volume):
        source = {"persistentVolumeClaim": {"claimName": claim_name(defaults, service, volume)}}
    name = f"volume-{volume.name}"
    return Mount(name=name, path=path(defaults, volume), source=source, read_only=False)


def mounts(defaults: ObjectDefaults, service: Service) -> list[Mount]:
    """Return all volumes of a service's pod."""
    found = [mounted(defaults, service.name, volume) for volume in service.volumes]
    if service.files or service.secrets:
        source = files_source(defaults, service.name, [*service.files], [*service.secrets])
        found.append(Mount(name=FILES_VOLUME, path=FILES, source=source))
    if service.shared_memory_mib:
        found.append(memory(MEMORY_VOLUME, kuberay_pods.SHARED_MEMORY, service.shared_memory_mib))
    return found


def workload(
    defaults: ObjectDefaults, service: Service, *, image: str, memory_mib: int, files: Any
) -> Manifest:
    """Return the Job, StatefulSet or Deployment that runs a service; see one_pod."""
    spec = pod(defaults, service, image=image, memory_mib=memory_mib)
    if service.once:
        template = _template(defaults, service.name, spec, files)
        job = {"backoffLimit": JOB_TRIES, "template": template}
        return defaults.manifest("Job", service.name, version="batch/v1", spec=job)
    claims = any(is_claimed(volume) for volume in service.volumes)
    return one_pod(defaults, service.name, spec, files, claims=claims)


def one_pod(
    defaults: ObjectDefaults, service: str, spec: Manifest, files: Any, *, claims: bool
) -> Manifest:
    """Return the StatefulSet, if a volume has a claim, or Deployment that keeps one pod running.

    The digest of its files may be known later.
    """
    found: Manifest = {
        "replicas": 1,
        "selector": {"matchLabels": defaults.pods(service)},
        "template": _template(defaults, service, spec, files),
    }
    if claims:
        # Parallel: otherwise a fixed pod would not replace one that never gets ready.
        found |= {"serviceName": defaults.name(service), "podManagementPolicy": "Parallel"}
    else:
        found["strategy"] = {"type": "Recreate"}
    kind = "StatefulSet" if claims else "Deployment"
    return defaults.manifest(kind, service, version="apps/v1", spec=found)


def _template(defaults: ObjectDefaults, service: str, spec: Manifest, files: Any) -> Manifest:
    metadata = {"labels": defaults.pods(service), "annotations": {FILES_ANNOTATION: files}}
    return {"metadata": metadata, "spec": spec}


def pod(defaults: ObjectDefaults, service: Service, *, image: str, memory_mib: int) -> Manifest:
    """Return the pod of a service."""
    found = mounts(defaults, service)
    user = USERS.get(service.program, USER)
    container: Manifest = {
        "name": service.program,
        "image": image,
        "imagePullPolicy": kuberay_pods.PULL_POLICY,
        "args": list(service.arguments),
        "env": [{"name": name, "value": value} for name, value in service.environment.items()],
        "ports": [{"containerPort": port.number} for port in service.ports],
        "resources": resources(memory_mib),
        "securityContext": dict(kuberay_pods.CONTAINER_SECURITY),
        "volumeMounts": [each.mount for each in found],
        **probes(service.health, defaults.settings.start_timeout_seconds),
    }
    if service.script:
        container["command"] = ["python3", f"{FILES}/{service.script}"]
    volumes = list({each.name: each.volume for each in found}.values())
    spec = pod_of(defaults, user, container, volumes, stop_seconds=service.stop_seconds)
    if service.once:
        spec["restartPolicy"] = "Never"
    if service.program in SEEDED:
        kept = [mounted(defaults, service.name, each) for each in service.volumes if each.keep]
        if kept:
            reservation = defaults.settings.reservation
            end = reservation.end if reservation else None
            spec["initContainers"] = [seeding(each, image, end) for each in kept]
    return spec


def pod_of(
    defaults: ObjectDefaults,
    user: int,
    container: Manifest,
    volumes: Sequence[Manifest],
    *,
    stop_seconds: int,
) -> Manifest:
    """Return a pod with one container, by the rules that all pods of a stack's services keep."""
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,  # variables such as MINIO_PORT, which programs read
        "terminationGracePeriodSeconds": max(1, stop_seconds),
        "securityContext": kuberay_pods.pod_security(user, defaults.where.group),
        "containers": [container],
        "volumes": [*volumes],
    }
    if defaults.where.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in defaults.where.pull_secrets]
    return spec


def seeding(volume: Mount, image: str, end: datetime | None) -> Manifest:
    """Return the container that fills a fresh volume from the image; users' changes stay.

    A file there says when the reservation ends. It never fails: a user may have replaced a folder
    by a link, or filled the volume, and fixes that in the pod that waits for this.
    """
    fresh = "/volume"
    seeded = f"{fresh}/.seeded"
    copy = f"[ -e {seeded} ] || cp -Rn {volume.path}/. {fresh}/ && touch {seeded}"
    if end:
        copy = f"({copy}); {ending.notice(fresh, end)}"
    return {
        "name": f"seed-{volume.name}",
        "image": image,
        "imagePullPolicy": kuberay_pods.PULL_POLICY,
        "command": ["/bin/sh", "-c", f"{copy} || true"],
        "resources": resources(256),
        "securityContext": dict(kuberay_pods.CONTAINER_SECURITY),
        "volumeMounts": [{"name": volume.name, "mountPath": fresh}],
    }


def resources(memory_mib: int) -> Manifest:
    """Return the requests and limits of a container."""
    least = max(64, memory_mib // MEMORY_REQUEST_SHARE)
    return {
        "requests": {"cpu": CPU_REQUEST, "memory": f"{least}Mi"},
        "limits": {"memory": f"{memory_mib}Mi"},
    }


def probes(health: Sequence[HealthCheck], start_seconds: int) -> Manifest:
    """Return the probes of a service; its first check stands for all."""
    if not health:
        return {}
    check = health[0]
    get = {
        "httpGet": {
            "path": check.path,
            "port": check.port,
            # As users name it: some programs refuse other names.
            "httpHeaders": [{"name": "Host", "value": f"127.0.0.1:{check.port}"}],
        }
    }
    return {
        "startupProbe": {
            **get,
            "periodSeconds": 1,
            "timeoutSeconds": LIVE_TIMEOUT_SECONDS,
            "failureThreshold": start_seconds,
        },
        "readinessProbe": {**get, "periodSeconds": PROBE_SECONDS, "timeoutSeconds": 5},
        "livenessProbe": {
            **get,
            "periodSeconds": LIVE_SECONDS,
            "timeoutSeconds": LIVE_TIMEOUT_SECONDS,
            "failureThreshold": LIVE_FAILURES,
        },
    }
