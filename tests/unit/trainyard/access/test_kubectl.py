"""A port of this machine that kubectl leads to a service: its end, its silence, its absence."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from trainyard.access.kubectl import Cluster, Forward, KubectlError, forwarded

ROOT = Path(__file__).parents[4]
CLUSTER = Cluster(kubeconfig="~/config", context="lab", namespace="team")


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """A program in the place of kubectl, which notes its arguments."""

    def put(script):
        path = tmp_path / "kubectl"
        path.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
        return tmp_path / "arguments"

    return put


def test_each_user_has_a_kubeconfig_of_their_own(monkeypatch):
    cluster = Cluster(kubeconfig="", context="lab", namespace="team")
    monkeypatch.setenv("HOME", "/home")
    monkeypatch.setenv("KUBECONFIG", "/theirs")
    assert cluster.config_file == Path("/theirs")
    monkeypatch.delenv("KUBECONFIG")
    assert cluster.config_file == Path("/home/.kube/config")
    assert cluster.kubectl[:3] == ["kubectl", "--kubeconfig", "/home/.kube/config"]
    assert CLUSTER.config_file == Path("/home/config")


SERVES = "echo 'Forwarding from 127.0.0.1:4567 -> 9000'; exec sleep 600"


def test_the_port_that_kubectl_chose_is_given_and_it_ends_with_the_context(kubectl, monkeypatch):
    monkeypatch.setenv("HOME", "/home")
    arguments = kubectl(SERVES)
    with forwarded(CLUSTER, "lab-store", 9000) as address:
        assert address == "127.0.0.1:4567"
    assert arguments.read_text().split() == [
        *("--kubeconfig", "/home/config", "--context", "lab", "--namespace", "team"),
        *("port-forward", "--address", "127.0.0.1", "service/lab-store", ":9000"),
    ]


def test_one_that_is_closed_has_ended(kubectl):
    kubectl(SERVES)
    forward = Forward(CLUSTER, "lab-store", 9000, local=4567)
    forward.close()
    assert forward.wait() == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere kubectl stays")
def test_it_ends_with_a_process_that_is_killed(kubectl):
    kubectl(SERVES)
    code = (
        "import signal; from trainyard.access.kubectl import Cluster, Forward;"
        "Forward(Cluster(kubeconfig='', context='', namespace=''), 'store', 9000);"
        "print('open', flush=True); signal.pause()"
    )
    command = [sys.executable, "-c", code]
    opener = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert opener.stdout.readline() == "open\n"
        (child,) = psutil.Process(opener.pid).children()
    finally:
        opener.send_signal(signal.SIGKILL)
        opener.wait()
        opener.stdout.close()
    assert psutil.wait_procs([child], timeout=10)[1] == []


def test_what_kubectl_says_is_the_reason(kubectl):
    kubectl("echo 'error: services \"lab-store\" not found' >&2; exit 1")
    with pytest.raises(KubectlError) as error:
        Forward(CLUSTER, "lab-store", 9000)
    assert 'services "lab-store" not found' in str(error.value)
    assert "namespace team of context lab" in str(error.value)


def test_without_kubectl_it_says_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubectlError, match="kubectl is not on PATH"):
        Forward(CLUSTER, "lab-store", 9000)
