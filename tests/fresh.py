"""A fresh machine: Debian with what README.md asks for, and an ordinary user without anything.

    python3 -m tests.fresh bookworm 'make demo' 'make test' 'make down'

runs these commands, one after the other, in a clone of this checkout. It needs root, git and
mmdebstrap; Python's standard library is enough. It fails when a command fails, and when something
is left afterwards: processes, files outside the home, or a change that `git status` shows. Before
these commands, one of `--without-network` must fail with one line that says why: there, in a home
that cannot be written, and with little room.

All of it runs in namespaces of its own, so mounts and processes end with it, however it ends.
Only the network is shared.
"""

import argparse
import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

CHECKOUT = Path(__file__).resolve().parents[1]
PARENT = Path("/var/tmp")  # a root takes 10 GB, which /tmp in memory may not have
PREFIX = "tyfresh-"
# The user of the machine: an id that the machine below is unlikely to have.
USER, UID = "newcomer", 47011
HOME = Path("/home", USER)
CLONE = HOME / "trainyard"
OUTCOMES = Path(".pytest_cache/outcomes")  # as in tests/parts.py
INSTALL = re.compile(r"^(?:sudo )?apt-get install (?P<packages>[a-z0-9.+ -]+)$", re.MULTILINE)
# Only what login sets.
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
# Settings that give apt, pip and uv another way out of the machine than the usual one.
NETWORK = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX"),
)
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
NETWORK_FILES = (Path("/etc/resolv.conf"), Path("/etc/pip.conf"), BUNDLE)
INSIDE = "--inside"
# Programs that end just after the command that ended them.
PATIENCE_SECONDS = 10
MOST_SHOWN = 20


class FreshError(Exception):
    """The fresh machine is not possible, or something failed in it; the message says what."""


