"""Kueue's manager itself (0.17), as a process outside the node: Go builds it from its module.

Its definitions, rights and webhooks are the module's. Of the webhooks those of RayClusters and of
its own kinds are installed: those of pods would hold up all pods of the node while it starts.
"""

import base64
import json
from typing import Any

import yaml

from tests import ports
from tests.fakes.kubernetes import credentials, kuberay
from tests.fakes.kubernetes.node import Node
from tests.fakes.kubernetes.process import Process

PROGRAM = "kueue"  # of tests/go_tools
MODULE = "sigs.k8s.io/kueue"
NAMESPACE = "kueue-system"
ACCOUNT = "kueue-controller-manager"
WEBHOOK = "kueue-webhook-service"
GROUPS = {"ray.io", "kueue.x-k8s.io"}
FIRST = ("Namespace", "CustomResourceDefinition")
THEN = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
# It wants a certificate for its metrics in this folder, also if it serves none.
WITH_CERTIFICATE = """
mount -t tmpfs tmpfs /etc && mkdir -p /etc/kueue/metrics &&
  ln -s "$1" /etc/kueue/metrics/certs && shift && exec "$@"
"""
VERSION = "kueue.x-k8s.io/v1beta2"


def manager(node: Node) -> Process:
    """Return the manager of a node, with all that it needs installed; it is not started yet.

    Raises:
        NoKubernetesError: Go cannot build it here, and why.
    """
    program = kuberay.program(PROGRAM)
    (port,) = ports.free_ports(1)
    folder = kuberay.module(PROGRAM, MODULE) / "config" / "default"
    objects = [*yaml.safe_load_all(node.kubectl("kustomize", str(folder)))]
    _trust(objects, base64.b64encode((node.folder / "ca.crt").read_bytes()).decode())
    for kinds, more in ((FIRST, []), (THEN, _service(node, port)), (WEBHOOKS, [])):
        items = [each for each in objects if each["kind"] in kinds] + more
        made = {"apiVersion": "v1", "kind": "List", "items": items}
        node.kubectl("apply", "--server-side", "--filename=-", text=json.dumps(made))
    name = f"{WEBHOOK}.{NAMESPACE}.svc"
    certificate = credentials.serving(node.folder, name, [name])
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "webhook": {"port": port, "certDir": str(certificate)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
        "featureGates": {"VisibilityOnDemand": False},  # a second server
        "integrations": {"frameworks": ["ray.io/raycluster"]},
    }
    file = node.folder / "kueue.json"
    file.write_text(json.dumps(config))
    kubeconfig = kuberay.kubeconfig(node, ACCOUNT, NAMESPACE)
    command = ["unshare", "--mount", "sh", "-c", WITH_CERTIFICATE, "sh", certificate]
    command += [program, f"--config={file}", f"--kubeconfig={kubeconfig}"]
    return Process(command, node.folder / "log" / PROGRAM)


def _trust(objects: list[dict[str, Any]], authority: str) -> None:
    """Choose the webhooks, and have the API server trust the certificate of these."""
    for made in objects:
        if made["kind"] in WEBHOOKS:
            made["webhooks"] = [
                each
                for each in made["webhooks"]
                if {group for rule in each["rules"] for group in rule["apiGroups"]} <= GROUPS
            ]
            for each in made["webhooks"]:
                each["clientConfig"]["caBundle"] = authority
        if conversion := (made.get("spec") or {}).get("conversion"):
            conversion["webhook"]["clientConfig"]["caBundle"] = authority


def _service(node: Node, port: int) -> list[dict[str, Any]]:
    """The service that the webhooks name, whose only endpoint is this machine."""
    metadata = {"name": WEBHOOK, "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": {"kubernetes.io/service-name": WEBHOOK}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": port}],
            "endpoints": [{"addresses": [f"10.79.{node.number}.1"]}],
        },
    ]


def queue(namespace: str, memory: str) -> list[dict[str, Any]]:
    """Return the queue `team` of a namespace with a quota, and the priority class `urgent`.

    Its flavor is the node by a label, so Kueue writes that into the pods that it admits.
    """
    quotas = {"cpu": "32", "memory": memory}
    amounts = [{"name": name, "nominalQuota": amount} for name, amount in quotas.items()]
    flavors = [{"name": namespace, "resources": amounts}]
    kinds: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
        "ResourceFlavor": (
            {"name": namespace},
            {"spec": {"nodeLabels": {"kubernetes.io/os": "linux"}}},
        ),
        "ClusterQueue": (
            {"name": namespace},
            {
                "spec": {
                    "namespaceSelector": {
                        "matchLabels": {"kubernetes.io/metadata.name": namespace}
                    },
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                    "resourceGroups": [{"coveredResources": [*quotas], "flavors": flavors}],
                }
            },
        ),
        "LocalQueue": (
            {"name": "team", "namespace": namespace},
            {"spec": {"clusterQueue": namespace}},
        ),
        "WorkloadPriorityClass": ({"name": "urgent"}, {"value": 1000}),
    }
    return [
        {"apiVersion": VERSION, "kind": kind, "metadata": metadata, **rest}
        for kind, (metadata, rest) in kinds.items()
    ]
