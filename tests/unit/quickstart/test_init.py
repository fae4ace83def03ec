"""`train init`: all files or none, and a package that needs no checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from client import cli, scripts
from client.errors import ClientError
from engine.project import Project, read_settings
from infra import versions
from quickstart import init, ray_config

ROOT = Path(__file__).resolve().parents[3]


def test_a_project_is_written_and_the_next_commands_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "My Repo"
    monkeypatch.setattr(sys, "argv", ["train", "init", str(folder)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 0
    assert "train submit jobs/digits.py" in capsys.readouterr().out
    # Of the stack: the engine takes the settings, under the project's own name.
    project = Project.find(folder)
    assert project.name == "my-repo"
    assert (project.main / "__main__.py").is_file()
    assert read_settings(project, "dev").config["my-repo:runtime"] == "process"
    assert "my-repo:hosts" in read_settings(project, "hosts").config
    # Of the job: it is submitted with its folder and the package, by the printed command.
    job = scripts.find(str(folder / "jobs/digits.py"))
    assert job.module == scripts.PACKAGE
    assert scripts.demand(job, []) == [{"CPU": 1.0}]
    assert yaml.safe_load((folder / "runtime_env.yaml").read_text())["env_vars"]
    # Of the box: only the address is to be changed.
    assert ray_config.read(folder / "config/ray_config.yaml").client_port == 10001


def test_nothing_is_overwritten_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runtime_env.yaml").write_text("mine")
    with pytest.raises(ClientError, match=r"has runtime_env\.yaml already, and nothing is over"):
        init.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runtime_env.yaml"]
    (tmp_path / "runtime_env.yaml").unlink()
    (tmp_path / "stack").touch()
    with pytest.raises(ClientError, match=r"cannot write .*stack .*so nothing is written"):
        init.write(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "stack"]


@pytest.mark.parametrize(("folder", "name"), [("7 of 9", "training"), ("a_b.c", "a-b-c")])
def test_the_project_has_the_name_of_its_folder(tmp_path: Path, folder: str, name: str) -> None:
    init.write(tmp_path / folder)
    assert Project.find(tmp_path / folder).name == name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip builds it, of a copy: builds leave files behind."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        pytest.skip("no git checkout")
    for name in filter(None, found.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "bench/")):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    (copy / "docs").mkdir()
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_package_has_all_that_a_stack_needs(wheel: Path) -> None:  # C2
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name.partition("/share/trainyard/")[2] for name in names}
    for folder in ("docker", "requirements"):
        for path in (ROOT / folder).rglob("*"):
            place = path.relative_to(ROOT).as_posix()
            wanted = path.is_file() and "__pycache__" not in path.parts
            if wanted and (folder == "docker" or path.suffix in {".txt", ".yaml"}):
                assert place in shipped
    assert {"Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.hosts.yaml"} <= shipped
    assert {"train/runtime.json", "train/requirements.txt"} <= shipped
    config = ROOT / "training" / "jobs" / "config"  # of sweeps, and runtime environments by name
    for path in (*init.FILES.rglob("*"), *config.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            assert path.relative_to(ROOT).as_posix() in names
    assert {"policy/PulumiPolicy.yaml", "policy/requirements.txt"} <= {*names}


def test_an_installed_package_previews_a_stack_without_a_checkout(  # C2
    wheel: Path, tmp_path: Path
) -> None:
    environment = tmp_path / "venv"
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
    env = {"HOME": str(tmp_path / "home"), "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}
    (tmp_path / "home").mkdir()

    def run(*command: str) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "next, in" in run(str(environment / "bin/train"), "init", "repo")
    where = "import infra, cluster.shipped as s; print(infra.__file__, s.FOLDER)"
    assert run(str(python), "-P", "-c", where).count(str(environment)) == 2
    engine = (str(python), "-m", "engine", "-C", "repo")
    env["PULUMI_CONFIG_PASSPHRASE"] = "x"
    assert "local-ray-worker-1 create planned" in run(*engine, "preview", "-s", "dev")


def test_what_is_for_a_box_can_be_used_there(tmp_path: Path) -> None:  # C7 to C9
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


def test_a_box_with_another_python_is_told_before_anything_is_installed(tmp_path: Path) -> None:
    for name, text in {
        "id": "echo 1000",
        "ps": "echo systemd",
        "python3": "echo 3.10",
        "sudo": f"touch {tmp_path}/installed",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", init.FILES / init.SETUP],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "python3 is 3.10 here" in done.stderr
    assert "run PYTHON=python3.11 bash" in done.stderr
    assert not (tmp_path / "installed").exists()
