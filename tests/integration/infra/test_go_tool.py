"""Go builds for a stack, with the real Go and a small program: a store takes minutes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.hosts import go_tool
from infra.hosts.go_build import BuildError
from infra.hosts.go_programs import GoProgram
from infra.hosts.go_tool import GoToolProvider

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]  # it compiles part of the library

ADDED = 'package main\n\nfunc init() { println("added") }\n'
SUM = "h1:cWGqM9DStn5Sc/S01ibBorrO6okOzKVbLc4FY/ax9+s="


@pytest.mark.skipif(not shutil.which("go"), reason="no Go on PATH")
def test_a_published_program_is_built_with_a_file_of_ours_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, added = tmp_path / "bin" / "2fa", tmp_path / "added.go"
    added.write_text(ADDED)
    program = GoProgram(
        name="2fa",
        module="rsc.io/2fa",
        version="v1.2.0",
        sum="h1:of-something-else",
        package=".",
        added={"added.go": added},
        go=(1, 25),
        instead="",
    )
    props = {"module": program.module, "version": program.version, "path": str(path)}
    monkeypatch.setattr(go_tool, "PROGRAMS", {"2fa": program})
    with pytest.raises(BuildError, match=rf"v1\.2\.0 has the sum {re.escape(SUM)}"):  # F41
        GoToolProvider().create(props)
    object.__setattr__(program, "sum", SUM)
    assert GoToolProvider().create(props).id == str(path)
    done = subprocess.run([path, "-h"], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.startswith("added\nusage:")
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "2fa",
        "2fa.lock",
        "2fa.sha256",
    ]
