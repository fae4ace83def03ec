"""The cluster's programs: how they are started, and their configuration files."""

import json
import sys
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes import credentials, images

ADDONS = Path(__file__).parent / "addons.py"
SERVICES = "10.96.0.0/16"  # addresses of services
PODS = "10.244.0.0/24"
# More than most machines for tests have: pods that request more than this would never start.
CPUS = 32
DOMAIN = "cluster.local"
ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
NOT_NEEDED = ("snapshotter.v1.btrfs", "snapshotter.v1.zfs", "snapshotter.v1.devmapper")

CONTAINERD = """
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = [{disabled}]
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/{pause}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
"""


def write(folder: Path, hk: Path, address: str, name: str) -> dict[str, dict[str, list[str]]]:
    """Write the node's configuration; return the programs that start first, and those after."""
    disabled = ", ".join(f'"io.containerd.{plugin}"' for plugin in NOT_NEEDED)
    (folder / "containerd.toml").write_text(
        CONTAINERD.format(folder=folder, disabled=disabled, pause=images.PAUSE)
    )
    (folder / "cni").mkdir()
    _json(folder / "cni" / "10-pods.conflist", _network(folder))
    _json(folder / "kubelet.json", _kubelet(folder, address))
    (folder / "hosts").touch()
    kubeconfig = f"--kubeconfig={folder}/kubeconfig"
    first = {
        "containerd": ["containerd", f"--config={folder}/containerd.toml"],
        "etcd": [
            *("etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={ETCD}"),
            *(f"--advertise-client-urls={ETCD}", f"--listen-peer-urls={ETCD_PEER}"),
        ],
        "kube-apiserver": [str(hk), "kube-apiserver", *_api_server(folder, address)],
        "dnsmasq": [
            *("dnsmasq", "--keep-in-foreground", "--no-resolv", "--no-hosts", "--user=root"),
            *(f"--listen-address={address}", "--bind-interfaces", f"--local=/{DOMAIN}/"),
            *(f"--addn-hosts={folder}/hosts", f"--pid-file={folder}/dnsmasq.pid"),
        ],
    }
    then = {
        "kube-controller-manager": [
            *(str(hk), "kube-controller-manager", kubeconfig, "--leader-elect=false"),
            f"--service-account-private-key-file={folder}/accounts.key",
            f"--root-ca-file={folder}/ca.crt",
            "--use-service-account-credentials=false",
        ],
        "kube-scheduler": [str(hk), "kube-scheduler", kubeconfig, "--leader-elect=false"],
        "kubelet": [
            *(str(hk), "kubelet", kubeconfig, f"--config={folder}/kubelet.json"),
            *(f"--root-dir={folder}/kubelet", f"--cert-dir={folder}/kubelet-pki"),
            *(f"--node-ip={address}", f"--hostname-override={name}"),
        ],
        "kube-proxy": [
            *(str(hk), "kube-proxy", kubeconfig, "--proxy-mode=iptables"),
            *(f"--hostname-override={name}", f"--cluster-cidr={PODS}"),
            "--conntrack-max-per-core=0",
        ],
        "addons": [sys.executable, str(ADDONS), str(folder), name],
    }
    return {"first": first, "then": then}


def _api_server(folder: Path, address: str) -> list[str]:
    return [
        f"--etcd-servers={ETCD}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={credentials.PORT}",
        f"--tls-cert-file={folder}/apiserver.crt",
        f"--tls-private-key-file={folder}/apiserver.key",
        f"--service-cluster-ip-range={SERVICES}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={folder}/accounts.key",
        f"--service-account-key-file={folder}/accounts.key",
        f"--token-auth-file={folder}/tokens.csv",
        "--authorization-mode=Node,RBAC",
        # As in clouds: pods that ask for GPUs tolerate the taint of nodes with GPUs.
        "--enable-admission-plugins=ExtendedResourceToleration",
        "--allow-privileged",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={folder}/kubelet-client.crt",
        f"--kubelet-client-key={folder}/kubelet-client.key",
    ]


def _kubelet(folder: Path, address: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": "/",
        "failSwapOn": False,
        "failCgroupV1": False,
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{folder}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [address],
        "clusterDomain": DOMAIN,
        "resolvConf": f"{folder}/resolv.conf",
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": f"{folder}/pods",
        "volumePluginDir": f"{folder}/volume-plugins",
        "serializeImagePulls": False,
    }


def _network(folder: Path) -> dict[str, Any]:
    """Each pod has a cable to the node, so its packets to a service are translated there."""
    addresses = {
        "type": "host-local",
        "dataDir": f"{folder}/addresses",
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1))
