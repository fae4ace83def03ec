"""The builder of tests' Go programs, with a Go that only notes its arguments."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import go_tools

GO = """\
#!/bin/sh
case $1 in
version) echo go version go1.{minor}.8 linux/amd64; exit ;;
esac
echo "$@" >>{log}
sleep 0.2
[ "$CGO_ENABLED" = 0 ] || exit 1
echo "last words" >&2
{end}
echo built >"${{2#-o=}}"
"""
MODULE = """\
module tools

go 1.25.0

tool example.com/of/pkg/v3/cmd/pulumi

require (
	example.com/of/pkg v1.0.0 // indirect
	example.com/of/pkg/v3 v3.4.5 // indirect
)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Folder of sources, with a Go on PATH."""
    sources = tmp_path / "sources"
    (sources / "pulumi").mkdir(parents=True)
    (sources / "pulumi" / "go.mod").write_text(MODULE)
    monkeypatch.setattr(go_tools, "HERE", sources)
    monkeypatch.setattr(go_tools, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(go_tools, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def _go(folder: Path, minor: int = 26, end: str = "") -> Path:
    log = folder / "log"
    (folder / "go").write_text(GO.format(minor=minor, end=end, log=log))
    (folder / "go").chmod(0o755)
    return log


def test_a_program_is_built_once_for_all_who_ask(folder, capsys):
    log = _go(folder)
    assert go_tools.names() == ["pulumi"]
    with ThreadPoolExecutor(3) as pool:
        (program,) = set(pool.map(go_tools.obtain, ["pulumi"] * 3))
    assert program.read_text() == "built\n"
    assert os.access(program, os.X_OK)
    (line,) = log.read_text().splitlines()
    assert line.startswith("build -o=")
    assert line.endswith("version.Version=v3.4.5 example.com/of/pkg/v3/cmd/pulumi")
    assert "pulumi: 0 s\n" in capsys.readouterr().err
    assert "-N -l" in line
    # In a benchmark it is as in a release.
    assert go_tools.obtain("pulumi", optimized=True) != program
    assert "-N -l" not in log.read_text().splitlines()[-1]
    # Other sources give another one.
    (folder / "sources" / "pulumi" / "go.sum").write_text("more\n")
    assert go_tools.obtain("pulumi") != program


def test_a_program_that_cannot_be_built_says_why_and_leaves_nothing(folder):
    _go(folder, minor=24)
    with pytest.raises(go_tools.NoGoError, match=r"no Go 1\.25 or later on PATH.*builds pulumi"):
        go_tools.obtain("pulumi")
    _go(folder, end="exit 1")
    with pytest.raises(go_tools.GoToolError, match="failed:\nlast words"):
        go_tools.obtain("pulumi")
    assert [file.suffix for file in go_tools.CACHE.iterdir()] == [".lock"]
