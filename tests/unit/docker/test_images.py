"""The recipes of the images, checked without a build."""

import ast
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests import ran

ROOT = Path(__file__).parents[3]
DOCKERFILES = sorted([*ROOT.glob("docker/*/Dockerfile"), *ROOT.glob("tests/images/*/Dockerfile")])
OURS = [path for path in DOCKERFILES if path.is_relative_to(ROOT / "docker")]
LOCKS = sorted(ROOT.glob("docker/*/*.txt"))
NOTEBOOKS = sorted(ROOT.glob("docker/jupyter/examples/*.ipynb"))


def _named(path):
    return str(path.relative_to(ROOT))


def _pins(path):
    """What a lock pins: versions by package; a package may have one for each Python."""
    pins = {}
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE):
        pins.setdefault(name, set()).add(version)
    return pins


def test_the_images_are_here():
    names = "dataset jupyter minio mlflow ray versitygw"
    assert [path.parent.name for path in OURS] == names.split()


@pytest.mark.parametrize("path", DOCKERFILES, ids=_named)
def test_hadolint_has_nothing_to_say(path):
    hadolint = Path(sys.executable).with_name("hadolint")
    done = ran.run([hadolint, "--config", ROOT / ".hadolint.yaml", path])
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", OURS, ids=_named)
def test_what_is_copied_is_for_the_images_user_whatever_the_umask(path):  # F58
    stage = path.read_text().rpartition("\nFROM ")[2]
    opened = [Path(folder) for folder in re.findall(r"chmod --recursive a\+rX (\S+)", stage)]
    for folder in map(Path, re.findall(r"^COPY (?!--).* (\S+)$", stage, re.MULTILINE)):
        built_from = folder == Path("/tmp")  # by root
        assert built_from or any(folder.is_relative_to(each) for each in opened), folder


def test_every_rule_that_is_ignored_says_why():
    lines = (ROOT / ".hadolint.yaml").read_text().splitlines()
    ignored = [index for index, line in enumerate(lines) if re.match(r"\s+- \w+\d+", line)]
    assert ignored
    assert all(lines[index - 1].lstrip().startswith("#") for index in ignored)


@pytest.mark.parametrize("path", OURS, ids=_named)
def test_every_base_image_is_an_argument_with_a_version(path):
    text = path.read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert bases
    for base in bases:
        argument = re.fullmatch(r"\$\{(\w+_IMAGE)\}", base)[1]
        assert re.search(rf"^ARG {argument}=[\w/-]+:[\w.-]*\w+$", text, re.MULTILINE)
    assert "latest" not in text


@pytest.mark.parametrize("path", OURS, ids=_named)
def test_an_image_runs_as_user_1000(path):
    assert re.findall(r"^USER (\S+)", path.read_text(), re.MULTILINE)[-1] == "1000"


@pytest.mark.parametrize("path", LOCKS, ids=_named)
def test_locks_have_hashes_and_the_versions_of_the_client(path):
    text, pins = path.read_text(), _pins(path)
    assert pins
    assert text.count("--hash=sha256:") >= len(pins)
    assert "index-url" not in text
    client = _pins(ROOT / "requirements" / "base.txt")
    shared = pins.keys() & client.keys()
    assert {name: pins[name] for name in shared} == {name: client[name] for name in shared}


def test_the_locks_have_what_nodes_and_notebook_need():
    ray, torch, jupyter = (
        _pins(ROOT / "docker" / name)
        for name in ("ray/requirements.txt", "ray/torch.txt", "jupyter/requirements.txt")
    )
    assert {"ray", "boto3", "pyarrow", "matplotlib", "scikit-learn"} <= ray.keys()
    assert {"torch", "torchvision"} <= torch.keys()
    assert not {"torch", "torchvision"} & ray.keys()  # TORCH_BACKEND chooses their build
    assert {"ray", "jupyterlab", "starlette", "uvicorn"} <= jupyter.keys()
    tracking = _pins(ROOT / "docker" / "mlflow" / "requirements.txt")
    assert {"mlflow", "flask-wtf", "boto3"} <= tracking.keys()
    assert not {"torch", "ray"} & tracking.keys()
    assert not {"torch", "triton"} & jupyter.keys()


