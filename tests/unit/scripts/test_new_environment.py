"""Messages of `make setup` before it downloads anything, and where it cannot."""

import importlib.util
import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import new_environment
from scripts.new_environment import GB, SetupError

# As pip 23.0 and 25.1 have it, shortened.
PIP = """#!/bin/sh
case "$*" in
*--help*) echo "  Base URL of the Python Package Index (default https://index.example/simple)." ;;
*) cat >&2 <<'END'
{said}
END
exit {code} ;;
esac
"""
RETRY = (
    "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by "
    "'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed "
    "to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/uv/"
)
PROXY = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'ProxyError('Cannot connect to "
    "proxy.', OSError('Tunnel connection failed: 403 Forbidden'))': /simple/uv/"
)


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A checkout and an empty home on a disk of 7 GB."""
    for name in ("UV_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "PULUMI_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("home", "checkout"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "checkout")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=7 * GB))
    return tmp_path / "checkout"


def refused(checkout: Path) -> str:
    with pytest.raises(SetupError) as raised:
        new_environment.look(checkout)
    return str(raised.value)


def test_a_machine_that_has_all(checkout):
    new_environment.look(checkout)


def test_a_python_that_cannot_make_environments(checkout, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "lacks the module ensurepip" in refused(checkout)
    assert "sudo apt-get install python3-venv" in refused(checkout)


def test_a_disk_that_is_too_small(checkout, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3 * GB))
    said = f"the disk of {checkout} has 3.0 GB free, and the packages need 6.0 GB: make room"
    assert said in refused(checkout)
    # Earlier downloads take no more room.
    monkeypatch.setattr(new_environment, "_used", lambda _: 5 * GB)
    new_environment.look(checkout)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("checkout", "packages go to {}: use a checkout of yours"),
        ("home", "go to {}/.cache/uv: use a folder of yours as HOME or XDG_CACHE_HOME"),
        ("home/.pulumi", "a stack's state go to {}: use a folder of yours as HOME or PULUMI_HOME"),
    ],
)
def test_a_folder_that_cannot_be_written(folder, said, checkout, monkeypatch):
    path = checkout.parent / folder
    path.mkdir(exist_ok=True)
    monkeypatch.setattr(os, "access", lambda tried, mode: tried != path)  # root may write anywhere
    assert refused(checkout).startswith(f"{path} cannot be written by user {os.getuid()}, and ")
    assert said.format(path) in refused(checkout)


@pytest.mark.parametrize(
    ("version", "begin", "kept"),
    [
        ("", "#!{}/python3.11\n", True),
        ("", "#!/bin/sh\n'''exec' {}/python $0\n", True),  # of a long path
        ("", "#!/copied/from{}/python\n", False),
        ("2.7", "#!{}/python\n", False),
    ],
)
def test_an_environment_that_works_is_kept(version, begin, kept, checkout, monkeypatch):  # F57
    """A stack may run from it; and without a network, only it can end that stack."""
    programs = checkout / ".venv" / "bin"
    programs.mkdir(parents=True)
    packages = checkout / ".venv" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    assert not new_environment.works(programs)
    version = version or "{}.{}".format(*sys.version_info)
    for name, text in (("python", f"#!/bin/sh\necho {version}\n"), ("pip", begin.format(programs))):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    steps = []
    for name in ("look", "make", "install", "install_packages"):
        monkeypatch.setattr(new_environment, name, lambda *_, name=name: steps.append(name))
    new_environment.main()
    installs = ["install", "install_packages"]
    assert steps == (installs if kept else ["look", "make", *installs])
    (found,) = packages.iterdir()  # also one of before finds the program and what it imports
    assert (found.suffix, found.read_text()) == (".pth", f"{checkout}\n")


def made(checkout: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: int) -> None:
    pip, python = checkout / "pip", checkout / "python"
    pip.write_text(PIP.format(said=said, code=code))
    python.write_text(f"#!/bin/sh\nmkdir -p .venv/bin; cp {pip} .venv/bin/pip\n")
    for path in (pip, python):
        path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(new_environment, "install_packages", lambda: None)
    new_environment.main()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (RETRY, "('Failed to establish a new connection: [Errno -3] Temporary failure in name"),
        (PROXY, "OSError('Tunnel connection failed: 403 Forbidden')"),
    ],
)
def test_no_network_is_one_message(line, why, checkout, monkeypatch):
    with pytest.raises(SystemExit) as raised:
        made(checkout, monkeypatch, f"{line}\nERROR: No matching distribution found", 1)
    said = str(raised.value)
    assert said.startswith(
        "error: the package index https://index.example/simple cannot be reached"
    )
    assert why in said
    assert "ERROR" not in said
    assert "\n" not in said


def test_what_else_pip_says_is_shown(checkout, monkeypatch):
    with pytest.raises(SystemExit, match="HASHES DO NOT MATCH"):
        made(checkout, monkeypatch, "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES DO NOT MATCH", 1)
    made(checkout, monkeypatch, "", 0)


UV = """#!/bin/sh
echo "$*" >arguments
while [ ! -e drawn ]; do sleep 0.01; done
echo "error: no such package" >&2
exit $(cat code)
"""


@pytest.mark.parametrize("code", [0, 2])
def test_a_terminal_shows_one_bar_for_all_packages(code, tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/uv").write_text(UV)
    (tmp_path / ".venv/bin/uv").chmod(0o755)
    (tmp_path / "code").write_text(str(code))
    leader, follower = pty.openpty()
    program = "from scripts import new_environment; new_environment.install_packages()"
    root = {"PYTHONPATH": str(Path(new_environment.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ | root, stderr=follower
    )
    os.close(follower)
    said = b""
    with suppress(OSError), os.fdopen(leader, "rb", buffering=0) as terminal:
        while piece := terminal.read(1000):
            said += piece
            if b"GB" in said:
                (tmp_path / "drawn").touch()
    assert process.wait(60) == (code and 1)
    assert "--no-progress" in (tmp_path / "arguments").read_text()
    bar, _, rest = said.decode().rpartition("\x1b[K")
    assert bar.startswith("\rpackages  [....")
    assert "\n" not in bar
    assert ("error: no such package" if code else "packages are installed") in rest
