"""The scripts that make a machine ready: valid shell, safe with odd paths, clear when they fail."""

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from infra.machines import environment
from infra.machines.environment import EnvironmentArgs, install_script, remove_script
from node.folders import FolderMark
from tests import ran
from tests.host_facts import machine

ODD = 'a b\'s $(touch canary) "{x}" *'
MARK = FolderMark(id="0123abcd", project="lab", stack="dev", by=ODD)

# The environment's modules on a host, for a Python that finds them here.
STUBS = {
    "psutil": "",
    "supervisor": "",
    "ray": "import os; __version__ = os.environ.get('RAY', '2.60.0')",
    "torch": """
import os
class Ones:
    def __matmul__(self, other): return self
    def sum(self): return float(os.environ.get('TOTAL', 256.0**3))
def ones(*shape, device): return Ones()
class cuda:
    device_count = staticmethod(lambda: int(os.environ.get('DEVICES', '0')))
    get_device_name = staticmethod(lambda index: 'A10')
""",
}


def _script(home: Path, **changes: Any) -> str:
    own = {name: b"" for name in [changes.pop("own", "")] if name}
    args = EnvironmentArgs(ray="2.60.0", own=own, links_ray=changes.pop("links_ray", False))
    values: dict[str, Any] = {"gpus": 0, "head": None, "mark": MARK}
    there = {k: changes.pop(k) for k in list(changes) if k not in values}
    return install_script(machine(home=home, **there), args, **values | changes)


@pytest.fixture
def home(tmp_path, put_program) -> Path:
    """A home folder of an odd name on a machine whose Python can make environments."""
    home = tmp_path / ODD
    home.mkdir()
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    for name, code in STUBS.items():
        (stubs / f"{name}.py").write_text(code)
    # In place of a Python, the environment that uv would make of the lock.
    python = put_program(tmp_path, "python", f'PYTHONPATH={stubs} exec {sys.executable} -S "$@"')
    uv = put_program(
        tmp_path,
        "uv",
        'echo "uv $1 $2" >> "$HOME/said"; echo "$*" >> "$HOME/asked"\n'
        "for last; do :; done\n"
        f'[ "$1" != venv ] || {{ mkdir -p "$last/bin"; cp {python} "$last/bin/python"; }}',
    )
    pip = put_program(tmp_path, "pip", f'echo pip >> "$HOME/said"; cp {uv} "$(dirname "$0")/uv"')
    put_program(
        tmp_path,
        "python3",
        f'for last; do :; done; mkdir -p "$last/bin"; cp {pip} "$last/bin/pip"; '
        '[ ! -e "$HOME/no-venv" ]',
    )
    (tmp_path / "host.txt").write_text("ray==2.60.0\n")
    archive = home / "lab-dev.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", tmp_path, "host.txt"], check=True)
    return home


@pytest.fixture
def install(home) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the script as the machine's user would."""

    def run(environment: dict[str, str] | None = None, **changes: Any) -> Any:
        return ran.run(
            ["/bin/sh", "-c", _script(home, **changes)],
            cwd=home,
            env={"HOME": str(home), "PATH": f"{home.parent}:/usr/bin:/bin", **(environment or {})},
            timeout=30,
        )

    return run


VARIANTS: list[dict[str, Any]] = [
    {},
    {"links_ray": True, "head": ("10.0.0.4", 22), "gpus": 8},
    {"python_environment": "/opt/conda", "links_ray": True},
    {"own": environment.OWN_OF_PIP},
    {"own": environment.OWN_OF_CONDA},
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_the_scripts_are_posix_shell(changes):
    for home in (Path("/srv/ada"), Path(f"/srv/{ODD}")):
        for script in (_script(home, **changes), _removal(home)):
            subprocess.run(["/bin/sh", "-n"], input=script, text=True, check=True)
            if checker := shutil.which("shellcheck"):
                command = [checker, "--shell=sh", "--severity=warning", "-"]
                done = ran.run(command, input=script)
                assert done.returncode == 0, done.stdout


def _removal(home: Path, mark: FolderMark = MARK) -> str:
    return remove_script(machine(home=home), mark)


def _remove(home: Path, mark: FolderMark = MARK) -> str:
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    return ran.output(["/bin/sh", "-c", _removal(home, mark)], env=environment)


def test_another_stack_of_the_same_name_there_is_neither_replaced_nor_removed(home, install):  # F46
    other = FolderMark(id="4567abcd", project="lab", stack="dev", by="bob@elsewhere")
    assert install(mark=other).returncode == 0
    before = (home / "said").read_text()
    done = install()
    assert done.returncode == 1
    assert "another stack of this name is on host-0" in done.stderr
    assert "bob@elsewhere" in done.stderr
    assert "Choose another name for this stack" in done.stderr
    assert (home / "said").read_text() == before
    assert "bears no mark of this stack" in _remove(home)
    assert (home / ".trainyard/lab-dev/agent/host.txt").is_file()
    assert list(home.parent.rglob("canary")) == []  # F39
    _remove(home, other)
    assert not (home / ".trainyard").exists()


def test_a_machine_is_made_ready_once_and_again(home, install):  # F39
    done = install(links_ray=True)
    assert done.returncode == 0, done.stderr
    base = home / ".trainyard" / "lab-dev"
    assert (base / "agent" / "host.txt").is_file()
    assert (base.stat().st_mode & 0o777) == 0o700
    assert (home / ".local/bin/ray").readlink() == base / "env" / "bin" / "ray"
    said = (home / "said").read_text().splitlines()
    assert said == ["pip", "uv venv --quiet", "uv pip sync"]
    assert "installing the 1 packages" in done.stdout
    # Once more, as after a change of the lock: the environment stays.
    assert install(links_ray=True).returncode == 0
    assert (home / "said").read_text().splitlines()[3:] == ["uv pip sync"]
    assert list(home.parent.rglob("canary")) == []
    # All of it goes.
    _remove(home)
    assert not (home / ".trainyard").exists()
    assert not (home / "lab-dev.tar.gz").exists()
    assert not (home / ".local/bin/ray").is_symlink()


def test_what_others_put_there_stays(home, install):
    install()
    (home / ".trainyard" / "other").mkdir()
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "ray").symlink_to("/opt/conda/bin/ray")
    _remove(home)
    assert (home / ".trainyard" / "other").is_dir()
    assert (home / ".local" / "bin" / "ray").is_symlink()


