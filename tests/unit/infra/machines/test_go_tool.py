"""A program is built once, checked before it is used, and never half there."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.machines import go_build, go_programs, go_tool
from infra.machines.go_build import BuildError
from infra.machines.go_programs import GoProgram
from infra.machines.go_tool import GoToolProvider
from tests import ran

GO = """
case "$1" in
version) echo go version go1.26.8 linux/amd64 ;;
mod) echo "go: downloading x" >&2; echo '{module}' ;;
build)
  /bin/sleep 0.2; echo run >> {log}
  for word; do
    case "$word" in -o=*) out="${{word#-o=}}" ;; -tags=*) echo "$word" >> {log} ;; esac
  done
  read -r ours < cmd/ours.go; read -r theirs < main.go
  echo "$ours $theirs" > "$out" ;;
esac
"""
RUN = "run\n-tags=few\n"
GO_VERSION = '[ "$1" = version ] && echo go version go1.26.8 linux/amd64'


@pytest.fixture
def sources(tmp_path) -> Iterator[Path]:
    """A module as Go keeps it: nobody may write there."""
    folder = tmp_path / "module"
    (folder / "cmd").mkdir(parents=True)
    (folder / "main.go").write_text("theirs\n")
    (folder / "main.go").chmod(0o444)
    (folder / "cmd").chmod(0o555)
    folder.chmod(0o555)
    yield folder
    for path in (folder, folder / "cmd"):
        path.chmod(0o755)  # otherwise pytest cannot remove it


@pytest.fixture
def props(tmp_path, monkeypatch) -> dict[str, Any]:
    added = tmp_path / "ours.go"
    added.write_text("ours\n")
    tool = GoProgram(
        name="tool",
        module="example.com/tool",
        version="v1",
        sum="h1:right",
        package=".",
        added={"cmd/ours.go": added},
        flags=("-tags=few",),
        go=(1, 25),
        instead="Set objectStore to directory",
    )
    monkeypatch.setattr(go_tool, "PROGRAMS", {"tool": tool})
    path = tmp_path / "cache" / "bin" / "tool-v1"
    return {"module": "example.com/tool", "version": "v1", "path": str(path)}


@pytest.fixture
def go(bare, put_program, sources, tmp_path) -> Callable[..., None]:
    """Put a Go on PATH that has the module."""

    def put(**changes: str) -> None:
        module = {"Sum": "h1:right", "Dir": str(sources)} | changes
        put_program(bare, "go", GO.format(module=json.dumps(module), log=tmp_path / "log"))

    put()
    return put


@pytest.mark.usefixtures("go")
def test_it_is_built_once_for_all_who_ask(props, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(go_build, "HEARTBEAT_SECONDS", 0.05)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: GoToolProvider().create(props), range(4)))
    assert {result.id for result in results} == {props["path"]}
    path = Path(props["path"])
    assert path.read_text() == "ours theirs\n"
    assert os.access(path, os.X_OK)
    assert (tmp_path / "log").read_text() == RUN
    said = capsys.readouterr().err
    assert "building tool of example.com/tool@v1 (once" in said
    assert "building tool of example.com/tool@v1: 0 s" in said
    assert "built tool of example.com/tool@v1 in" in said
    assert sorted(p.name for p in path.parent.iterdir()) == [
        "tool-v1",
        "tool-v1.lock",
        "tool-v1.sha256",
    ]
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("go")
@pytest.mark.parametrize("damage", ["changed", "torn", "without its sum"])
def test_what_is_not_as_it_was_built_is_built_anew(props, damage, tmp_path, capsys):  # F41
    GoToolProvider().create(props)
    path = Path(props["path"])
    if damage == "without its sum":
        path.with_name("tool-v1.sha256").unlink()
    else:
        path.write_text("other theirs\n" if damage == "changed" else "ours")
    assert GoToolProvider().read(props["path"], props).id == ""
    GoToolProvider().create(props)
    assert f"{path} is not as it was built: rebuilding it" in capsys.readouterr().err
    assert path.read_text() == "ours theirs\n"
    assert (tmp_path / "log").read_text() == RUN * 2
    assert GoToolProvider().read(props["path"], props).id == props["path"]


def test_a_module_with_another_sum_is_not_built(go, props):  # F41
    go(Sum="h1:wrong")
    with pytest.raises(BuildError, match=r"has the sum h1:wrong, and .* says h1:right.* GOPROXY"):
        GoToolProvider().create(props)
    assert not Path(props["path"]).exists()


@pytest.mark.usefixtures("go")
def test_a_cache_of_somebody_elses_is_not_used(props, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    folder = Path(props["path"]).parent
    folder.parent.mkdir()
    folder.symlink_to(theirs)
    with pytest.raises(BuildError, match=r"is a link.* Remove it, or set XDG_CACHE_HOME"):
        GoToolProvider().create(props)
    assert list(theirs.iterdir()) == []


@pytest.mark.usefixtures("go")
def test_a_cache_that_cannot_be_made_is_one_message(props):  # F58
    Path(props["path"]).parents[1].write_text("a file")
    with pytest.raises(BuildError, match=r"cannot be made \(Not a directory\): make .* writable"):
        GoToolProvider().create(props)


@pytest.mark.usefixtures("go")
def test_a_full_disk_is_one_message(props, monkeypatch, full):  # F16
    monkeypatch.setattr(go_build.shutil, "copytree", full)
    with pytest.raises(go_build.BuildError, match=r"No space left on device\): make room there"):
        go_build.obtain(go_tool.PROGRAMS["tool"], Path(props["path"]))


def test_a_failed_build_tells_the_last_lines_and_leaves_nothing(bare, put_program, props):
    put_program(bare, "go", 'echo "no such module" >&2; exit 1')
    before = threading.active_count()
    with pytest.raises(BuildError, match="Set objectStore to directory") as raised:
        GoToolProvider().create(props)
    assert "no such module" in str(raised.value)
    assert sorted(p.name for p in Path(props["path"]).parent.iterdir()) == ["tool-v1.lock"]
    assert threading.active_count() <= before


@pytest.mark.usefixtures("go")
def test_what_is_there_is_not_built(bare, props):
    GoToolProvider().create(props)
    (bare / "go").unlink()
    assert GoToolProvider().create(props).id == props["path"]
    assert GoToolProvider().read(props["path"], props).id
    Path(props["path"]).unlink()
    assert GoToolProvider().read(props["path"], props).id == ""


def test_another_version_is_another_program(props):
    assert not GoToolProvider().diff("x", props, dict(props)).changes
    assert GoToolProvider().diff("x", props, {**props, "version": "v2"}).replaces == ["version"]


@pytest.mark.usefixtures("props")
def test_another_file_of_ours_is_another_program():  # a mended guard is built
    (tool,) = go_tool.PROGRAMS.values()
    before = tool.path
    tool.added["cmd/ours.go"].write_text("mended\n")
    assert tool.path != before
    assert replace(tool, flags=()).path != tool.path


def test_what_the_programs_are_made_of_is_here():
    for program in (go_programs.PROGRAMS | go_programs.TOOLS).values():
        assert all(path.is_file() for path in program.added.values())
        assert program.sum.startswith("h1:")


def test_prometheus_tells_its_release_and_not_its_module_s():
    assert any(flag.endswith("Version=3.16.0") for flag in go_programs.PROMETHEUS.flags)


def test_the_build_needs_nothing_that_is_to_be_installed():
    """`make monitoring` runs it before the installation."""
    done = ran.run(
        [sys.executable, "-S", "-c", "import infra.machines.go_build"],
        cwd=Path(go_build.__file__).parents[2],
        env={},
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def monitoring(props: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The programs that `make monitoring` builds: one of stacks, and a tool."""
    (tool,) = go_tool.PROGRAMS.values()
    other = replace(tool, name="other", added={})
    monkeypatch.setattr(go_build, "MONITORING", {"tool": tool})
    monkeypatch.setattr(go_build, "TOOLS", {"other": other})
    return [tool.path, other.path]


