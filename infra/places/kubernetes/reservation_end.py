"""The timer that ends a stack's pods with its reservation: one more pod, with the right to do so.

It runs `node/ending.py`. Only its own container has its token: jobs on the cluster cannot
use it. The user's own rights must include those of the Role, as Kubernetes demands of all who make
one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster import idle_end, kuberay, kuberay_pods, ray_node
from cluster.kuberay_spec import USER, Mount
from infra.machines.fleet import IdleWatch
from infra.places.kubernetes import manifests
from infra.places.kubernetes.api import KINDS, OF_TIMER
from infra.places.kubernetes.manifests import Manifest, ObjectDefaults
from infra.places.kubernetes.runtime import KubernetesRuntime
from node import ending, ray_leave, source_text

NAME = ending.NAME
SETTINGS = "settings.json"
SERVER = "https://kubernetes.default.svc"
MEMORY_MIB = 512  # Ray's client, while workers are drained
TOKEN, TOKEN_PATH = "ray-token", "/etc/ray-token"
RIGHTS = OF_TIMER["Role"][0]
WORKLOADS = ("Deployment", "StatefulSet", "Job")  # a service's pods are made by one of them


@dataclass(frozen=True, kw_only=True)
class End:
    """The end of a stack's pods.

    Attributes:
        at: time, in ISO 8601.
        drain: seconds before it in which runs store a checkpoint and leave.
        services: names of all services but Ray's.
        idle: whom the timer asks too; None for nobody.
    """

    at: str
    drain: int
    services: Sequence[str]
    gcs_port: int
    idle: IdleWatch | None


def declare(end: End, runtime: KubernetesRuntime, token: str, opts: pulumi.ResourceOptions) -> None:
    """Declare the timer, and the wait until it runs; `token` names the Secret with Ray's token."""
    defaults = runtime.defaults
    # All that may make pods, the timer's own at last.
    ends = [(kuberay.KIND, runtime.ray_name)]
    ends += [(kind, defaults.name(service)) for service in end.services for kind in WORKLOADS]
    ends.append(("Deployment", defaults.name(NAME)))
    gcs = runtime.address(ray_node.HEAD, end.gcs_port)
    settings: dict[str, Any] = {
        "ends": "pods",
        "end": end.at,
        "drainSeconds": end.drain,
        "leave": [runtime.file(NAME, ray_leave.FILE), gcs, ray_leave.EVERY],
        "account": kuberay_pods.API_ACCESS_MOUNT["mountPath"],
        "objects": [url(defaults.where.namespace, *each) for each in ends],
    }
    if end.idle:
        watch = runtime.address(idle_end.SERVICE, end.idle.port)
        settings["idle"] = end.idle.asked_at(watch)
    files = {each: source_text(each) for each in (ending.FILE, ray_leave.FILE)}
    told = pulumi.Output.json_dumps(settings)
    secrets: dict[str, pulumi.Input[str]] = {SETTINGS: pulumi.Output.secret(told)}
    before = runtime.place_files(NAME, files, secrets, opts)
    before += [
        runtime.place_object(f"{NAME}-{name}", manifest, opts)
        for name, manifest in rights(defaults, ends).items()
    ]
    found = deployment(runtime, [*files], runtime.digest(files, secrets), token)
    made = runtime.place_object(NAME, found, opts, before=before)
    runtime.await_ready(
        NAME,
        found,
        pods=defaults.pods(NAME),
        seconds=defaults.settings.start_timeout_seconds,
        opts=pulumi.ResourceOptions(parent=opts.parent, depends_on=[made]),
    )


def url(namespace: str, kind: str, name: str) -> str:
    """Return the URL of an object in the API, as pods reach it."""
    group, version, plural = KINDS[kind]
    return f"{SERVER}/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}"


def rights(defaults: ObjectDefaults, ends: Sequence[tuple[str, str]]) -> dict[str, Manifest]:
    """Return the timer's account, with the right to look at what it ends, and to delete it.

    `ends` has kind and name of each object.
    """
    names: dict[str, list[str]] = {}
    for kind, ended in ends:
        names.setdefault(kind, []).append(ended)
    rules = [
        {
            "apiGroups": [KINDS[kind][0]],
            "resources": [KINDS[kind][2]],
            "resourceNames": found,
            "verbs": ["get", "delete"],
        }
        for kind, found in names.items()
    ]
    name, version = defaults.name(NAME), f"{RIGHTS}/v1"
    role = {"apiGroup": RIGHTS, "kind": "Role", "name": name}
    account = {"kind": "ServiceAccount", "name": name, "namespace": defaults.where.namespace}
    return {
        "account": defaults.manifest("ServiceAccount", NAME),
        "role": defaults.manifest("Role", NAME, version=version, rules=rules),
        "binding": defaults.manifest(
            "RoleBinding", NAME, version=version, roleRef=role, subjects=[account]
        ),
    }


def deployment(
    runtime: KubernetesRuntime, files: Sequence[str], digest: object, token: str
) -> Manifest:
    """Return what runs the timer; `token` names the Secret with Ray's token.

    The digest changes with the timer's files, and so with the end.
    """
    defaults = runtime.defaults
    source = manifests.files_source(defaults, NAME, files, [SETTINGS])
    secret = {"secret": {"secretName": token, "defaultMode": manifests.FILE_MODE}}
    mounts = [
        Mount(name=manifests.FILES_VOLUME, path=manifests.FILES, source=source),
        Mount(name=TOKEN, path=TOKEN_PATH, source=secret),
    ]
    container = {
        "name": NAME,
        "image": runtime.defaults.settings.images["ray"],
        "imagePullPolicy": kuberay_pods.PULL_POLICY,
        "command": [
            *("python3", runtime.file(NAME, ending.FILE), "wait", runtime.file(NAME, SETTINGS))
        ],
        "env": [
            {"name": "RAY_AUTH_MODE", "value": "token"},
            # A file, which follows a change of the token.
            {"name": "RAY_AUTH_TOKEN_PATH", "value": f"{TOKEN_PATH}/{kuberay.TOKEN_KEY}"},
        ],
        "resources": manifests.resources(MEMORY_MIB),
        "securityContext": dict(kuberay_pods.CONTAINER_SECURITY),
        "volumeMounts": [*(each.mount for each in mounts), dict(kuberay_pods.API_ACCESS_MOUNT)],
    }
    volumes = [*(each.volume for each in mounts), kuberay_pods.api_access()]
    spec = manifests.pod_of(defaults, USER, container, volumes, stop_seconds=1)
    spec["serviceAccountName"] = defaults.name(NAME)
    return manifests.one_pod(defaults, NAME, spec, digest, claims=False)
