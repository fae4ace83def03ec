"""The archive that other machines run: the same bytes each time, and complete."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import psutil
import pytest

from infra.machines import bundle
from tests import ran

PAGE = ("--host=127.0.0.1", "--port=0", "--user=viewer", "--password-file=none")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_same_content_is_the_same_file(tmp_path):
    first = bundle.bundle()
    content = first.read_bytes()
    assert content[4:8] == bytes(4)  # the time in gzip's header
    written = first.stat().st_mtime_ns
    assert bundle.bundle() == first
    assert first.stat().st_mtime_ns == written  # copies of it do not change
    # A checkout elsewhere, at another time, by somebody else.
    copy = tmp_path / "copy"
    for path in bundle.FILES.values():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(bundle.ROOT / path, copy / path)
        (copy / path).chmod(0o600)
    first.unlink()
    assert bundle.bundle(copy) == first
    assert first.read_bytes() == content
    with (copy / "node/agent.py").open("a") as file:
        file.write("# changed\n")
    assert bundle.bundle(copy) != first
    assert [path.name for path in first.parent.iterdir() if path.suffix == ".new"] == []


def test_it_holds_no_more_than_it_needs():
    with tarfile.open(bundle.bundle()) as archive:
        members = archive.getmembers()
    assert sorted(member.name for member in members) == sorted(bundle.FILES)
    for member in members:
        assert (member.uid, member.gid, member.uname, member.mtime) == (0, 0, "", 0)
        assert member.mode == 0o644


def test_the_read_only_page_starts_from_it_alone(tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    archive = bundle.bundle(own=bundle.package())
    subprocess.run(["tar", "-xf", archive, "-C", there], check=True)
    packages = str(Path(psutil.__file__).parents[1])
    # It asks for its password first.
    done = ran.run(
        [sys.executable, "-S", "-P", "-m", "trainyard.client", "page", *PAGE],
        cwd=tmp_path,
        env={"PYTHONPATH": f"{there}:{packages}", "PATH": os.environ["PATH"]},
    )
    assert "none" in done.stderr, done.stdout
    assert done.returncode == 1
    page = there / "trainyard/client/ui/static/index.html"
    assert page.read_bytes() == (bundle.ROOT / page.relative_to(there)).read_bytes()


def test_the_agent_runs_from_it_alone(tmp_path):
    """In an empty folder, with this environment's packages and nothing of the checkout."""
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["tar", "-xf", bundle.bundle(), "-C", there], check=True)  # as machines do
    # -S leaves out the link that makes this checkout a package of this environment.
    packages = str(Path(psutil.__file__).parents[1])

    def agent(*arguments: str, request: str) -> subprocess.CompletedProcess[str]:
        return ran.run(
            [sys.executable, "-S", *arguments],
            cwd=there,
            env={"PYTHONPATH": packages, "PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            input=request,
            timeout=60,
        )

    mark = {"id": "0123abcd", "project": "p", "stack": "s", "by": "ada@here"}
    props = {"folder": str(tmp_path / "data"), "keep": False, "mark": mark, "ports": {}}
    request = {"kind": "data", "method": "create", "arguments": [props]}
    done = agent("-m", "node.agent", request=json.dumps(request))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"result": [props["folder"], props]}
    assert (tmp_path / "data").is_dir()
    request |= {"method": "delete", "arguments": [props["folder"], props]}
    agent("-m", "node.agent", request=json.dumps(request))
    assert not (tmp_path / "data").exists()  # and the claim of its ports
    loaded = (
        "import sys, node.agent; "
        "print(*[m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'node'])"
    )
    done = agent("-c", loaded, request="")
    files = {str(Path(file).relative_to(there)) for file in done.stdout.split()}
    # That one is a program, which it starts.
    files.add("node/locked_supervisord.py")
    assert files == {name for name in bundle.FILES if name.endswith(".py")}
