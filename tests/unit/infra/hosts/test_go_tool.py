"""A program is built once, told about while it builds, and never half there."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from infra.hosts import go_tool
from infra.hosts.go_tool import BuildError, GoToolProvider

Put = Callable[[Path, str, str], Path]
BUILD = 'echo "go: downloading x"; /bin/sleep 0.2; echo run >> {log}; echo built > "$GOBIN/tool"'


@pytest.fixture
def props(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "cache" / "bin" / "tool-v1"
    return {"module": "example.com/tool", "version": "v1", "path": str(path)}


@pytest.mark.usefixtures("bare")
def test_it_is_built_once_for_all_who_ask(
    bare: Path,
    put_program: Put,
    props: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(go_tool, "HEARTBEAT_SECONDS", 0.05)
    put_program(bare, "go", BUILD.format(log=tmp_path / "log"))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: GoToolProvider().create(props), range(4)))
    assert {result.id for result in results} == {props["path"]}
    assert Path(props["path"]).read_text() == "built\n"
    assert (tmp_path / "log").read_text() == "run\n"
    said = capsys.readouterr().err
    assert "building example.com/tool@v1 (once" in said
    assert "building example.com/tool@v1: 0 s" in said
    assert "built example.com/tool@v1 in" in said
    assert sorted(p.name for p in Path(props["path"]).parent.iterdir()) == [
        "tool-v1",
        "tool-v1.lock",
    ]


def test_a_failed_build_tells_the_last_lines_and_leaves_nothing(
    bare: Path, put_program: Put, props: dict[str, Any]
) -> None:
    put_program(bare, "go", 'echo "no such module"; exit 1')
    before = threading.active_count()
    with pytest.raises(BuildError, match="objectStore to directory") as raised:
        GoToolProvider().create(props)
    assert "no such module" in str(raised.value)
    assert not Path(props["path"]).exists()
    assert threading.active_count() <= before


def test_what_is_there_is_not_built(bare: Path, props: dict[str, Any]) -> None:
    assert list(bare.iterdir()) == []
    Path(props["path"]).parent.mkdir(parents=True)
    Path(props["path"]).write_text("old")
    assert GoToolProvider().create(props).id == props["path"]
    assert GoToolProvider().read(props["path"], props).id
    Path(props["path"]).unlink()
    assert GoToolProvider().read(props["path"], props).id == ""


def test_another_version_is_another_program(props: dict[str, Any]) -> None:
    assert not GoToolProvider().diff("x", props, dict(props)).changes
    assert GoToolProvider().diff("x", props, {**props, "version": "v2"}).replaces == ["version"]
