"""A namespace of a Kubernetes cluster, and its services at ports of this machine by kubectl.

The API itself can forward ports too, by a protocol of its own that only kubectl speaks well;
anyone who has a cluster has kubectl.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 20.0
END_SECONDS = 5.0
LOOPBACK = "127.0.0.1"
KUBECONFIG = "~/.kube/config"
FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")
LAST_LINES = 5
# Becomes a program that Linux ends with the thread that started it, even if that was killed:
# kubectl would keep running, and its ports would stay reachable. 1 is PR_SET_PDEATHSIG.
TIED = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class KubectlError(Exception):
    """A service of a cluster cannot be reached; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A namespace of a cluster."""

    kubeconfig: str  # path of the file with its address; "" for kubectl's default on each machine
    context: str  # name of the context in that file
    namespace: str  # of the stack

    @classmethod
    def of(cls, props: Mapping[str, Any]) -> Cluster:
        """Return the cluster that the properties of a resource, or an output, hold."""
        return cls(
            kubeconfig=str(props["kubeconfig"]),
            context=str(props["context"]),
            namespace=str(props["namespace"]),
        )

    @property
    def config_file(self) -> Path:
        """The kubeconfig on this machine."""
        chosen = self.kubeconfig or os.environ.get("KUBECONFIG") or KUBECONFIG
        return Path(chosen).expanduser()

    @property
    def name(self) -> str:
        """The cluster's name in messages."""
        return f"namespace {self.namespace} of context {self.context}"

    @property
    def kubectl(self) -> list[str]:
        """The first words of a command for this cluster."""
        chosen = ["--kubeconfig", str(self.config_file), "--context", self.context]
        return ["kubectl", *chosen, "--namespace", self.namespace]


class Forward:
    """A port of this machine that leads to a service, for as long as its kubectl runs."""

    port: int  # of this machine

    def __init__(self, cluster: Cluster, service: str, port: int, *, local: int = 0) -> None:
        """Start kubectl, and return once the port answers; without `local` it is a free one.

        Raises:
            KubectlError: kubectl is missing or ends.
        """
        if shutil.which("kubectl") is None:
            raise KubectlError(
                f"kubectl is not on PATH: it leads to the services in {cluster.name}; install it "
                "(kubernetes.io/docs/tasks/tools)"
            )
        tied = [sys.executable, "-IS", "-c", TIED] if sys.platform == "linux" else []
        target = f"{local or ''}:{port}"
        forward = ["port-forward", "--address", LOOPBACK, f"service/{service}", target]
        self._what = f"service {service} in {cluster.name}"
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        self._opened = threading.Event()
        self._found = 0
        self._process = subprocess.Popen(
            [*tied, *cluster.kubectl, *forward],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._read, name="kubectl", daemon=True).start()
        self._opened.wait(START_SECONDS)
        if not self._found:
            self.close()
            reason = "; ".join(self._said) or f"nothing within {START_SECONDS:g} s"
            raise KubectlError(f"{self._what} is not reached; kubectl says: {reason}")
        self.port = self._found

    def _read(self) -> None:
        for line in self._process.stdout or ():
            if found := FORWARDING.match(line):
                self._found = int(found[1])
                self._opened.set()
            elif line.strip() and not line.startswith(("Handling connection", "Forwarding")):
                self._said.append(line.strip())
        self._opened.set()

    def wait(self) -> str:
        """Wait until kubectl ends; return the reason it gave."""
        self._process.wait()
        return "; ".join(self._said)

    def close(self) -> None:
        """End kubectl."""
        self._process.terminate()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def forwarded(cluster: Cluster, service: str, port: int) -> Iterator[str]:
    """Open a port of this machine that leads to a service of a cluster.

    Yields:
        host:port of this machine.

    Raises:
        KubectlError: it cannot be reached.
    """
    with contextlib.closing(Forward(cluster, service, port)) as forward:
        yield f"{LOOPBACK}:{forward.port}"
