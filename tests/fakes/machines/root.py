"""Root file systems of machines: Debian's packages, made once and kept for the next run."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.go_tools import CACHE
from tests.images import build

GUEST = Path(__file__).parent / "guest"
# What of this folder goes where, and may be executed or not.
FILES = {
    "boot": ("/usr/local/sbin/boot", 0o755),
    "uv-cache": ("/usr/local/sbin/uv-cache", 0o755),
    "machine.cfg": ("/etc/cloud/cloud.cfg.d/90_machine.cfg", 0o644),
}
PACKAGES = (
    *("ca-certificates", "cloud-init", "cron", "curl", "iproute2", "netcat-openbsd"),
    *(
        "openssh-server",
        "procps",
        "prometheus",
        "prometheus-alertmanager",
        "python3",
        "python3-venv",
    ),
    *("rsync", "sudo", "tini"),
)
WITH_DOCKER = (*PACKAGES, "docker.io", "iptables")
# systemd is the first process of these, and cloud-init and sshd are its services.
WITH_SYSTEMD = (
    *("ca-certificates", "cloud-init", "dbus-user-session", "iproute2", "libpam-systemd"),
    *("openssh-server", "procps", "python3", "python3-venv", "sudo", "systemd-sysv"),
)
SUITE = "bookworm"
LAST_CHARACTERS = 2000


class NoMachinesError(Exception):
    """Machines cannot be had here; the message says why, and what would help."""


@contextlib.contextmanager
def held(packages: tuple[str, ...]) -> Iterator[Path]:
    """Have the root file system with these packages, which stays while it is held.

    Raises:
        NoMachinesError: it could not be made.
    """
    kept = CACHE / "machines"
    kept.mkdir(parents=True, exist_ok=True)
    kind = {WITH_DOCKER: "docker", WITH_SYSTEMD: "systemd"}.get(packages, "plain")
    path = kept / f"{kind}-{_digest(packages)}"
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not path.exists():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():  # another may have made it while this one waited
                _make(path, packages)
                _remove_others(path, kind)
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield path


def _make(path: Path, packages: tuple[str, ...]) -> None:
    if not shutil.which("mmdebstrap"):
        raise NoMachinesError(
            "no mmdebstrap on PATH, which makes machines of Debian's packages: install mmdebstrap"
        )
    for left in path.parent.glob(f"{path.name}-*"):  # of a run that was killed
        shutil.rmtree(left)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{path.name}-", dir=path.parent))
    with build._timed(f"root file system {path.name}", "mmdebstrap"):
        include = f"--include={','.join(packages)}"
        done = subprocess.run(
            # In namespaces: what it mounts, and all that it started, ends with it.
            [
                *("unshare", "--mount-proc", "--pid", "--fork", "--kill-child"),
                *("mmdebstrap", "--quiet", "--variant=minbase", include, SUITE, unfinished),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NoMachinesError(f"mmdebstrap failed: {done.stderr[-LAST_CHARACTERS:]}")
        _finish(unfinished)
        unfinished.rename(path)


def _finish(root: Path) -> None:
    """Make of an installed Debian an image: nothing of one machine's own, and the way out."""
    for name, (place, mode) in FILES.items():
        copy = root / place.lstrip("/")
        copy.write_bytes((GUEST / name).read_bytes())
        copy.chmod(mode)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()  # cloud-init makes each machine's
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "etc/environment").write_text(_environment())
    for certificate in build.OWN_CERTIFICATES.glob("*.crt"):
        shutil.copy(certificate, root / str(build.OWN_CERTIFICATES).lstrip("/"))
    subprocess.run(["chroot", root, "update-ca-certificates"], capture_output=True, check=True)


def _environment() -> str:
    """Return /etc/environment, which PAM gives to every session, by SSH, sudo or cron."""
    variables = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SSL_CERT_FILE": str(build.BUNDLE),
        "PIP_CERT": str(build.BUNDLE),
        "UV_LINK_MODE": "symlink",  # an environment is links into the cache, which is mounted
    }
    for name in build.NETWORK:
        value = os.environ.get(name)
        if value and not build.CREDENTIALS.search(value):
            variables[name] = value
    return "".join(f'{name}="{value}"\n' for name, value in variables.items())


def _digest(packages: tuple[str, ...]) -> str:
    """Return what a root file system is known by: all that decides how it comes out."""
    files = [
        *sorted(GUEST.iterdir()),
        *sorted(build.OWN_CERTIFICATES.glob("*.crt")),
        Path(__file__),
    ]
    inputs = [SUITE, packages, _environment(), [file.read_text() for file in files]]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]


def _remove_others(path: Path, kind: str) -> None:
    """Remove those of other recipes, unless a machine stands on them."""
    for lock_file in path.parent.glob(f"{kind}-*.lock"):
        if lock_file.stem == path.name:
            continue
        with lock_file.open("w") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock_file.with_suffix(""), ignore_errors=True)
