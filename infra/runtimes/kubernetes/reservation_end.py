"""The timer that ends a stack's pods with its reservation: one more pod, with the right to do so.

Only the timer's own container has its token: jobs on the cluster cannot use it. The user's own
rights must include those of the Role, as Kubernetes demands of all who make one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster import kuberay, kuberay_pods, ray_leave, ray_node
from infra.runtimes.kubernetes import manifests, pods_end
from infra.runtimes.kubernetes.api import KINDS, OF_TIMER
from infra.runtimes.kubernetes.manifests import Manifest, ObjectDefaults
from infra.runtimes.kubernetes.runtime import KubernetesRuntime

NAME = "reservation-end"
SETTINGS = "settings.json"
MEMORY_MIB = 512  # Ray's client, while workers are drained
TOKEN, TOKEN_PATH = "ray-token", "/etc/ray-token"
RIGHTS = OF_TIMER["Role"][0]
WORKLOADS = ("Deployment", "StatefulSet", "Job")  # what makes the pods of services


@dataclass(frozen=True, kw_only=True)
class End:
    """The end of a stack's pods.

    Attributes:
        at: time, in ISO 8601.
        drain: seconds before it in which runs store a checkpoint and leave.
        services: names of all services but Ray's.
        gcs_port: port of Ray's control service.
    """

    at: str
    drain: int
    services: Sequence[str]
    gcs_port: int


def declare(end: End, runtime: KubernetesRuntime, token: str, opts: pulumi.ResourceOptions) -> None:
    """Declare the timer, and the wait until it runs.

    Args:
        end: when, and what ends.
        runtime: the stack's.
        token: name of the Secret with Ray's token.
        opts: its parent, and what comes before.
    """
    defaults = runtime.args.defaults
    leave = [
        runtime.file(NAME, ray_leave.FILE),
        runtime.address(ray_node.HEAD, end.gcs_port),
        ray_leave.EVERY,
    ]
    ending = objects(defaults, runtime.ray_name, end.services)
    settings = {
        "end": end.at,
        "drainSeconds": end.drain,
        "leave": leave,
        "objects": [path(defaults.namespace, *each) for each in ending],
    }
    files = {
        SETTINGS: json.dumps(settings),
        pods_end.FILE: pods_end.text(),
        ray_leave.FILE: ray_leave.text(),
    }
    before = runtime.place_files(NAME, files, {}, opts)
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": defaults.metadata(defaults.name(NAME), NAME),
    }
    for kind, manifest in (
        ("account", account),
        ("role", role(defaults, ending)),
        ("binding", binding(defaults)),
    ):
        before.append(runtime.place_object(f"{NAME}-{kind}", manifest, opts))
    found = deployment(
        defaults,
        image=runtime.args.images["ray"],
        command=["python3", runtime.file(NAME, pods_end.FILE), runtime.file(NAME, SETTINGS)],
        files=[*files],
        digest=runtime.digest(files),
        token=token,
    )
    made = runtime.place_object(NAME, found, opts, before=before)
    runtime.await_ready(
        NAME,
        found,
        pods=defaults.pods(NAME),
        seconds=defaults.start_seconds,
        opts=pulumi.ResourceOptions(parent=opts.parent, depends_on=[made]),
    )


def objects(defaults: ObjectDefaults, ray: str, services: Sequence[str]) -> list[tuple[str, str]]:
    """Return kind and name of all that may make pods, the timer's own at last.

    A service has one of three kinds.
    """
    named = [(kind, defaults.name(service)) for service in services for kind in WORKLOADS]
    return [(kuberay.KIND, ray), *named, ("Deployment", defaults.name(NAME))]


def path(namespace: str, kind: str, name: str) -> str:
    """Return the path of an object in the API."""
    group, version, plural = KINDS[kind]
    return f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}"


def role(defaults: ObjectDefaults, ending: Sequence[tuple[str, str]]) -> Manifest:
    """Return the timer's rights: to look at what it ends, and to delete it.

    Args:
        defaults: the stack's defaults for its objects.
        ending: kind and name of each object.
    """
    names: dict[str, list[str]] = {}
    for kind, name in ending:
        names.setdefault(kind, []).append(name)
    rules = [
        {
            "apiGroups": [KINDS[kind][0]],
            "resources": [KINDS[kind][2]],
            "resourceNames": found,
            "verbs": ["get", "delete"],
        }
        for kind, found in names.items()
    ]
    return {
        "apiVersion": f"{RIGHTS}/v1",
        "kind": "Role",
        "metadata": defaults.metadata(defaults.name(NAME), NAME),
        "rules": rules,
    }


def binding(defaults: ObjectDefaults) -> Manifest:
    """Return what gives the timer its rights."""
    name = defaults.name(NAME)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": defaults.namespace}
    return {
        "apiVersion": f"{RIGHTS}/v1",
        "kind": "RoleBinding",
        "metadata": defaults.metadata(name, NAME),
        "roleRef": {"apiGroup": RIGHTS, "kind": "Role", "name": name},
        "subjects": [subject],
    }


def deployment(
    defaults: ObjectDefaults,
    *,
    image: str,
    command: Sequence[str],
    files: Sequence[str],
    digest: Any,
    token: str,
) -> Manifest:
    """Return what runs the timer.

    Args:
        defaults: the stack's defaults for its objects.
        image: one with Ray.
        command: what runs in it.
        files: names of its files.
        digest: a text that changes with these files, and so with the end.
        token: name of the Secret with Ray's token.
    """
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": manifests.PULL,
        "command": [*command],
        "env": [
            {"name": "RAY_AUTH_MODE", "value": "token"},
            # A file, which follows a change of the token.
            {"name": "RAY_AUTH_TOKEN_PATH", "value": f"{TOKEN_PATH}/{kuberay.TOKEN_KEY}"},
        ],
        "resources": manifests.resources(MEMORY_MIB),
        "securityContext": manifests.container_security(),
        "volumeMounts": [
            {"name": manifests.FILES_VOLUME, "mountPath": manifests.FILES, "readOnly": True},
            {"name": TOKEN, "mountPath": TOKEN_PATH, "readOnly": True},
            dict(kuberay_pods.API_ACCESS_MOUNT),
        ],
    }
    volumes = [
        {"name": manifests.FILES_VOLUME, **manifests.files_source(defaults, NAME, files, ())},
        {"name": TOKEN, "secret": {"secretName": token, "defaultMode": manifests.FILE_MODE}},
        kuberay_pods.api_access(),
    ]
    spec = manifests.pod_of(defaults, manifests.USER, container, volumes, stop_seconds=1)
    spec["serviceAccountName"] = defaults.name(NAME)
    return manifests.one_pod(defaults, NAME, spec, digest, claims=False)
