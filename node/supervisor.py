"""One supervisord and the programs it runs, below one folder. Knows nothing of Pulumi.

supervisord keeps programs running, restarts them and rotates their logs. This module writes its
files, calls its XML-RPC interface over a Unix socket, and ends the processes that a killed
supervisord left. Folder and socket are checked before each call: another user may have made them.

    <folder>/.trainyard                 the mark of its stack
    <folder>/supervisord.conf, supervisor.sock, supervisord.pid, supervisord.log
    <folder>/conf.d/<program>.conf      its section
    <folder>/<program>/run              its environment and command, as a shell script
    <folder>/<program>/files/           its configuration and secret files, 0600
    <folder>/<program>/log              its output
"""

import contextlib
import os
import resource
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import time
import xmlrpc.client
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from supervisor import xmlrpc as supervisor_xmlrpc

from node import folders, owned_processes
from node.folders import FolderMark, write_private
from node.life import ServiceError

LOCKED = Path(__file__).with_name("locked_supervisord.py")
CODE = LOCKED.parents[1]  # where `node` is imported from
START_SECONDS = 20.0  # for supervisord itself
POLL_SECONDS = 0.1
STOP_POLL_SECONDS = 0.02
OPEN_FILES = 65536  # Ray and the object store keep many sockets open
LOOPBACK = "localhost,127.0.0.1"
SETTING = "stateDir"  # names the folder
LOG_BYTES = "10MB"
LOG_BACKUPS = 2
TEMP = "tmp"  # each program's own: leftovers of a killed process go with the program
RETRIES = 1_000_000  # a program is restarted for as long as its stack is up

# Programs inherit these from the environment of `up`: nothing that could be a secret of the user,
# such as the stack's passphrase or cloud credentials.
INHERITED = frozenset(
    [
        "HOME",
        "LANG",
        "LOGNAME",
        "TMPDIR",
        "TZ",
        "USER",
        "LD_LIBRARY_PATH",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ]
)
# Settings of GPUs, of threads, and of how this user installs packages, as jobs do too.
INHERITED_PREFIXES = (
    "LC_",
    "CUDA_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "PIP_",
    "UV_",
)

CONFIG = """\
[unix_http_server]
file={folder}/supervisor.sock
chmod=0600

[supervisord]
identifier={identifier}
logfile={folder}/supervisord.log
logfile_maxbytes=1MB
logfile_backups=1
pidfile={folder}/supervisord.pid
childlogdir={folder}
umask=077
minfds={files}

[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface

[supervisorctl]
serverurl=unix://{folder}/supervisor.sock

[include]
files={folder}/conf.d/*.conf
"""

# stopasgroup is off: `ray start` ends its processes in order, and processes that are told all
# at once wait 20 s for one another. A group that does not end in time is killed.
SECTION = """\
[program:{name}]
command=/bin/sh {folder}/{name}/run
directory={folder}/{name}
autostart={always}
autorestart={always}
startsecs=1
startretries={retries}
stopasgroup=false
killasgroup=true
stopsignal={stop_signal}
stopwaitsecs={stop_seconds}
redirect_stderr=true
stdout_logfile={folder}/{name}/log
stdout_logfile_maxbytes={log_bytes}
stdout_logfile_backups={log_backups}
"""


class _Connection(supervisor_xmlrpc.UnixStreamHTTPConnection):  # type: ignore[misc]
    """A connection to a socket that a process of this user listens on."""

    def connect(self) -> None:
        super().connect()
        peer = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if (uid := struct.unpack("3i", peer)[1]) != os.getuid():
            self.close()
            raise PermissionError(f"a process of user {uid} listens on {self.socketfile}")


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a program: a change of any field restarts it.

    Attributes:
        command: executable and arguments.
        environment: variables on top of the inherited ones.
        files: content by file name, each written at mode 0600.
        folders: absolute folders that must exist.
        stop_seconds: how long it may take to end before it is killed; 0 kills it at once.
        always: whether it runs for as long as the stack is up; else others start and stop it.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, str]
    folders: Sequence[str]
    stop_seconds: int
    always: bool = True


