"""A real sshd on a loopback port, with keys of its own: a host that tests reach by SSH."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil

from tests.ssh_keys import keygen
from trainyard.access.ssh import Connection

BINARY = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
START_DEADLINE_S = 10.0
ATTEMPTS = 5
PRIVILEGE_SEPARATION = Path("/run/sshd")  # Debian's; sshd wants it when root starts it


class Sshd:
    """Runs while the context lasts; `stop` and `start` keep the port, the keys and the log.

    Attributes:
        host: loopback address.
        port: chosen by the kernel at the first start.
        user: the user who runs the tests; the only one who can log in.
        host_key: public key in OpenSSH's form, `ssh-ed25519 AAAA…`.
        key_file: private key that may log in, of mode 0600.
        log: of sshd, with every forwarded connection.
    """

    host = "127.0.0.1"

    def __init__(self, folder: Path, *options: str) -> None:
        """Makes keys and configuration.

        Args:
            folder: exists; keys, configuration and log go there.
            options: lines of sshd_config(5), before ours: the first of a name counts.
        """
        if BINARY is None:
            raise FileNotFoundError("sshd is not installed (Debian: openssh-server)")
        self.user = getpass.getuser()
        self.port = 0
        self.key_file = folder / "id_ed25519"
        self.log = folder / "sshd.log"
        self._host_key_file = folder / "host_key"
        self._config = folder / "sshd_config"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        login = self.new_key(self.key_file)
        self.host_key = self.new_key(self._host_key_file)
        self.authorized_keys = folder / "authorized_keys"
        self.authorized_keys.write_text(login + "\n")

    @staticmethod
    def new_key(path: Path, passphrase: str = "", kind: str = "ed25519") -> str:
        """Writes a private key (0600) and, next to it, its public one, which is returned."""
        for old in (path, path.with_name(f"{path.name}.pub")):
            old.unlink(missing_ok=True)
        keygen("-q", "-t", kind, "-N", passphrase, "-C", "", "-f", path)
        return path.with_name(f"{path.name}.pub").read_text().strip()

    def __enter__(self) -> "Sshd":
        for attempt in range(ATTEMPTS):
            with socket.socket() as found:
                found.bind((self.host, 0))
                self.port = found.getsockname()[1]
            try:
                self.start()
            except OSError:  # somebody took the port in between
                if attempt == ATTEMPTS - 1:
                    raise
            else:
                break
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def connection(self, **changes: str) -> Connection:
        """How a machine is reached that is this one."""
        known = {"host": self.host, "user": self.user, "host_key": self.host_key}
        known |= {"private_key": self.key_file.read_text()} | changes
        return Connection(port=self.port, **known)

    def start(self) -> None:
        """Starts sshd on its port; returns when it listens.

        Raises:
            OSError: it does not come up; with its log.
        """
        if os.geteuid() == 0:
            PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        lines = [
            *self._options,
            f"ListenAddress {self.host}:{self.port}",
            f"HostKey {self._host_key_file}",
            f"AuthorizedKeysFile {self.authorized_keys}",
            f"AllowUsers {self.user}",
            "PidFile none",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "StrictModes no",  # folders of tests are below a /tmp that all may write to
            "UsePAM no",
            "UseDNS no",
            "PrintMotd no",
            "LogLevel DEBUG1",  # names each forwarded connection
            "Subsystem sftp internal-sftp",
        ]
        self._config.write_text("\n".join(lines) + "\n")
        self.log.touch()
        before = self.log.stat().st_size
        self._process = subprocess.Popen(
            [str(BINARY), "-D", "-f", str(self._config), "-E", str(self.log)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_DEADLINE_S
        while b"Server listening on" not in (said := self.log.read_bytes()[before:]):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise OSError(f"sshd did not come up on port {self.port}: {said.decode()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends sshd and every connection; new connections are refused."""
        if self._process is None:
            return
        connections = self.connections()
        self._process.terminate()
        for each in connections:
            kill(each)
        self._process.wait(5)
        self._process = None

    def cut(self) -> int:
        """Kills the processes of all connections, without a word to the clients; how many."""
        connections = self.connections()
        for each in connections:
            kill(each)
        return len(connections)

    def connections(self) -> list[psutil.Process]:
        """Processes of the current connections, with everything started through them."""
        if self._process is None or self._process.poll() is not None:
            return []
        return psutil.Process(self._process.pid).children(recursive=True)


def kill(process: psutil.Process) -> None:
    """Ends a process that may have ended already."""
    try:
        process.kill()
        process.wait(5)
    except psutil.NoSuchProcess:
        return
