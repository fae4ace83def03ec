"""A Kubernetes cluster for tests: one real node in namespaces of its own.

What is real: API server, etcd, controller manager, scheduler, kubelet, proxy, containerd, runc and
the containers, whose images are those of the container tests. What is not: DNS and volumes are by
`addons.py` instead of CoreDNS and a CSI driver, no network policy is enforced, and `gpu_node.py` is
a node that does not exist. `kuberay.py` runs KubeRay's operator itself.
"""

from tests.fakes.kubernetes.errors import NoKubernetesError
from tests.fakes.kubernetes.node import Node

__all__ = ["NoKubernetesError", "Node"]
