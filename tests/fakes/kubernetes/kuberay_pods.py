"""What KubeRay's operator makes of a RayCluster, as its source says: pods, a service, rights.

Pure functions of manifests. Left out is what this project does not use: fault tolerance of GCS,
TLS, ingresses, resources beside `rayStartParams`, hosts of more than one pod, Ray older than 2.53.
"""

import copy
import hashlib
import json
import math
from decimal import Decimal
from typing import Any

Manifest = dict[str, Any]

VERSION = "1.7.0"  # whose behaviour this follows
HEAD, WORKER = "head", "worker"
HEAD_GROUP = "headgroup"
CREATED_BY = {
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
HASH = "ray.io/upgrade-strategy-recreate-hash"
PORTS = {"client": 10001, "dashboard": 8265, "gcs-server": 6379, "metrics": 8080, "serve": 8000}
AGENT_PORT = "52365"
SHELL = ["/bin/bash", "-c", "--"]
LONGEST_NAME = 50  # characters, of a name that gets more at its end
BOOLEAN_WITH_VALUE = ("log-color", "include-dashboard", "include-log-monitor")
ACCELERATORS = {"aws.amazon.com/neuroncore": "neuron_cores", "google.com/tpu": "TPU"}
SUFFIXES = {"m": Decimal("0.001"), "": Decimal(1)}
SUFFIXES |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
SUFFIXES |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
WAIT_FOR_HEAD = """
SECONDS=0
until ray health-check --address {address} >/dev/null 2>&1; do
  echo "$SECONDS seconds elapsed: Waiting for GCS to be ready."
  sleep 5
done
echo "GCS is ready."
"""
AUTOSCALER = (
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) "
    "--cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
)


def head_pod(cluster: Manifest) -> Manifest:
    """Return the pod of a cluster's head, whose name the API server completes."""
    spec = cluster["spec"]
    group = spec["headGroupSpec"]
    pod = _pod(cluster, group, HEAD, HEAD_GROUP)
    pod["metadata"]["generateName"] = f"{cluster['metadata']['name'][:LONGEST_NAME]}-head-".lower()
    pod["metadata"]["annotations"] |= {
        "ray.io/ft-enabled": "false",
        "ray.io/kuberay-version": VERSION,
        HASH: spec_hash(spec),
    }
    parameters = {"dashboard-host": "0.0.0.0", **_parameters(group)}
    ray = pod["spec"]["containers"][0]
    if spec.get("enableInTreeAutoscaling"):
        parameters["no-monitor"] = "true"
        pod["spec"]["serviceAccountName"] = account_name(cluster)
        sidecar = _autoscaler(spec, ray["image"])
        pod["spec"]["containers"].append(sidecar)
        _version_of_autoscaler(pod, spec)
        for container in (ray, sidecar):
            _empty_folder(pod, container, "ray-logs", "/tmp/ray", {})
    _complete(cluster, pod, parameters, HEAD)
    return pod


def worker_pod(cluster: Manifest, group: Manifest) -> Manifest:
    """Return a pod of a group, whose name the API server completes."""
    spec = cluster["spec"]
    pod = _pod(cluster, group, WORKER, group["groupName"])
    prefix = f"{cluster['metadata']['name']}-{group['groupName']}"[:LONGEST_NAME]
    pod["metadata"]["generateName"] = f"{prefix}-worker-".lower()
    ray = pod["spec"]["containers"][0]
    address = f"{service_address(cluster)}:{_head_port(cluster)}"
    small = {"cpu": "200m", "memory": "256Mi"}
    waiting = {
        "name": "wait-gcs-ready",
        "image": ray["image"],
        "command": SHELL,
        "args": [WAIT_FOR_HEAD.format(address=address)],
        "resources": {"requests": small, "limits": small},
    }
    for name in ("imagePullPolicy", "securityContext", "env", "volumeMounts"):
        if name in ray:
            waiting[name] = copy.deepcopy(ray[name])
    pod["spec"].setdefault("initContainers", []).append(waiting)
    if spec.get("enableInTreeAutoscaling"):
        _version_of_autoscaler(pod, spec, worker=True)
    _complete(cluster, pod, {"address": address, **_parameters(group)}, WORKER)
    return pod