@dataclass(frozen=True, kw_only=True)
class Supervisor:
    """The supervisord of a folder.

    Attributes:
        folder: absolute path; its length bounds the sockets of the programs below it.
        identifier: what supervisord calls itself.
        data: folder of data that outlives the stack, locked as well; None for none.
    """

    folder: Path
    mark: FolderMark
    identifier: str = "trainyard"
    data: Path | None = None

    @property
    def url(self) -> str:
        """URL of the socket; supervisord also puts it into the environment of every program."""
        return f"unix://{self.folder}/supervisor.sock"

    def refuse(self) -> bool:
        """Raise if the folder, or a process that runs from it, is another stack's.

        Returns:
            Whether the folder is the stack's though it bears no mark: a cleaner removed that, and
            the stack's processes go on writing there.

        Raises:
            ServiceError: it is.
        """
        known = self._known()
        folders.refuse(self.folder, self.mark, SETTING, known=known)
        owned_processes.refuse_foreign(self.url, self.mark)
        return known

    def start(self, *, known: bool = False) -> None:
        """Start supervisord, unless it answers already.

        `known` is what `refuse` returned before the processes were ended.

        Raises:
            ServiceError: the folder is not the stack's, or supervisord does not come up.
        """
        folders.take(self.folder, self.mark, SETTING, known=known)
        if self.alive():
            return
        self.sweep()
        shutil.rmtree(self.folder / "conf.d", ignore_errors=True)
        (self.folder / "conf.d").mkdir(mode=0o700)
        (self.folder / "supervisor.sock").unlink(missing_ok=True)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        files = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        config = self.folder / "supervisord.conf"
        write_private(
            config,
            CONFIG.format(folder=self.folder, identifier=self.identifier, files=files),
        )
        locked = [self.folder, *([self.data] if self.data else [])]
        done = subprocess.run(
            # The supervisord of this environment, and no module next to the script's file.
            [sys.executable, "-P", LOCKED, config, *locked],
            env=inherited_environment() | owned_processes.environment(self.url, self.mark),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            umask=0o077,
            check=False,
        )
        deadline = time.monotonic() + START_SECONDS
        while done.returncode == 0 and time.monotonic() < deadline:
            if self.alive():
                return
            time.sleep(POLL_SECONDS)
        log = done.stdout.strip() or "\n".join(tail(self.folder / "supervisord.log"))
        raise ServiceError(f"supervisord did not start in {self.folder}:\n{log}")

    def distrust(self) -> str:
        """Return why the folder is not the stack's, "" if it is."""
        return folders.foreign(self.folder, self.mark)

    def alive(self) -> bool:
        try:
            with self._rpc() as rpc:
                return bool(rpc.getState()["statename"] == "RUNNING")
        except (OSError, xmlrpc.client.Error):
            return False

    def checkout(self) -> Path | None:
        """Return the checkout whose supervisord runs here, None without one."""
        with contextlib.suppress(psutil.Error):
            if pid := self._pid():
                command = map(Path, psutil.Process(pid).cmdline())
                return next((path.parents[1] for path in command if path.name == LOCKED.name), None)
        return None

    def stop(self) -> str:
        """End supervisord and all its processes, and remove the folder. Idempotent.

        Returns:
            Why the folder is left, "" if it is gone.
        """
        known = self._known()
        pid = self._pid()
        patience = 0.0  # without programs it has nothing to end, and takes seconds to see that
        with contextlib.suppress(OSError, xmlrpc.client.Error), self._rpc() as rpc:
            if rpc.getAllProcessInfo():
                rpc.shutdown()
                # It first ends the programs that are left, each within its own time.
                patience = self._longest_stop() + START_SECONDS
        if pid is not None:
            _wait_or_kill(pid, patience)
        self.sweep()
        if known and self.folder.exists():
            folders.take(self.folder, self.mark, SETTING, known=True)
        return folders.remove(self.folder, self.mark)

    def state(self, name: str) -> dict[str, Any] | None:
        """Return supervisord's information on a program, None if it has no such program.

        Raises:
            OSError: supervisord does not answer.
        """
        with self._rpc() as rpc:
            try:
                return dict(rpc.getProcessInfo(name))
            except xmlrpc.client.Fault:
                return None

    def running(self, name: str) -> bool:
        """Return whether a program runs; a supervisord that is gone runs none."""
        try:
            state = self.state(name)
        except OSError:
            return False
        return state is not None and state["statename"] in ("RUNNING", "STARTING")

    def matches(self, definition: Definition) -> bool:
        """Return whether a program's files match its definition."""
        expected = _files(self.folder, definition)
        try:
            return not self.distrust() and all(
                path.read_text() == content for path, content in expected.items()
            )
        except OSError:
            return False

    def add(self, definition: Definition) -> None:
        """Write a program's files and start it, unless others do so.

        One of that name is stopped and removed first.

        A changed program too: supervisord reads a changed section only then.

        Raises:
            ServiceError: supervisord does not answer, or does not take the program.
        """
        name = definition.name
        with self._connected() as rpc:
            self._forget(rpc, name)
            _write(self.folder, definition)
            rpc.reloadConfig()
            rpc.addProcessGroup(name)

    def remove(self, name: str) -> None:
        """Stop a program and all its processes, and remove its files. Idempotent."""
        with contextlib.suppress(OSError), self._rpc() as rpc:
            self._forget(rpc, name)
        self.sweep(name)
        if not self.distrust():
            (self.folder / "conf.d" / f"{name}.conf").unlink(missing_ok=True)
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def finish(self, last: str) -> None:
        """End all programs and their processes, then supervisord with the last one.

        Files stay, so that logs can be read.

        Raises:
            OSError: supervisord does not answer.
        """
        with self._rpc() as rpc:
            for each in rpc.getAllProcessInfo():
                if each["group"] != last:
                    self._forget(rpc, each["group"])
            rpc.shutdown()

    def sweep(self, name: str | None = None, family: Sequence[psutil.Process] = ()) -> None:
        """Kill leftover processes of a program, or all of a supervisord that does not answer.

        `name` is None for all and supervisord itself; it is known to have started the family.

        Raises:
            ServiceError: a process survives SIGKILL.
        """
        owned_processes.end(
            lambda: [
                *{
                    *owned_processes.of_supervisord(self.url, self.mark, name),
                    *filter(owned_processes.lives, family),
                }
            ],
            self.folder,
        )

    def _known(self) -> bool:
        """Whether the folder is the stack's though it bears no mark: its processes run from it."""
        found = folders.read_mark(self.folder)
        return found is None and bool(owned_processes.of_supervisord(self.url, self.mark))

    def _forget(self, rpc: Any, name: str) -> None:
        # Noted before it is stopped: orphans without any variables leave no trace.
        family = owned_processes.of_supervisord(self.url, self.mark, name)
        with contextlib.suppress(xmlrpc.client.Fault):
            rpc.stopProcessGroup(name, False)
            # It looks for ended children once a second, and whenever it is asked something.
            while rpc.getProcessInfo(name)["statename"] == "STOPPING":
                time.sleep(STOP_POLL_SECONDS)
        self.sweep(name, family)
        with contextlib.suppress(xmlrpc.client.Fault):
            rpc.removeProcessGroup(name)

    @contextlib.contextmanager
    def _rpc(self) -> Iterator[Any]:
        if reason := self.distrust():
            raise PermissionError(f"{self.folder} {reason}")
        transport = supervisor_xmlrpc.SupervisorTransport(None, None, self.url)
        transport._get_connection = self._connection  # its only way
        try:
            # The host is never used: the transport connects to the socket.
            yield xmlrpc.client.ServerProxy("http://localhost", transport=transport).supervisor
        finally:
            transport.close()

    def _connection(self) -> _Connection:
        connection = _Connection("localhost")
        connection.socketfile = str(self.folder / "supervisor.sock")
        return connection

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        try:
            with self._rpc() as rpc:
                yield rpc
        except OSError as error:
            raise ServiceError(
                f"supervisord of {self.folder} does not answer ({error}): it was killed, or this "
                "machine was restarted. Run `up` again to bring the services back"
            ) from error
        except xmlrpc.client.Fault as fault:
            raise ServiceError(f"supervisord of {self.folder}: {fault.faultString}") from fault

    def _pid(self) -> int | None:
        if self.distrust():
            return None
        try:
            pid = int((self.folder / "supervisord.pid").read_text())
            command = psutil.Process(pid).cmdline()
        except (OSError, ValueError, psutil.Error):
            return None
        return pid if str(self.folder / "supervisord.conf") in command else None

    def _longest_stop(self) -> float:
        sections = [path.read_text() for path in (self.folder / "conf.d").glob("*.conf")]
        waits = [
            float(line.split("=")[1])
            for section in sections
            for line in section.splitlines()
            if line.startswith("stopwaitsecs=")
        ]
        return max(waits, default=0.0)