def test_images_are_installed_by_the_same_uv_as_the_client():
    uv = (ROOT / "requirements" / "setup.txt").read_text()
    for name in ("ray", "jupyter", "mlflow"):
        assert (ROOT / "docker" / name / "setup.txt").read_text() == uv


@pytest.mark.parametrize("path", NOTEBOOKS, ids=_named)
def test_notebooks_are_committed_without_output(path):  # D14
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code
    for cell in code:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        source = "".join(cell["source"])
        if source.startswith("%%writefile"):
            source = source.partition("\n")[2]
        compile(source, path.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_there_are_three_example_notebooks():  # D14 E6
    assert [path.stem for path in NOTEBOOKS] == [
        "cluster",
        "object-store",
        "pytorch-distributed-training",
    ]


@pytest.fixture
def build():
    spec = importlib.util.spec_from_file_location("build", ROOT / "tests" / "images" / "build.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["build"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["build"]


def test_passwords_of_this_machine_stay_out_of_the_images_of_tests(build, capsys):  # F35
    environment = {
        "UV_INDEX": "https://user:hunter2@index.example/simple",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "NO_PROXY": 'a$b"c',
        "SHELL": "/bin/sh",
    }
    lines = build._environment_lines(environment, build.NETWORK)
    assert lines == ['ENV HTTPS_PROXY="http://proxy.example:3128"', r'ENV NO_PROXY="a\$b\"c"']
    shown = capsys.readouterr().err
    assert "UV_INDEX holds a password" in shown
    assert "hunter2" not in shown


def test_a_changed_context_or_base_is_another_image(build, monkeypatch):
    files = {"Dockerfile": b"FROM x"}
    monkeypatch.setattr(build, "_docker", lambda *_: "sha256:1")
    monkeypatch.setattr(build, "_base", dict)

    def digest(**changes):
        build._digest.cache_clear()
        recipe = build.Recipe((), lambda: files | changes.get("files", {}), changes.get("args", ()))
        monkeypatch.setitem(build.RECIPES, "new", recipe)
        return build._digest("new")

    first = digest()
    assert digest() == first
    assert digest(files={"Dockerfile": b"FROM y"}) != first
    assert digest(files={"more": b""}) != first
    assert digest(args=("A=1",)) != first
    monkeypatch.setattr(build, "_docker", lambda *_: "sha256:2")
    assert digest() != first


def test_every_image_of_ours_is_built_for_tests(build):
    assert {path.parent.name for path in OURS} <= build.RECIPES.keys()


def test_kernels_of_the_notebook_find_the_client_and_its_outputs(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", "before")
    monkeypatch.setenv("TRAINYARD_OUTPUTS", "before")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "jupyter-token").write_text("a token")
    config = (ROOT / "docker/jupyter/jupyter_server_config.py").read_text()
    program = compile(config.replace("/etc/trainyard", str(tmp_path)), "config", "exec")
    exec(program, {"get_config": MagicMock})
    assert os.environ["TRAINYARD_OUTPUTS"] == "before"  # a notebook without a stack
    (tmp_path / "outputs.json").write_text("{}")
    (tmp_path / "outputs.json").chmod(0o444)
    for _ in range(2):
        exec(program, {"get_config": MagicMock})
        mine = Path(os.environ["TRAINYARD_OUTPUTS"])
        assert (mine.parent, mine.read_text()) == (tmp_path / "home", "{}")
        assert mine.stat().st_mode & 0o777 == 0o600
    (tmp_path / "outputs.json").chmod(0o600)  # of a process
    exec(program, {"get_config": MagicMock})
    assert os.environ["TRAINYARD_OUTPUTS"] == str(tmp_path / "outputs.json")
    client = f"train/trainyard/ {os.environ['PYTHONPATH']}/trainyard/"
    assert f"COPY {client}\n" in (ROOT / "docker/jupyter/Dockerfile").read_text()