def head_service(cluster: Manifest) -> Manifest:
    """Return the service of a cluster's head: without an address, and before the head is ready."""
    name = cluster["metadata"]["name"]
    labels = {
        "ray.io/cluster": name,
        "ray.io/node-type": HEAD,
        "ray.io/identifier": f"{name}-head",
        **CREATED_BY,
    }
    given = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0].get("ports") or []
    ports = {port["name"]: port["containerPort"] for port in given} or dict(PORTS)
    ports.setdefault("metrics", PORTS["metrics"])
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_owned(cluster, service_name(cluster)), "labels": labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [
                {"name": name, "port": port, "appProtocol": "tcp"}
                for name, port in sorted(ports.items())
            ],
        },
    }


def rights(cluster: Manifest) -> list[Manifest]:
    """Return the account of the autoscaler, and what it may do."""
    name, account = cluster["metadata"]["name"], account_name(cluster)
    labels = {"ray.io/cluster": name, **CREATED_BY}
    api = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": account}
    subject["namespace"] = cluster["metadata"]["namespace"]
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**_owned(cluster, account), "labels": labels},
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "Role",
            "metadata": {**_owned(cluster, name), "labels": labels},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["pods"],
                    "verbs": ["get", "list", "watch", "patch"],
                },
                {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
                {
                    "apiGroups": ["ray.io"],
                    "resources": ["rayclusters"],
                    "verbs": ["get", "patch"],
                },
            ],
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": {**_owned(cluster, name), "labels": labels},
            "subjects": [subject],
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
        },
    ]


def account_name(cluster: Manifest) -> str:
    """Return the name of the service account of a head with an autoscaler."""
    template: Manifest = cluster["spec"]["headGroupSpec"]["template"]["spec"]
    return str(template.get("serviceAccountName") or cluster["metadata"]["name"])


def service_name(cluster: Manifest) -> str:
    """Return the name of the head's service."""
    return f"{cluster['metadata']['name']}-head-svc"


def service_address(cluster: Manifest) -> str:
    """Return the whole name of the head's service."""
    return f"{service_name(cluster)}.{cluster['metadata']['namespace']}.svc.cluster.local"


def desired(group: Manifest) -> int:
    """Return how many pods a group is to have: its replicas, within its bounds."""
    if group.get("suspend"):
        return 0
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", 2**31 - 1)
    return int(max(least, min(group.get("replicas", least), most)) * group.get("numOfHosts", 1))


