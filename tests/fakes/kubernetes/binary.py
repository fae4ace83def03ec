"""The program `hk`: all parts of Kubernetes in one, made once and kept for the next run.

Go builds it in about 16 processor minutes. Where TRAINYARD_KUBERNETES names a folder that has it
compressed (hk.xz), and it is the one that these sources gave, it is unpacked instead.
"""

import fcntl
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from infra.hosts import local

SOURCES = Path(__file__).parent / "hk"
FOLDER = "TRAINYARD_KUBERNETES"
# Of hk from another build of these versions of Kubernetes' modules: what is unpacked has this sum.
SHA256 = "b326f17df1245363209bf3e8700a3e93a87f76b430acde2943c4711dfc45251d"
CHUNK = 1 << 20  # bytes
LAST_CHARACTERS = 2000
HEARTBEAT_SECONDS = 30.0


class NoKubernetesError(Exception):
    """A cluster cannot be had here; the message says why, and what would help."""


def path() -> Path:
    """Return where the program is kept: of other sources it is another one."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir())))
    return local.cache_folder() / "kubernetes" / f"hk-{digest.hexdigest()[:8]}"


def obtain() -> Path:
    """Return the program, which is made unless it is there. Runs that come together make it once.

    Raises:
        NoKubernetesError: it can be neither unpacked nor built.
    """
    program = path()
    program.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=program.parent) as folder:
                made = Path(folder) / "hk"
                if not _unpack(made):
                    _build(made)
                made.chmod(0o700)
                made.replace(program)
    return program


def _unpack(program: Path) -> bool:
    """Unpack hk.xz where it is and is the right one; whether it was."""
    if not (folder := os.environ.get(FOLDER)):
        return False
    packed = Path(folder) / "hk.xz"
    digest = hashlib.sha256()
    try:
        with lzma.open(packed) as source, program.open("wb") as target:
            while part := source.read(CHUNK):
                digest.update(part)
                target.write(part)
    except (OSError, EOFError, lzma.LZMAError) as error:
        _say(f"{packed} cannot be unpacked ({error}): Go builds hk")
        return False
    if digest.hexdigest() != SHA256:
        _say(f"{packed} has the SHA-256 {digest.hexdigest()}, not {SHA256}: Go builds hk")
        return False
    return True


def _build(program: Path) -> None:
    if not shutil.which("go"):
        raise NoKubernetesError(
            f"no Go on PATH, which builds Kubernetes: install Go 1.24 or later, or let {FOLDER} "
            "name a folder with hk.xz"
        )
    started = time.monotonic()
    _say("hk (Kubernetes): go build, once; it takes 16 processor minutes")
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    with tempfile.TemporaryFile() as output:
        build = subprocess.Popen(
            ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", f"-o={program}", "."],
            cwd=SOURCES,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while not _ended(build):
                _say(f"hk: {time.monotonic() - started:.0f} s")
        finally:
            build.kill()
            build.wait()
        if build.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")[-LAST_CHARACTERS:]
            raise NoKubernetesError(f"go build of {SOURCES} failed:\n{said}")
    _say(f"hk: built in {time.monotonic() - started:.0f} s")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(HEARTBEAT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
