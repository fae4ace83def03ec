"""The packages of a project, as lines for pip."""

import io
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import pip_index
from trainyard.client.errors import ClientError
from trainyard.quickstart import packages, syncer

PIPFILE = """\
[[source]]
url = "https://example.org/simple"
name = "pypi"

[[source]]
url = "http://$USER_OF_OWN:${PASS_OF_OWN}@192.0.2.9:8080/simple"
verify_ssl = false
name = "own"

[packages]
einops = "*"
numpy = ">=2,<3"
ray = {version = "==2.60.0", extras = ["train"]}
lightning = {version = "==2.6", extras = ["extra", "strategies"], markers = "python_version > '3'"}
colorama = {version = "*", sys_platform = "== 'win32'", python_version = "> '3'", index = "own"}
theirs = {git = "https://example.org/x.git", ref = "v1", subdirectory = "py", editable = true}
mine = {path = "libs/mine", editable = true, extras = ["fast"]}
whole = {path = ".", editable = true}
built = {file = "libs/built-1-py3-none-any.whl"}
far = {file = "https://example.org/far-1.tar.gz"}

[dev-packages]
pytest = "*"
"""


def _project(folder: Path) -> None:
    for name in ("pyproject.toml", "libs/mine/setup.py", "libs/mine/mine.py", "libs/mine/a.key"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "libs/built-1-py3-none-any.whl").touch()


def test_a_pipfile(tmp_path, monkeypatch):  # C3
    monkeypatch.setenv("USER_OF_OWN", "ann")
    monkeypatch.setenv("PASS_OF_OWN", "secret")
    _project(tmp_path)
    (tmp_path / "Pipfile").write_text(PIPFILE)
    (tmp_path / "requirements.txt").write_text("ignored")
    found = packages.required_packages(tmp_path)
    digests = [re.search(r"\.packages/([0-9a-f]{16})/", line) for line in found.lines]
    mine, whole, built = (f"{packages.UPLOAD}.packages/{each[1]}" for each in digests if each)
    assert found.lines == [
        "--index-url https://example.org/simple",
        "--extra-index-url http://${USER_OF_OWN}:${PASS_OF_OWN}@192.0.2.9:8080/simple",
        "--trusted-host 192.0.2.9:8080",
        "einops",
        "numpy>=2,<3",
        "lightning[extra,strategies]==2.6 ; (python_version > '3')",
        "colorama ; sys_platform == 'win32' and python_version > '3'",
        "theirs @ git+https://example.org/x.git@v1#subdirectory=py",
        f"{mine}/mine[fast]",
        f"{whole}/{tmp_path.name}",
        f"{built}/built-1-py3-none-any.whl",
        "far @ https://example.org/far-1.tar.gz",
    ]
    assert found.variables == {"USER_OF_OWN": "ann", "PASS_OF_OWN": "secret"}
    names = [entry.name.split("/", 2)[2] for entry in found.uploads]
    assert names[:2] == ["mine/mine.py", "mine/setup.py"]  # without the key
    assert names[-1] == "built-1-py3-none-any.whl"
    assert [path.name for path in packages.files(tmp_path)] == ["Pipfile", "requirements.txt"]


def test_pip_installs_from_an_index_and_folders(tmp_path):  # C3
    """As Ray runs it on the box: with the unpacked upload, and nothing but Python."""
    project, upload = tmp_path / "project", tmp_path / "upload"
    (project / "src").mkdir(parents=True)
    with pip_index.served(tmp_path / "index", "127.0.0.1") as index:
        pip_index.write_project(project, index)
        found = packages.required_packages(project)
        packed = syncer._packed(project / "src", found, "")
        zipfile.ZipFile(io.BytesIO(packed)).extractall(upload)
        (tmp_path / "lines.txt").write_text("\n".join(found.lines))
        subprocess.run([sys.executable, "-m", "venv", tmp_path / "box"], check=True)
        variable = packages.UPLOAD.strip("${}/")
        subprocess.run(
            [tmp_path / "box/bin/pip", "install", "--quiet", "-r", tmp_path / "lines.txt"],
            env=os.environ | {variable: str(upload)},
            check=True,
        )
    program = "import box_one, box_more, mine; print(box_one.WHAT, box_more.WHAT, mine.WHAT)"
    done = subprocess.run(
        [tmp_path / "box/bin/python", "-c", program], capture_output=True, check=True
    )
    assert done.stdout.split() == [b"box_one", b"box_more", b"mine"]


def test_changed_local_code_is_another_line(tmp_path):  # C3
    _project(tmp_path)
    (tmp_path / "requirements.txt").write_text("./libs/mine\n")
    before = packages.required_packages(tmp_path).lines
    (tmp_path / "libs/mine/mine.py").write_text("changed")
    assert packages.required_packages(tmp_path).lines != before


def test_requirements(tmp_path):  # C3
    _project(tmp_path)
    (tmp_path / "requirements.txt").write_text(
        "# ours\neinops==0.8.1  # why\n\nray[train]==1\n"
        "-e ./libs/mine[fast] ; os_name == 'nt'\n-e .\n"
    )
    first, mine, whole = packages.required_packages(tmp_path).lines
    assert first == "einops==0.8.1"
    assert mine.startswith(f"{packages.UPLOAD}.packages/")
    assert mine.endswith("/mine[fast] ; os_name == 'nt'")
    assert whole.endswith(f"/{tmp_path.name}")


def test_without_a_file_there_are_none(tmp_path):
    assert packages.required_packages(tmp_path).lines == []
    assert packages.files(tmp_path) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-r more.txt", "names a file of this machine"),
        ("-c limits.txt", "names a file of this machine"),
        ("./mine", r"names \./mine, where no pyproject\.toml, setup\.py or wheel is"),
        ("-e .", r"names \., where no pyproject\.toml"),
        ("--index-url https://${NOT_SET}@example.org", r"export NOT_SET=… first"),
    ],
)
def test_requirements_that_cannot_be_used(tmp_path, line, message):
    (tmp_path / "requirements.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(ClientError, match=message):
        packages.required_packages(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[packages", "is not TOML"),
        ("packages = 7", r"\[packages\] is not a table"),
        ('[packages]\nx = {wheel = "."}', "has more than bzr, editable, extras, file, git, hg"),
        ("[packages]\nx = 7", "x = 7 has more than"),
        ('[packages]\nx = {path = "."}', "where no pyproject.toml"),
        ('[[source]]\nname = "own"\n[packages]', "needs a url"),
        ('[packages]\nx = {version = "*", index = "own"}', "x names the index 'own'"),
    ],
)
def test_a_pipfile_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "Pipfile").write_text(text)
    with pytest.raises(ClientError, match=message):
        packages.required_packages(tmp_path)