def packages(readme: str) -> list[str]:
    """Return the packages that README.md tells the user to install.

    Raises:
        FreshError: it has no such line, or several.
    """
    found = INSTALL.findall(readme)
    if len(found) != 1:
        raise FreshError(f"README.md has {len(found)} lines `apt-get install …`, not one")
    return [word for word in found[0].split() if not word.startswith("-")]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("suite", help="of Debian: bookworm, trixie")
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="a shell command")
    parser.add_argument("--without-network", metavar="COMMAND", help="which has to fail before")
    parser.add_argument("--outcomes", type=Path, metavar="FOLDER", help="gets those of the tests")
    parser.add_argument("--hold", type=Path, metavar="FILE", help="the last command waits for it")
    parser.add_argument(INSIDE, type=Path, metavar="ROOT", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if parsed.inside:
            machine = _Machine(parsed.inside, parsed.suite)
            if parsed.without_network:
                machine.refuse(parsed.without_network)
            try:
                *first, last = parsed.commands
                for command in first:
                    machine.run(command)
                while parsed.hold and not parsed.hold.exists():
                    time.sleep(1)
                machine.run(last)
            finally:
                if parsed.outcomes:
                    machine.fetch(OUTCOMES, parsed.outcomes)
            machine.look()
            return 0
        if os.geteuid() != 0 or not shutil.which("mmdebstrap") or not shutil.which("git"):
            raise FreshError("a fresh machine needs root, git and mmdebstrap: install them")
        with _folder() as root:
            return _in_namespaces([*arguments, INSIDE, str(root)])
    except FreshError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)  # noqa: T201
    return 1


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Have a folder for the root, and remove the folders of killed runs."""
    for left in PARENT.glob(f"{PREFIX}*"):
        with contextlib.suppress(BlockingIOError), _locked(left):
            shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=PARENT))
    with _locked(folder):
        try:
            folder.chmod(0o755)
            yield folder
        finally:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _in_namespaces(arguments: Sequence[str]) -> int:
    """Run this program as the first process of its own namespaces, and end its processes."""
    namespaces = ("--mount", "--pid", "--ipc", "--mount-proc", "--fork", "--kill-child")
    program = subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "KILL", "unshare", *namespaces),
            *(sys.executable, "-m", "tests.fresh", *arguments),
        ],
        cwd=CHECKOUT,
        start_new_session=True,  # Ctrl-C comes here, and what it ends is ended in order
    )
    try:
        return program.wait()
    finally:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        with contextlib.suppress(OSError):
            for child in children.read_text().split():
                os.kill(int(child), signal.SIGKILL)
        program.wait()


class _Machine:
    """As process 1: makes the machine, runs commands, looks for leftovers."""

    def __init__(self, root: Path, suite: str) -> None:
        started = time.monotonic()
        self.root, self.suite = root, suite
        wanted = packages((CHECKOUT / "README.md").read_text())
        _say(f"Debian {suite} with {' '.join(wanted)}")
        include = f"--include={','.join(wanted)}"
        _must("mmdebstrap", "--quiet", "--variant=minbase", include, suite, str(root))
        self._finish()
        self.before = self._files()
        _say(f"made in {time.monotonic() - started:.0f} s")

    def _finish(self) -> None:
        """Make a running machine of an installed Debian, with a user and the checkout's clone."""
        root = self.root
        _must("mount", "--bind", str(root), str(root))  # as on a machine, / is a mount
        _must("mount", "-t", "proc", "proc", f"{root}/proc")
        _must("mount", "--rbind", "/sys", f"{root}/sys")
        _must("mount", "--rbind", "/dev", f"{root}/dev")
        _must("mount", "-t", "tmpfs", "tmpfs", f"{root}/dev/shm")
        for file in NETWORK_FILES:
            if file.exists():
                target = root / file.relative_to("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)  # it may be a link that leads out of the root
                shutil.copy(file, target)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        user = ("useradd", "--create-home", "--shell", "/bin/bash", "--uid", str(UID), USER)
        _must("chroot", str(root), *user)
        clone = root / CLONE.relative_to("/")
        _must("git", "clone", "--quiet", "--no-hardlinks", str(CHECKOUT), str(clone))
        _must("chown", "--recursive", f"{UID}:{UID}", str(clone))

    def run(self, command: str) -> None:
        """Run a command of the user, which must succeed."""
        started = time.monotonic()
        _say(f"$ {command}")
        code = _wait(self._as_user(command))
        _say(f"{command}: {time.monotonic() - started:.0f} s")
        if code:
            raise FreshError(f"{command!r} ended with {code} on a fresh Debian {self.suite}")

    def refuse(self, command: str) -> None:
        """Run a command of the user where it must fail and say why in one line."""
        home = self.root / HOME.relative_to("/")
        os.chown(home, 0, 0)
        self._refuse(command, "in a home of root", f"{HOME} cannot be written by user {UID}, and")
        os.chown(home, UID, UID)
        cache = home / ".cache"
        cache.mkdir()
        room = f"size={3 * 10**9},uid={UID}"
        _must("mount", "-t", "tmpfs", "-o", room, "tmpfs", str(cache))
        short = f"{HOME}/.cache/uv has 3.0 GB free, and the packages need 6.0 GB: make room"
        self._refuse(command, "with 3 GB for the packages", short)
        _must("umount", str(cache))
        cache.rmdir()
        self._refuse(command, "without a network", "cannot be reached", "unshare", "--net")

    def _refuse(self, command: str, where: str, reason: str, *inside: str) -> None:
        _say(f"$ {command} ({where})")
        with tempfile.TemporaryFile("w+") as said:
            code = _wait([*inside, *self._as_user(command)], said)
            said.seek(0)
            text = said.read()
        errors = [line for line in text.splitlines() if re.match("(?i)error|warning", line)]
        if not code or len(errors) != 1 or reason not in errors[0]:
            raise FreshError(f"{command!r} {where} ended with {code} and said:\n{text}")
        _say(errors[0])

    def fetch(self, folder: Path, target: Path) -> None:
        """Copy a folder of the clone out, if it is there."""
        found = self.root / CLONE.relative_to("/") / folder
        if found.exists():
            shutil.copytree(found, target, dirs_exist_ok=True)

    def look(self) -> None:
        """Look for leftovers of the user's commands.

        Raises:
            FreshError: something is left.
        """
        status = subprocess.run(
            self._as_user("git status --porcelain"), capture_output=True, text=True, check=False
        )
        found = {
            "processes": _processes(),
            "files": sorted(self._files() - self.before),
            "changes": (status.stdout + status.stderr).splitlines(),
        }
        left = [f"{len(each)} {kind}: {each[:MOST_SHOWN]}" for kind, each in found.items() if each]
        if left:
            raise FreshError(f"on a fresh Debian {self.suite} are left {'; '.join(left)}")
        _say("nothing is left")

    def _as_user(self, command: str) -> list[str]:
        variables = {"HOME": HOME, "USER": USER, "LOGNAME": USER, "SHELL": "/bin/bash"}
        variables |= {"PATH": PATH}
        if BUNDLE.exists():
            variables |= {"SSL_CERT_FILE": BUNDLE, "PIP_CERT": BUNDLE}
        variables |= {name: os.environ[name] for name in NETWORK if os.environ.get(name)}
        return [
            *("chroot", f"--userspec={UID}:{UID}", str(self.root), "env", "-i"),
            *(f"{name}={value}" for name, value in variables.items()),
            *("sh", "-c", f"cd {CLONE} && {command}"),
        ]

    def _files(self) -> set[str]:
        """Return the user's files outside the home, the only others that the user can make."""
        elsewhere = {str(self.root / name) for name in ("proc", "sys", HOME.relative_to("/"))}
        found = set()
        for folder, names, files in os.walk(self.root):
            names[:] = [name for name in names if f"{folder}/{name}" not in elsewhere]
            for name in (*names, *files):
                with contextlib.suppress(FileNotFoundError):  # it may be on its way out
                    if os.lstat(f"{folder}/{name}").st_uid == UID:
                        found.add(f"{folder}/{name}".removeprefix(str(self.root)))
        return found


def _processes() -> list[str]:
    """Return the processes next to this one that do not end soon."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:  # the first process is everyone's parent
                pass
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and entry.name != "1":
                with contextlib.suppress(OSError):
                    found.append((entry / "cmdline").read_text().replace("\0", " ") or entry.name)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _wait(command: Sequence[str], said: IO[str] | None = None) -> int:
    """Run a command to its end, as the parent of all whose parents are gone; its exit code."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    while True:
        ended, status = os.wait()
        if ended == process.pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


def _must(*command: str) -> None:
    if code := _wait(command):
        raise FreshError(f"{' '.join(command)} ended with {code}")


def _say(text: str) -> None:
    print(f"-- fresh machine: {text}", flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