def test_a_python_that_makes_no_environments_is_told(home, install):
    (home / "no-venv").touch()
    done = install()
    assert done.returncode == 1
    assert "install the package python3-venv" in done.stderr


def test_the_users_file_of_pip_adds_packages(home, install):  # A5
    assert install(own=environment.OWN_OF_PIP).returncode == 0
    said = (home / "said").read_text().splitlines()
    assert said == ["pip", "uv venv --quiet", "uv pip sync", "uv pip install"]
    env = home / ".trainyard/lab-dev/env"
    words = f"--python {env} --constraints host.txt --requirements own/requirements.txt\n"
    assert (home / "asked").read_text().endswith(words)  # the services' versions hold


def test_a_file_that_is_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").touch()
    with pytest.raises(
        pulumi.RunError, match=r"environmentFile = 'a\.yml' cannot be read .*No such"
    ):
        environment.own_file("a.yml")
    (tmp_path / "a.yml").write_bytes(b"name: a\n")
    assert environment.own_file("a.yml") == {"own/environment.yaml": b"name: a\n"}
    (tmp_path / "a.txt").write_bytes(b"tqdm\n")
    assert environment.own_file("a.txt") == {"own/requirements.txt": b"tqdm\n"}
    assert environment.own_file("") == {}


CONDA = """\
echo "conda $*" >> "$HOME/said"
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/conda-meta" "$2/bin"
cp {python} "$2/bin/python"
"""


def test_the_users_file_of_conda_makes_the_environment(home, install, put_program):  # A5 B4
    assert install().returncode == 0
    made = len((home / "said").read_text().splitlines())
    done = install(own=environment.OWN_OF_CONDA)
    assert done.returncode == 1
    assert "host-0 has no conda, mamba or micromamba on PATH" in done.stderr
    assert "let setupCommands install one, or name a file of pip" in done.stderr
    where = home / "miniforge3" / "bin"
    where.mkdir(parents=True)
    put_program(where, "conda", CONDA.format(python=home.parent / "python"))
    for _ in range(2):
        done = install(own=environment.OWN_OF_CONDA)
        assert done.returncode == 0, done.stderr
    env = home / ".trainyard/lab-dev/env"
    about = f"--quiet --prefix {env} --file own/environment.yaml"
    assert (home / "said").read_text().splitlines()[made:] == [
        f"conda env create {about}",
        "uv pip install",
        f"conda env update --prune {about}",
        "uv pip install",
    ]
    assert (home / "asked").read_text().endswith(f"--python {env} --requirements host.txt\n")
    # Without the file it is the project's own again.
    assert install().returncode == 0
    assert (home / "said").read_text().splitlines()[-2:] == ["uv venv --quiet", "uv pip sync"]


@pytest.fixture
def conda(home) -> str:
    """An environment of the user's own."""
    folder = home.parent / "conda"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(home.parent / "python", folder / "bin" / "python")
    return str(folder)


def test_an_environment_of_the_users_is_used_as_it_is(home, install, conda):
    done = install(python_environment=conda)
    assert done.returncode == 0, done.stderr
    assert not (home / "said").exists()
    assert not (home / ".trainyard" / "lab-dev" / "env").exists()


def test_another_python_is_refused(install, conda, monkeypatch):
    monkeypatch.setattr(environment, "sys", SimpleNamespace(version_info=(3, 99, 0)))
    done = install(python_environment=conda)
    found = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 1
    assert f" is Python {found}, and the machine that the stack is brought up from" in done.stderr


@pytest.mark.parametrize(
    ("there", "gpus", "said"),
    [
        ({"RAY": "2.40.0"}, 0, "has Ray 2.40.0, and 2.60.0 is needed"),
        ({"DEVICES": "2"}, 2, "2 GPUs compute: A10"),
        ({"DEVICES": "1"}, 2, "PyTorch sees 1 of 2 GPUs: look at the driver"),
        ({"DEVICES": "1", "TOTAL": "1.0"}, 1, "GPU 0 computes 1.0 in place of 16777216.0"),
    ],
)
def test_an_environment_counts_once_a_program_ran_there(install, conda, there, gpus, said):
    done = install(there, python_environment=conda, gpus=gpus)
    fine = "compute: " in said
    assert done.returncode == (not fine)
    assert said in (done.stdout if fine else done.stderr)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_the_head_is_reached_or_it_is_said_why_not(install, conda, listener):
    head = listener.getsockname()
    done = install(python_environment=conda, head=head)
    assert done.returncode == 0, done.stderr
    listener.close()
    done = install(python_environment=conda, head=head)
    assert done.returncode == 1
    assert f"not reached at 127.0.0.1 port {head[1]}" in done.stderr
    assert "set privateAddress" in done.stderr
