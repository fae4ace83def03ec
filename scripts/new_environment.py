"""Makes .venv with uv in it, and first checks the needs of the packages: `make setup` runs it.

A working environment is kept: a stack may run from it, and without a package index only it can end
that stack. Nothing here imports a package: none may be installed yet.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from trainyard.access import terminal

ENVIRONMENT = Path(".venv")
UV = Path("requirements/setup.txt")
PACKAGES = Path("requirements/dev.txt")
NEEDED_BYTES = 6 * 10**9  # of all packages; measured: 5.8 GB
GB = 10**9
BAR = 30  # characters
PAUSE_S = 0.5  # between two looks at the disk
BROKEN = re.compile(r"connection broken by '(.*)': /")  # pip, of each try
OBJECT = re.compile(r"<[^>]*>:? *")
INDEX = re.compile(r"\(default (https?://[^)\s]+)\)")


class SetupError(Exception):
    """The environment cannot be made; the message says what to do."""


def main() -> None:
    """Make the environment, after a check, unless one works; install uv."""
    try:
        if not works(Path.cwd() / ENVIRONMENT / "bin"):
            look(Path.cwd())
            make()
        show_checkout()
        install()
        install_packages()
    except SetupError as error:
        sys.exit(terminal.clean_lines(f"error: {error}, then run the same command again"))


def look(checkout: Path) -> None:
    """Check before anything is downloaded.

    Raises:
        SetupError: Python cannot make an environment, a folder cannot be written, or a disk has
            too little room.
    """
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} lacks the module ensurepip, which makes {ENVIRONMENT}: install "
            "python3-venv (sudo apt-get install python3-venv)"
        )
    home, cache = Path.home(), _cache()
    for folder, holds, variable in (
        (checkout, "packages", "a checkout of yours"),
        (cache, "downloaded packages", "HOME or XDG_CACHE_HOME"),
        (_named("XDG_DATA_HOME") or home / ".local/share", "results", "HOME or XDG_DATA_HOME"),
        (_named("PULUMI_HOME") or home / ".pulumi", "a stack's state", "HOME or PULUMI_HOME"),
    ):
        there = _existing(folder)
        if not os.access(there, os.W_OK | os.X_OK):
            means = variable if folder == checkout else f"a folder of yours as {variable}"
            raise SetupError(
                f"{there} cannot be written by user {os.getuid()}, and {holds} go to {folder}: "
                f"use {means}"
            )
    cached = _used(cache)
    apart = _existing(cache).stat().st_dev != checkout.stat().st_dev
    # On one disk the environment is links to the cache.
    needs = {checkout: NEEDED_BYTES - (0 if apart else cached), cache: NEEDED_BYTES - cached}
    for folder, needed in needs.items():
        if (free := shutil.disk_usage(_existing(folder)).free) < needed:
            raise SetupError(
                f"the disk of {folder} has {free / GB:.1f} GB free, and the packages need "
                f"{needed / GB:.1f} GB: make room there, or use another disk"
            )


def works(programs: Path) -> bool:
    """Return whether an environment of this Python is there, and was made there.

    Its programs name their folder in their first lines.
    """
    version = ".".join(map(str, sys.version_info[:2]))
    asked = "import pip, sys; print(*sys.version_info[:2], sep='.')"
    try:
        done = subprocess.run(
            [programs / "python", "-c", asked], capture_output=True, text=True, check=False
        )
        begin = "".join((programs / "pip").read_text().splitlines()[:2])
    except (OSError, ValueError):
        return False
    return (
        done.stdout.strip() == version
        and re.search(rf"[! \"]{re.escape(str(programs))}/", begin) is not None
    )


def make() -> None:
    """Make the environment."""
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=False)
    if made.returncode:
        sys.exit(made.returncode)  # it has said why


def show_checkout() -> None:
    """Let the environment find the checkout's packages that no wheel has."""
    for packages in ENVIRONMENT.glob("lib/python3*/site-packages"):
        (packages / "trainyard_checkout.pth").write_text(f"{Path.cwd()}\n")


def install() -> None:
    """Install uv, which installs the rest.

    Raises:
        SetupError: the package index cannot be reached.
    """
    pip = ENVIRONMENT / "bin" / "pip"
    done = subprocess.run(
        [pip, "install", "--quiet", "--require-hashes", "-r", UV],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return
    if broken := BROKEN.findall(done.stderr):
        raise SetupError(
            f"the package index {_index(pip)} cannot be reached ({OBJECT.sub('', broken[-1])}): "
            "connect this machine, or name a proxy in HTTPS_PROXY, or a mirror in PIP_INDEX_URL "
            "and UV_DEFAULT_INDEX"
        )
    sys.exit(terminal.clean_lines(done.stderr.rstrip()))


def install_packages() -> None:
    """Install the packages with uv; a terminal shows one bar, of what has been written.

    uv itself draws a bar for each package, twenty times a second.
    """
    command = [f"{ENVIRONMENT}/bin/uv", "pip", "install", "--require-hashes"]
    command += ["--python", str(ENVIRONMENT), "-r", str(PACKAGES)]
    environment = os.environ | {"TMPDIR": str(Path.cwd() / ENVIRONMENT)}  # for uv's locks
    if not sys.stderr.isatty():
        terminal.warn(f"installing the packages of {PACKAGES}")
        if code := subprocess.run(command, env=environment, check=False).returncode:
            sys.exit(code)
        return
    disks = {_existing(each).stat().st_dev: _existing(each) for each in (_cache(), Path.cwd())}
    free, began = _free(disks), time.monotonic()
    whole = NEEDED_BYTES * len(disks)
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen([*command, "--no-progress"], env=environment, stderr=said) as process:
            while process.poll() is None:
                written = min(whole, max(0, free - _free(disks)))
                bar = ("#" * (written * BAR // whole)).ljust(BAR, ".")
                amount = f"{written / GB:.1f} of {whole / GB:.1f} GB"
                line = f"\rpackages  [{bar}]  {amount}  {time.monotonic() - began:.0f} s"
                print(line, end="", file=sys.stderr, flush=True)  # noqa: T201
                time.sleep(PAUSE_S)
        sys.stderr.write("\r\x1b[K")
        said.seek(0)
        if process.returncode:
            sys.exit(terminal.clean_lines(said.read().rstrip()))
        terminal.warn(f"packages are installed ({time.monotonic() - began:.0f} s)")


def _free(disks: dict[int, Path]) -> int:
    return sum(shutil.disk_usage(folder).free for folder in disks.values())


def _cache() -> Path:
    """Return the folder where uv keeps downloaded packages."""
    home = _named("XDG_CACHE_HOME") or Path.home() / ".cache"
    return _named("UV_CACHE_DIR") or home / "uv"


def _index(pip: Path) -> str:
    """Return the package index of pip; its help leaves passwords out."""
    said = subprocess.run(
        [pip, "install", "--help"],
        env={**os.environ, "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = INDEX.search(said)
    return found[1] if found else "of pip's settings"


def _named(variable: str) -> Path | None:
    value = Path(os.environ.get(variable, ""))
    return value if value.is_absolute() else None


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def _used(folder: Path) -> int:
    """Return the bytes that all files below a folder take."""
    return sum(
        os.lstat(f"{below}/{name}").st_blocks * 512
        for below, _, names in os.walk(folder)
        for name in names
    )


if __name__ == "__main__":
    main()