@pytest.mark.usefixtures("go")
def test_monitoring_is_built_once_and_says_what_is_next(monitoring, sources, tmp_path, capsys):
    (sources / "cmd").chmod(0o755)
    (sources / "cmd" / "ours.go").write_text("theirs as well\n")  # a file of ours may replace it
    for _ in range(2):
        go_build.main()
        said = capsys.readouterr().err.splitlines()
        places = [line for line in said if line.startswith(("tool: ", "other: "))]
        assert places == [f"tool: {monitoring[0]}", f"other: {monitoring[1]}"]
        assert said[-1].startswith("The next `make up` of a stack of processes has monitoring")
    assert [path.read_text() for path in monitoring] == ["ours theirs\n", "theirs as well theirs\n"]
    assert (tmp_path / "log").read_text() == RUN * 2


@pytest.mark.parametrize(
    ("go", "has"), [("", "no Go"), ("echo go version go1.24.9 linux/amd64", r"Go 1\.24")]
)
def test_monitoring_without_a_go_that_can_is_an_error(go, has, bare, put_program, monitoring):
    if go:
        put_program(bare, "go", go)
    said = rf"^error: {has} is on PATH, and tool v1 needs Go 1\.25 or later: install it"
    with pytest.raises(SystemExit, match=said):
        go_build.main()
    assert not monitoring[0].parent.exists()


@pytest.mark.usefixtures("monitoring")
def test_a_build_that_fails_is_an_error_of_make(bare, put_program):
    put_program(bare, "go", f"{GO_VERSION} || exit 1")
    with pytest.raises(SystemExit, match=r"error: go mod of example\.com/tool@v1 failed"):
        go_build.main()


def test_an_interrupted_build_ends_go_and_leaves_nothing(bare, put_program, monitoring, tmp_path):
    note = tmp_path / "pid"
    # By then Go is waited for: the interrupt comes in the middle of the build.
    build = f"/bin/sleep 0.3; echo $$ > {note}; exec /bin/sleep 60"
    put_program(bare, "go", f"{GO_VERSION} || {{ {build}; }}")

    def terminate() -> None:
        while not note.exists() or not note.read_text().strip():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=terminate).start()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            go_build.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 130
    assert not Path(f"/proc/{note.read_text().strip()}").exists()
    assert [path.suffix for path in monitoring[0].parent.iterdir()] == [".lock"]