def spec_hash(spec: Manifest) -> str:
    """Return what a spec is known by, but for what makes no pod anew."""
    fixed = copy.deepcopy(spec)
    fixed.pop("upgradeStrategy", None)
    for group in fixed.get("workerGroupSpecs", []):
        for name in ("replicas", "minReplicas", "maxReplicas", "scaleStrategy"):
            group.pop(name, None)
    for group in (fixed["headGroupSpec"], *fixed.get("workerGroupSpecs", [])):
        group["template"]["spec"].pop("tolerations", None)
    return hashlib.sha1(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def quantity(text: str | float) -> int:
    """Return an amount of a resource, rounded up to a whole number."""
    number = str(text).rstrip("kKMGTPEim")
    return math.ceil(Decimal(number) * SUFFIXES[str(text)[len(number) :]])


def _pod(cluster: Manifest, group: Manifest, kind: str, name: str) -> Manifest:
    template = copy.deepcopy(group["template"])
    metadata = template.get("metadata") or {}
    cluster_name = cluster["metadata"]["name"]
    fixed = {"ray.io/node-type": kind, "ray.io/group": name, "ray.io/cluster": cluster_name}
    labels = {
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{cluster_name}-{kind}",
        **CREATED_BY,
        **(metadata.get("labels") or {}),
        **(group.get("labels") or {}),
        **fixed,
    }
    owned = _owned(cluster, "")
    del owned["name"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **owned,
            "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": template["spec"],
    }


def _owned(cluster: Manifest, name: str) -> Manifest:
    owner = {
        "apiVersion": cluster["apiVersion"],
        "kind": cluster["kind"],
        "name": cluster["metadata"]["name"],
        "uid": cluster["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": cluster["metadata"]["namespace"],
        "ownerReferences": [owner],
    }


def _parameters(group: Manifest) -> dict[str, str]:
    """Return the parameters of `ray start` that a group gives."""
    parameters = dict(group.get("rayStartParams") or {})
    if labels := group.get("labels"):
        parameters["labels"] = ",".join(f"{name}={labels[name]}" for name in sorted(labels))
    return parameters


def _complete(cluster: Manifest, pod: Manifest, parameters: dict[str, str], kind: str) -> None:
    """Give a pod its start command, environment, probes, token and shared memory."""
    spec, ray = cluster["spec"], pod["spec"]["containers"][0]
    parameters.setdefault("metrics-export-port", str(PORTS["metrics"]))
    parameters.setdefault("dashboard-agent-listen-port", AGENT_PORT)
    parameters["block"] = "true"
    _resources(parameters, ray.get("resources") or {})
    if not any(port.get("name") == "metrics" for port in ray.get("ports") or []):
        ray.setdefault("ports", []).append({"name": "metrics", "containerPort": PORTS["metrics"]})
    command = f"ray start {'--head ' if kind == HEAD else ''}{_flags(parameters)}"
    given = " ".join([*ray.get("command", []), *ray.get("args", [])])
    start = f"ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {command}"
    if "ray start" not in given:
        ray["command"], ray["args"] = SHELL, [f"{given} && {start}" if given else start]
    if "plasma-directory" not in parameters:
        resources = ray.get("resources") or {}
        most = (resources.get("limits") or resources.get("requests") or {}).get("memory")
        size = {"sizeLimit": most} if most else {}
        _empty_folder(pod, ray, "shared-mem", "/dev/shm", {"medium": "Memory", **size})
    if (spec.get("authOptions") or {}).get("mode") == "token":
        _token(cluster, pod)
    address = service_address(cluster)
    own = [("FQ_RAY_IP", address), ("RAY_IP", service_name(cluster))]
    for container in pod["spec"].get("initContainers", []):
        container.setdefault("env", []).extend(_variables(own))
    _environment(cluster, ray, command, kind, own)
    _probes(ray, parameters, kind)


def _resources(parameters: dict[str, str], resources: Manifest) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    cpu = limits.get("cpu") or requests.get("cpu")
    if cpu:
        parameters.setdefault("num-cpus", str(quantity(cpu)))
    if "memory" in limits:
        parameters.setdefault("memory", str(quantity(limits["memory"])))
    custom = json.loads(parameters.get("resources", "{}").strip("'\"` "))
    for name in sorted(limits):
        if name.endswith("gpu") and quantity(limits[name]):
            parameters.setdefault("num-gpus", str(quantity(limits[name])))
        ours = ACCELERATORS.get(name)
        if ours and not custom.keys() & set(ACCELERATORS.values()):
            custom[ours] = float(quantity(limits[name]))
            parameters["resources"] = f"'{json.dumps(custom)}'"


def _flags(parameters: dict[str, str]) -> str:
    flags = []
    for name, value in sorted(parameters.items()):
        if value.lower() in {"true", "false"} and name not in BOOLEAN_WITH_VALUE:
            flags += [f"--{name}"] if value.lower() == "true" else []
        else:
            flags.append(f"--{name}={value}")
    return " ".join(flags)


def _environment(
    cluster: Manifest, ray: Manifest, command: str, kind: str, own: list[tuple[str, str]]
) -> None:
    present = {variable["name"] for variable in ray.setdefault("env", [])}
    port = _head_port(cluster)
    host = "127.0.0.1" if kind == HEAD else service_address(cluster)
    always = [] if kind == HEAD else own
    ray["env"] += _variables(always)
    ray["env"] += [
        _field("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
        _field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        _field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        _field("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
        *_variables([("KUBERAY_GEN_RAY_START_CMD", command)]),
    ]
    defaults = {
        "RAY_PORT": port,
        "RAY_ADDRESS": f"{host}:{port}",
        "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
        "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
    }
    ray["env"] += _variables([(n, v) for n, v in defaults.items() if n not in present])
    if kind == HEAD:
        tags = f"kuberay_version={VERSION};kuberay_crd=RayCluster"
        ray["env"] += _variables([("RAY_USAGE_STATS_EXTRA_TAGS", tags)])


def _probes(ray: Manifest, parameters: dict[str, str], kind: str) -> None:
    port = int(parameters["dashboard-agent-listen-port"])
    probe = {
        "httpGet": {"path": "/api/healthz", "port": port},
        "timeoutSeconds": 5 if kind == HEAD else 2,
        "periodSeconds": 5,
        "successThreshold": 1,
    }
    live, ready = (30, 120), (10, 10)  # seconds before the first, failures before it counts
    for name, (delay, failures) in (("livenessProbe", live), ("readinessProbe", ready)):
        ray.setdefault(name, {**probe, "initialDelaySeconds": delay, "failureThreshold": failures})


def _token(cluster: Manifest, pod: Manifest) -> None:
    secret = cluster["spec"]["authOptions"].get("secretName") or cluster["metadata"]["name"]
    key = {"secretKeyRef": {"name": secret, "key": "auth_token"}}
    containers = [pod["spec"]["containers"][0]]
    containers += [c for c in pod["spec"]["containers"][1:] if c["name"] == "autoscaler"]
    containers += [
        c for c in pod["spec"].get("initContainers", []) if c["name"] == "wait-gcs-ready"
    ]
    for container in containers:
        present = {variable["name"] for variable in container.setdefault("env", [])}
        if "RAY_AUTH_MODE" not in present:
            container["env"] += _variables([("RAY_AUTH_MODE", "token")])
        if "RAY_AUTH_TOKEN" not in present:
            container["env"].append({"name": "RAY_AUTH_TOKEN", "valueFrom": key})


def _autoscaler(spec: Manifest, image: str) -> Manifest:
    options = spec.get("autoscalerOptions") or {}
    own = {"cpu": "500m", "memory": "512Mi"}
    container = {
        "name": "autoscaler",
        "image": options.get("image", image),
        "imagePullPolicy": options.get("imagePullPolicy", "IfNotPresent"),
        "command": options.get("command") or SHELL,
        "args": options.get("args") or [AUTOSCALER],
        "resources": options.get("resources") or {"requests": own, "limits": own},
        "env": [
            _field("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
            _field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            _field("RAY_HEAD_POD_NAME", "metadata.name"),
            *_variables(
                [("KUBERAY_CRD_VER", "v1"), ("KUBERAY_GEN_AUTOSCALER_START_CMD", AUTOSCALER)]
            ),
            *options.get("env", []),
        ],
    }
    for name in ("envFrom", "securityContext"):
        if name in options:
            container[name] = options[name]
    container["volumeMounts"] = [*options.get("volumeMounts", [])]
    return container


def _version_of_autoscaler(pod: Manifest, spec: Manifest, *, worker: bool = False) -> None:
    version = (spec.get("autoscalerOptions") or {}).get("version")
    if version == "v2":
        pod["spec"]["restartPolicy"] = "Never"
    if version and not worker:
        value = "true" if version == "v2" else "false"
        environment = pod["spec"]["containers"][0].setdefault("env", [])
        environment += _variables([("RAY_enable_autoscaler_v2", value)])


def _empty_folder(
    pod: Manifest, container: Manifest, name: str, path: str, settings: Manifest
) -> None:
    mounts = container.setdefault("volumeMounts", [])
    if any(mount["mountPath"] == path for mount in mounts):
        return
    volumes = pod["spec"].setdefault("volumes", [])
    if not any(volume["name"] == name for volume in volumes):
        volumes.append({"name": name, "emptyDir": settings})
    mounts.append({"name": name, "mountPath": path})


def _head_port(cluster: Manifest) -> str:
    parameters = cluster["spec"]["headGroupSpec"].get("rayStartParams") or {}
    return str(parameters.get("port", PORTS["gcs-server"]))


def _variables(pairs: list[tuple[str, str]]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in pairs]


def _field(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
