"""Runs the engine's commands in forks of this process, which has imported all of it once.

A command in a process of its own spends most of its time on imports. Reads requests from a socket,
JSON `{"argv", "folder", "environment", "rounds", "moment"}`, each with two descriptors: where the
fork tells its pid and then its exit status, a line each, and where it prints. With a moment the
fork is killed (SIGKILL) at that one of the moments just before and just after anything becomes
visible outside: a rename or a removal of a file, by the engine or by a provider.
"""

import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from engine import cli, crypto
from tests import quick

ROOT = Path(__file__).parents[3]
REQUEST_BYTES = 1 << 17
# Modules that commands import late, and the imports of the tests' programs.
IMPORTED = ("engine.operation", "engine.command.ssh", "engine.docker.connection")
IMPORTED += ("pulumi_command", "pulumi_docker")


class Command:
    """A command in a fork: as much of `subprocess.Popen` as tests use."""

    def __init__(self, told, printed):
        self._told = os.fdopen(told)
        self.stdout = os.fdopen(printed, errors="replace")
        self.pid = int(self._told.readline())
        self.returncode = None

    def poll(self):
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("engine", timeout)
            self.returncode = int(self._told.readline())
        return self.returncode

    def communicate(self, timeout=None):
        """Its output and nothing, as standard error is the same stream."""
        begun, said = time.monotonic(), []
        reader = threading.Thread(target=lambda: said.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired("engine", timeout)
        self.wait(timeout and max(0.0, begun + timeout - time.monotonic()))
        return said[0], None

    def send_signal(self, number):
        os.kill(self.pid, number)

    def close(self):
        """Kill its running processes."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self.wait()
        self.stdout.close()
        self._told.close()


class Server:
    """The process that forks."""

    def __init__(self):
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.engine.forked", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdout=subprocess.DEVNULL,
            )

    def start(self, argv, folder, environment, *, moment=0):
        """Start a command of the engine; it leads a process group."""
        told, tell = os.pipe()
        printed, output = os.pipe()
        request = {
            "argv": argv,
            "folder": str(folder),
            "environment": environment,
            "rounds": quick.rounds(environment),
            "moment": moment,
        }
        socket.send_fds(self._socket, [json.dumps(request).encode()], [tell, output])
        os.close(tell)
        os.close(output)
        return Command(told, printed)

    def close(self):
        self._socket.close()  # with this it ends
        self._process.wait()


def _die_at(moment):
    lock = threading.Lock()
    seen = 0

    def count():
        nonlocal seen
        with lock:
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(real):
        def call(*arguments, **options):
            count()
            result = real(*arguments, **options)
            count()
            return result

        return call

    Path.replace = counted(Path.replace)
    Path.unlink = counted(Path.unlink)


def _run(request, tell, output):
    """Be the command; the exit code."""
    os.setsid()
    os.write(tell, f"{os.getpid()}\n".encode())
    os.close(tell)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ |= request["environment"]
    crypto.ROUNDS = request["rounds"]
    if request["moment"]:
        _die_at(request["moment"])
    try:
        code = cli.main(request["argv"])
        sys.stdout.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 99
    return code


def _attend(request, tell, output):
    """Fork the command and tell its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os._exit(_run(request, tell, output))
    os.close(output)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(tell, f"{code}\n".encode())


def main():
    for name in IMPORTED:
        importlib.import_module(name)
    requests = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the attending processes
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 2)
        if not message:
            return
        if os.fork() == 0:
            requests.close()
            _attend(json.loads(message), *descriptors)
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    main()
