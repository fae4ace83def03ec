"""The packages of a project, as lines for pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.client.errors import ClientError
from trainyard.quickstart import packages

PIPFILE = """\
[[source]]
url = "https://example.org/simple"
name = "own"

[packages]
einops = "*"
numpy = ">=2,<3"
ray = {version = "==2.60.0", extras = ["train"]}
lightning = {version = "==2.6", extras = ["extra", "strategies"], markers = "python_version > '3'"}
mine = {git = "https://example.org/mine.git", ref = "v1"}

[dev-packages]
pytest = "*"
"""


def test_a_pipfile(tmp_path: Path) -> None:  # C3
    (tmp_path / "Pipfile").write_text(PIPFILE)
    (tmp_path / "requirements.txt").write_text("ignored")
    assert packages.requirements(tmp_path) == [
        "einops",
        "numpy>=2,<3",
        "lightning[extra,strategies]==2.6 ; python_version > '3'",
        "mine @ git+https://example.org/mine.git@v1",
    ]
    assert [path.name for path in packages.files(tmp_path)] == ["Pipfile", "requirements.txt"]


def test_requirements(tmp_path: Path) -> None:  # C3
    (tmp_path / "requirements.txt").write_text("# ours\neinops==0.8.1  # why\n\nray[train]==1\n")
    assert packages.requirements(tmp_path) == ["einops==0.8.1"]


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert packages.requirements(tmp_path) == []
    assert packages.files(tmp_path) == []


@pytest.mark.parametrize("line", ["-r more.txt", "-e .", "./mine", "/opt/mine", "--editable=."])
def test_what_only_this_machine_has_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(ClientError, match="names a file of this machine"):
        packages.requirements(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[packages", "is not TOML"),
        ('[packages]\nx = {path = "."}', "has more than extras, git, markers, ref, version"),
        ("[packages]\nx = 7", "x = 7 has more than"),
    ],
)
def test_a_pipfile_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "Pipfile").write_text(text)
    with pytest.raises(ClientError, match=message):
        packages.requirements(tmp_path)
