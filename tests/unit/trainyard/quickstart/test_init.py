"""`train init`: all files or none; and the wheel, which has the client and takes two names."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from tree_sitter_language_pack import get_parser

from infra.settings import versions
from tests import ran
from trainyard import options
from trainyard.client import scripts
from trainyard.client.errors import ClientError
from trainyard.quickstart import init, ray_config

ROOT = Path(__file__).resolve().parents[4]


def test_a_project_is_written_and_the_next_commands_told(tmp_path, train):
    folder = tmp_path / "My Repo"
    assert train("init", str(folder)) == 0
    assert "train submit jobs/digits.py" in train.out
    # Of the job: it is submitted with its folder and the package, by the printed command.
    job = scripts.find(str(folder / "jobs/digits.py"))
    assert job.module == scripts.PACKAGE
    assert options.request(scripts.config(job, []), []) == [{"CPU": 1.0}]
    assert yaml.safe_load((folder / "runtime_env.yaml").read_text())["env_vars"]
    # Of the box: only the address is to be changed.
    assert ray_config.read_ray_config(folder / "config/ray_config.yaml").client_port == 10001


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path):
    (tmp_path / "runtime_env.yaml").write_text("mine")
    with pytest.raises(ClientError, match=r"has runtime_env\.yaml already, and nothing is over"):
        init.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runtime_env.yaml"]
    (tmp_path / "runtime_env.yaml").unlink()
    (tmp_path / "src").touch()
    with pytest.raises(ClientError, match=r"cannot write .*src.*so nothing is written"):
        init.write(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "src"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The package as pip builds it, of a copy: builds leave files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = ran.run(listed, cwd=ROOT)
    if found.returncode != 0:
        pytest.skip("no git checkout")
    for name in filter(None, found.stdout.split("\0")):
        source = ROOT / name
        if source.exists() and not name.startswith(("tests/", "docs/", "bench/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy / name, follow_symlinks=False)
    (copy / "docs").mkdir()
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_takes_two_names_and_has_all_files_of_the_client(wheel):  # C2
    names = zipfile.ZipFile(wheel).namelist()
    roots = {name.partition("/")[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {
        "trainyard",
        "hydra_plugins",
    }
    for path in init.FILES.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert path.relative_to(ROOT).as_posix() in names
    for path in scripts.JOBS.rglob("*"):
        if path.is_file() and path.suffix in {".py", ".yaml"}:
            assert f"trainyard/jobs/{path.relative_to(scripts.JOBS).as_posix()}" in names


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel, and without the checkout."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (python,) = environment.glob("bin/python3.*")
    packages = next(environment.glob("lib/python3*/site-packages"))
    # What it depends on is there already; that it is itself a checkout of these packages is not
    # seen, since the file that says so is not read from here.
    here = Path(pytest.__file__).parents[1]
    (packages / "dependencies.pth").write_text(f"{here}\n")
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python]
    subprocess.run([*install, wheel], check=True)
    return environment


def test_the_wheel_leaves_a_project_its_own_modules(installed, tmp_path):  # C2
    """Also those of PYTHONPATH, which come before all that is installed."""
    project, more = tmp_path / "project", tmp_path / "more"
    for folder in (project, more):
        for name in ("training", "client", "cluster", "access", "infra", "engine", "config"):
            (folder / name).mkdir(parents=True)
            (folder / name / "__init__.py").write_text(f"MINE = {str(folder / name)!r}\n")
    (project / "main.py").write_text(
        "import access, client, cluster, config, engine, infra, training\n"
        "import trainyard.jobs.cpu_example, trainyard.client.cli, hydra_plugins.ray_launcher\n"
        "print(training.MINE, trainyard.__file__)\n"
    )
    (tmp_path / "home").mkdir()
    environment = {
        "HOME": str(tmp_path / "home"),
        "PATH": f"{installed / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": str(more),
    }

    def run(*command: str, code: int = 0) -> str:
        done = ran.run([installed / "bin" / command[0], *command[1:]], cwd=project, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    assert run("python", "main.py").startswith(f"{project / 'training'} {installed}")
    assert "next, in" in run("train", "init", "repo")
    (project / "Pulumi.yaml").touch()
    assert "installed without a checkout" in run("train", "list", code=1)
    assert "in a checkout only" in run("train", "manifests", code=1)
    gcp = ("--provider", "gcp", "--project", "my-project-1", "--cidr", "192.0.2.0/24")
    assert "in the checkout only" in run("train", "cluster-file", *gcp, "-o", "gcp.yaml", code=1)


def test_what_is_for_a_box_can_be_used_there(tmp_path):  # C7 to C9
    """Its scripts are read as their shell does, and Ray knows the options of the unit."""
    box = init.FILES / "box"
    subprocess.run(["bash", "-n", box / "setup_ubuntu.sh"], check=True)
    unit = (box / "ray.service").read_text()
    options = unit.partition("ray start ")[2].partition("\n")[0].split()
    parse = (
        "import sys; from ray.scripts.scripts import start; start.make_context('', sys.argv[1:])"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", parse, *options], check=True)
    assert f"--ray-client-server-port={ray_config.CLIENT_PORT}" in options
    assert {"--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"} <= set(options)
    script = (box / "setup_ubuntu.sh").read_text()
    assert script.partition("\nray=")[2].split()[0] == versions.RAY
    init.write(tmp_path / "mine")
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"\nminor={minor} #" in (tmp_path / "mine" / init.SETUP).read_text()


def test_the_script_for_windows_is_powershell():  # C7 C8
    """By a grammar of tree-sitter: no registry that CI reaches has PowerShell itself."""

    def faults(text: bytes) -> list[str]:
        waiting = [get_parser("powershell").parse(text).root_node]
        found = []
        while waiting:
            node = waiting.pop()
            waiting += node.children
            if node.is_error or node.is_missing:
                found.append(f"line {node.start_point.row + 1}: {node.text!r}")
        return found

    script = (init.FILES / "box/wsl.ps1").read_bytes()
    assert faults(script) == []
    assert faults(script.replace(b"{ throw", b"throw")) != []


def test_the_script_for_windows_forwards_one_port_to_the_server_of_wsl():  # C7 C8
    """It cannot run here: each command, port and name in it is one that Windows knows."""
    text = (init.FILES / "box/wsl.ps1").read_text()
    commands, of_wsl = set[str](), []
    waiting = [get_parser("powershell").parse(text.encode()).root_node]
    while waiting:
        node = waiting.pop()
        waiting += reversed(node.children)
        if node.type == "command_name":
            commands.add(node.text.decode())
            of_wsl += [node.parent.text.decode()] if node.text == b"wsl" else []
    assert commands == {
        *("wsl", "netsh", "Start-Process", "Write-Output", "Out-Null"),
        *("Get-NetFirewallRule", "New-NetFirewallRule"),
        *("New-ScheduledTaskAction", "New-ScheduledTaskTrigger", "Register-ScheduledTask"),
    }
    root, own = (f"wsl -d $Distribution -u {user} -e " for user in ("root", "$User"))
    conf = "[boot]\\nsystemd=true\\n[user]\\ndefault=$User\\n"
    assert of_wsl == [  # in their order
        *(f"{root}true", "wsl --install --no-launch -d $Distribution", f"{root}true"),
        *(f"{root}id $User", f"{root}useradd --create-home --shell /bin/bash --groups sudo $User"),
        *(f"{root}passwd $User", f"{root}sh -c \"printf '{conf}' > /etc/wsl.conf\""),
        *("wsl --terminate $Distribution", f'{own}wslpath -a $PSScriptRoot.Replace("\\", "/")'),
        *(f'{own}bash "$box/{init.SETUP.name}"', f"{own}hostname -I"),
    ]
    assert re.findall(r"\bport\w*\s*=\s*(\d+)|connectport=(\d+)", text, re.IGNORECASE) == [
        ("2222", ""),
        ("", "22"),
    ]
    added = next(line for line in text.splitlines() if "portproxy add" in line)
    assert {'"listenport=$Port"', "connectport=22", '"connectaddress=$address"'} <= {*added.split()}
    assert "-Direction Inbound -Protocol TCP -LocalPort $Port -Action Allow" in text
    assert "throw" in text.partition("if (-not $address)")[2].partition("netsh")[0]
    for part in (
        *('= "Ubuntu-24.04"', "-AtLogOn -User $env:USERNAME", "-RunLevel Highest -Force"),
        '"-d", $Distribution, "-u", $User, "-e", "sleep", "infinity"',
        'powershell.exe -Verb RunAs -ArgumentList "-NoExit $again"',
        '-Execute "powershell.exe" -Argument $again',
    ):
        assert part in text
    for name, switches in (("setup", " -Setup -Register"), ("start", "")):  # to double-click
        first, _, *rest = (init.FILES / f"box/{name}_windows.cmd").read_text().splitlines()
        run = f'powershell -NoProfile -ExecutionPolicy Bypass -File "%~dp0wsl.ps1"{switches}'
        assert [first, *rest] == ["@echo off", run, "if errorlevel 1 pause"]


def test_a_box_with_another_python_is_told_before_anything_is_installed(tmp_path):
    for name, text in {
        "id": "echo 1000",
        "ps": "echo systemd",
        "python3": "echo 3.10",
        "sudo": f"touch {tmp_path}/installed",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = ran.run(["bash", init.FILES / init.SETUP], env={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert done.returncode == 1
    assert "python3 is 3.10 here" in done.stderr
    assert "run PYTHON=python3.11 bash" in done.stderr
    assert not (tmp_path / "installed").exists()