def tail(path: Path, lines: int = 20) -> list[str]:
    """Return the last lines of a file, none if it cannot be read."""
    try:
        with path.open(errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
    except OSError:
        return []


def inherited_environment() -> dict[str, str]:
    """Return the variables that programs inherit."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    # Jobs find the services of this machine without the proxy that their user has for the rest.
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if any(name.lower() in {"http_proxy", "https_proxy"} for name in kept):
        kept |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, (direct, LOOPBACK))))
    # Jobs call `python`, and need this environment's.
    path = os.environ.get("PATH", os.defpath)
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}"}


def _files(folder: Path, definition: Definition) -> dict[Path, str]:
    # A script and not supervisord's own `environment=` and `command=`: those cut off what follows
    # " ;" and know no way to write a value that holds both kinds of quotes.
    own = folder / definition.name
    variables = [
        f"export {name}={shlex.quote(value)}"
        for name, value in sorted({"TMPDIR": str(own / TEMP), **definition.environment}.items())
    ]
    script = "\n".join([*variables, f"exec {shlex.join(definition.command)}", ""])
    files = {own / "files" / name: content for name, content in definition.files.items()}
    section = SECTION.format(
        name=definition.name,
        folder=folder,
        always=str(definition.always).lower(),
        retries=RETRIES,
        stop_signal="TERM" if definition.stop_seconds else "KILL",
        stop_seconds=max(1, definition.stop_seconds),
        log_bytes=LOG_BYTES,
        log_backups=LOG_BACKUPS,
    )
    return files | {
        own / "run": script,
        folder / "conf.d" / f"{definition.name}.conf": section,
    }


def _write(folder: Path, definition: Definition) -> None:
    own = folder / definition.name
    shutil.rmtree(own / "files", ignore_errors=True)
    own.mkdir(mode=0o700, exist_ok=True)
    (own / "files").mkdir(mode=0o700)
    (own / TEMP).mkdir(mode=0o700, exist_ok=True)
    for path in definition.folders:
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
    for file, content in _files(folder, definition).items():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # of modules in packages
        write_private(file, content)


def _wait_or_kill(pid: int, seconds: float) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            process.kill()
            while process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(POLL_SECONDS)
