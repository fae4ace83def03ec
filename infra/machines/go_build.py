"""Builds programs with Go once, into a cache that all stacks of this user share.

Each program has its digest next to it. One that does not match it is rebuilt, not run.

An object store is built by the `up` of a stack that asks for one, the programs of monitoring by
`make monitoring`: it runs this module before there are packages.
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from infra.machines import local
from infra.machines.go_programs import MONITORING, NOTE, TOOLS, GoProgram
from trainyard.access import terminal

HEARTBEAT_SECONDS = 10.0
LAST_LINES = 20
INTERRUPTED = 130  # what shells report after Ctrl-C


class BuildError(Exception):
    """Go could not build the program, or the cache is not ours; the message says what to do."""


def main() -> None:
    """Build Prometheus, Alertmanager and their tools."""
    # As Ctrl-C does: Go is ended and its folder removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _monitoring()
    except BuildError as error:
        sys.exit(terminal.clean_lines(f"error: {error}"))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _monitoring() -> None:
    for program in (MONITORING | TOOLS).values():
        if not program.obtainable:
            found = local.go_version()
            has = f"Go {found[0]}.{found[1]}" if found else "no Go"
            least = ".".join(map(str, program.go))
            raise BuildError(
                f"{has} is on PATH, and {program.name} {program.version} needs Go {least} or "
                f"later: install it (go.dev/dl). Or: {program.instead}"
            )
        obtain(program, program.path)
        terminal.warn(f"{program.name}: {program.path}")
    terminal.warn("The next `make up` of a stack of processes has monitoring (docs/monitoring.md)")


def obtain(program: GoProgram, path: Path) -> None:
    """Build a program at a path, unless the cache has it there unchanged.

    Raises:
        BuildError: Go cannot build it, the disk is full, or the cache is another user's.
    """
    _make_cache(path.parent)
    try:
        # Two stacks that come up together build it once: the second one waits for the first.
        with path.with_name(f"{path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if is_whole(path):
                return
            if path.exists():
                terminal.warn(f"{path} is not as it was built: rebuilding it")
            _build(program, path)
    except OSError as error:
        raise BuildError(
            f"{program.name} cannot be built in {path.parent} ({error}): make room there, or set "
            "XDG_CACHE_HOME to a folder of yours on another disk"
        ) from None


def is_whole(path: Path) -> bool:
    """Return whether a program is there with the digest that was noted when it was built."""
    try:
        noted = _note(path).read_text().strip()
        return noted == _digest(path)
    except OSError:
        return False


def adopt(built: Path, path: Path) -> None:
    """Put a program that was built elsewhere, of the same sources, into the cache.

    Raises:
        BuildError: the cache is another user's.
    """
    _make_cache(path.parent)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        _put(shutil.copyfile(built, Path(folder) / path.name), path)


def _put(built: Path, path: Path) -> None:
    """Put a program of the same file system into the cache in one step, its digest first."""
    built.chmod(0o700)
    draft = built.with_name(f"{built.name}.sum")
    draft.write_text(_digest(built) + "\n")
    draft.replace(_note(path))
    built.replace(path)


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}{NOTE}")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make_cache(folder: Path) -> None:
    """Make the folder of programs, which nobody else may write to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        pass  # a dangling link, or not a folder
    except OSError as error:
        raise BuildError(
            f"the folder of programs {folder} cannot be made ({error.strerror}): make "
            f"{folder.parent} writable, or set XDG_CACHE_HOME to a folder of yours"
        ) from None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise BuildError(
            f"{folder} is a link, not a folder, or belongs to user {found.st_uid}: programs run "
            "from there would be theirs. Remove it, or set XDG_CACHE_HOME to a folder of yours"
        )
    folder.chmod(0o700)


def _build(program: GoProgram, path: Path) -> None:
    """Run `go build` on the module's sources and our files, and report progress."""
    started = time.monotonic()
    package = f"{program.name} of {program.module}@{program.version}"
    terminal.warn(f"building {package} (once; takes some minutes)")
    done = threading.Event()
    beat = threading.Thread(target=_heartbeat, args=(package, started, done), daemon=True)
    beat.start()
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            sources, built = Path(folder) / "sources", Path(folder) / program.name
            _copy_sources(program, sources)
            # Without cgo it needs no C compiler and runs on any Linux of this kind.
            flags = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w", *program.flags]
            _go(["build", *flags, f"-o={built}", program.package], sources, program)
            _put(built, path)
    finally:
        done.set()
        beat.join()
    terminal.warn(f"built {package} in {time.monotonic() - started:.0f} s: {path}")


def _copy_sources(program: GoProgram, folder: Path) -> None:
    """Download the module, and copy it with our files."""
    package = f"{program.module}@{program.version}"
    folder.mkdir()
    found = json.loads(_go(["mod", "download", "-json", package], folder, program))
    if found["Sum"] != program.sum:
        raise BuildError(
            f"{package} has the sum {found['Sum']}, and infra/settings/versions.py says "
            f"{program.sum}: what "
            f"GOPROXY serves is something else. Set GOPROXY to one that you trust. Or: "
            f"{program.instead}"
        )
    shutil.copytree(found["Dir"], folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o700)  # as Go keeps it, nobody could remove it
    for name, path in program.added.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def _go(arguments: list[str], folder: Path, program: GoProgram) -> str:
    run = subprocess.Popen(
        ["go", *arguments],
        cwd=folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, errors = run.communicate()
    finally:  # an interrupt must not leave Go running
        run.kill()
        run.wait()
    if run.returncode:
        lines = [*errors.splitlines(), *printed.splitlines()][-LAST_LINES:]
        log = "\n".join(f"  {line}" for line in lines)
        raise BuildError(
            f"go {arguments[0]} of {program.module}@{program.version} failed with exit code "
            f"{run.returncode}. {program.instead}. Go's last lines:\n{log}"
        )
    return printed


def _heartbeat(package: str, started: float, done: threading.Event) -> None:
    while not done.wait(HEARTBEAT_SECONDS):
        terminal.warn(f"building {package}: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
