"""KubeRay's operator itself (1.6), as a process outside the node: Go builds it from its module.

It has its own definitions and its own rights, both from the module, and runs as the service account
to which these are bound. Go's proxy does not serve 1.7, so one thing cannot be shown with it:
`autoscalerOptions.args`, which a stack sets if its `gcsPort` is not 6379.
"""

import json
import subprocess
from pathlib import Path

from tests import go_tools
from tests.fakes.kubernetes import credentials
from tests.fakes.kubernetes.errors import NoKubernetesError
from tests.fakes.kubernetes.node import Node
from tests.fakes.kubernetes.process import Process

PROGRAM = "kuberay"  # of tests/go_tools
NAME = "kuberay-operator"  # of the role in the module, and of everything with it
CHARTS = "github.com/ray-project/kuberay"  # at the operator's version
MODULE = f"{CHARTS}/ray-operator"
HELM = "helm"  # of tests/go_tools
NAMESPACE = "default"
# Of RayCronJobs it asks only where a feature gate is set.
DEFINITIONS = ("rayclusters", "rayjobs", "rayservices")
ROLES = "rbac.authorization.k8s.io"


def operator(node: Node) -> Process:
    """Return the operator of a node, with its definitions installed; it is not started yet.

    Raises:
        NoKubernetesError: Go cannot build it here, and why.
    """
    made = program(PROGRAM)
    config = module(PROGRAM, MODULE) / "config"
    node.kubectl(
        *("apply", "--server-side"),
        *(f"--filename={config}/crd/bases/ray.io_{name}.yaml" for name in DEFINITIONS),
        f"--filename={config}/rbac/role.yaml",
    )
    node.kubectl("apply", "--server-side", "--filename=-", text=json.dumps(_account()))
    command = [
        made,
        f"--kubeconfig={kubeconfig(node, NAME, NAMESPACE)}",
        "--metrics-addr=0",  # several nodes may run at the same time
        "--health-probe-bind-address=0",
        "--enable-leader-election=false",
    ]
    return Process(command, node.folder / "log" / NAME)


def program(tool: str) -> Path:
    """Return a program of tests/go_tools.

    Raises:
        NoKubernetesError: Go cannot build it here, and why.
    """
    try:
        return go_tools.obtain(tool)
    except go_tools.NoGoError as error:
        raise NoKubernetesError(str(error)) from None


def kubeconfig(node: Node, account: str, namespace: str) -> Path:
    """Return a new kubeconfig of a service account."""
    token = node.kubectl(
        "create", "token", account, f"--namespace={namespace}", "--duration=24h"
    ).strip()
    found = node.folder / f"{account}.kubeconfig"
    found.touch(mode=0o600)
    found.write_text(credentials.kubeconfig(node.folder, node.address, {account: token}, namespace))
    return found


def _account() -> dict[str, object]:
    account = {"name": NAME, "namespace": NAMESPACE}
    binding = {
        "apiVersion": f"{ROLES}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": ROLES, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
    return {"apiVersion": "v1", "kind": "List", "items": [made, binding]}


def chart() -> Path:
    """Return the folder of the chart `ray-cluster`.

    Raises:
        NoKubernetesError: Go cannot download it.
    """
    return module(HELM, CHARTS) / "helm-chart" / "ray-cluster"


def module(tool: str, name: str) -> Path:
    """Return the folder of a module that a tool requires, which Go downloads if it is missing."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", name],
        cwd=go_tools.HERE / tool,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NoKubernetesError(f"Go cannot download {name}: {done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])
