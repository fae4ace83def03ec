"""Programs that tests build with Go, once: each folder here has the go.mod and go.sum of one.

    python -m tests.go_tools [NAME…]    builds all of them, or those named, ahead of the tests

A folder with a main.go is built itself, of others the package that their go.mod names as `tool`.
Of other sources or flags it is another program in the cache.
"""

import fcntl
import hashlib
import lzma
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from infra.machines import local

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainyard-tests"
# Where this names a folder, NAME.xz there is unpacked if it is what is in PACKED.
PACKED_FOLDER = "TRAINYARD_KUBERNETES"
PACKED = {"hk": "b326f17df1245363209bf3e8700a3e93a87f76b430acde2943c4711dfc45251d"}  # SHA-256
# Most cost less to run than to optimize. Of the CLI, only the keys of its states take long.
OPTIMIZED = {"hk": ["all"], "pulumi": ["crypto/...", "golang.org/x/crypto/..."]}  # packages
# The CLI tells plugins its version, which its release build sets.
VERSIONS = {"pulumi": "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"}
# What Kubernetes' programs call their version, also those that are PACKED, and the module
# that tells it: Kueue ends if it cannot read it.
UNSET, VERSION_OF = b"v0.0.0-master+$Format:%H$", {"hk": "k8s.io/kubernetes"}
CHUNK = 1 << 20  # bytes
LAST_CHARACTERS = 2000
HEARTBEAT_SECONDS = 30.0


class GoToolError(Exception):
    """A program cannot be built; the message says why."""


class NoGoError(GoToolError):
    """Go is missing or too old for a program."""


def names() -> list[str]:
    """Return the names of all programs."""
    return sorted(file.parent.name for file in HERE.glob("*/go.mod"))


def obtain(name: str, *, optimized: bool = False) -> Path:
    """Return a program, which is made unless it is there. Runs that come together make it once.

    Args:
        name: name of the program.
        optimized: whether all of it is, as in a release; benchmarks compare with such a one.

    Raises:
        NoGoError: Go is missing or too old.
        GoToolError: Go cannot build it; with the end of what it says.
    """
    sources = HERE / name
    flags = _flags(name, ["all"] if optimized else OPTIMIZED.get(name, []))
    version = _version(name)
    digest = hashlib.sha256(" ".join(flags).encode() + version)
    for file in sorted(sources.iterdir()):
        digest.update(file.read_bytes())
    program = CACHE / f"{name}-{digest.hexdigest()[:8]}"
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    with program.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                made = Path(folder) / name
                if not _unpack(made):
                    _build(sources, flags, made)
                if version:
                    made.write_bytes(made.read_bytes().replace(UNSET, version))
                made.chmod(0o700)
                made.replace(program)
    return program


def _flags(name: str, optimized: list[str]) -> list[str]:
    """Arguments of `go build`: flags, and the package; the packages that are optimized."""
    module = (HERE / name / "go.mod").read_text()
    package = tool[1] if (tool := re.search(r"^tool (\S+)", module, re.MULTILINE)) else "."
    link = "-s -w"
    if variable := VERSIONS.get(name):
        required = re.findall(r"^\s*(\S+) (v\S+)", module, re.MULTILINE)
        _, version = max(each for each in required if package.startswith(f"{each[0]}/"))
        link += f" -X {variable}={version}"
    compile_ = [] if optimized == ["all"] else ["-gcflags=all=-N -l"]
    compile_ += [f"-gcflags={each}=" for each in optimized if each != "all"]
    return ["-trimpath", "-buildvcs=false", *compile_, f"-ldflags={link}", package]


def _version(name: str) -> bytes:
    """Return what replaces UNSET in a program, as long as that is; b"" for nothing."""
    if not (of := VERSION_OF.get(name)):
        return b""
    found = re.search(rf"^\s*{of} (v\S+)", (HERE / name / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return f"{found[1]}+".encode().ljust(len(UNSET), b"0")


def _unpack(program: Path) -> bool:
    """Unpack a program where it is packed and is the right one; whether it was."""
    name = program.name
    if not (folder := os.environ.get(PACKED_FOLDER)) or name not in PACKED:
        return False
    packed = Path(folder) / f"{name}.xz"
    digest = hashlib.sha256()
    try:
        with lzma.open(packed) as source, program.open("wb") as target:
            while part := source.read(CHUNK):
                digest.update(part)
                target.write(part)
    except (OSError, EOFError, lzma.LZMAError) as error:
        _say(f"{packed} cannot be unpacked ({error}): Go builds {name}")
        return False
    if (found := digest.hexdigest()) != PACKED[name]:
        _say(f"{packed} has the SHA-256 {found}, not {PACKED[name]}: Go builds {name}")
        return False
    return True


def _build(sources: Path, flags: list[str], program: Path) -> None:
    name = program.name
    required = re.search(r"^go (\d+)\.(\d+)", (sources / "go.mod").read_text(), re.MULTILINE)
    assert required is not None
    if (local.go_version() or (0, 0)) < (int(required[1]), int(required[2])):
        raise NoGoError(f"no Go {required[1]}.{required[2]} or later on PATH, which builds {name}")
    started = time.monotonic()
    _say(f"{name}: go build, once; it takes minutes")
    # Without cgo it needs no C compiler. Go's own scratch goes with the program's: an interrupt
    # leaves none.
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOFLAGS": "",
        "GOTMPDIR": str(program.parent),
    }
    with tempfile.TemporaryFile() as output:
        build = subprocess.Popen(
            ["go", "build", f"-o={program}", *flags],
            cwd=sources,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while not _ended(build):
                _say(f"{name}: {time.monotonic() - started:.0f} s")
        finally:
            build.kill()
            build.wait()
        if build.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")[-LAST_CHARACTERS:]
            raise GoToolError(f"go build of {sources} failed:\n{said}")
    _say(f"{name}: built in {time.monotonic() - started:.0f} s")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(HEARTBEAT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
