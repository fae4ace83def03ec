"""What Go builds for a stack, with the real Go and a program of some lines: MinIO takes minutes."""

import shutil
import subprocess
from pathlib import Path

import pytest

from infra.hosts.go_tool import GoToolProvider

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]  # it compiles part of the library


@pytest.mark.skipif(not shutil.which("go"), reason="no Go on PATH")
def test_a_published_program_is_built_and_runs(tmp_path: Path) -> None:
    path = tmp_path / "bin" / "misspell"
    module = "github.com/client9/misspell/cmd/misspell"
    props = {"module": module, "version": "v0.3.4", "path": str(path)}
    assert GoToolProvider().create(props).id == str(path)
    done = subprocess.run(
        [path], input="langauge", capture_output=True, text=True, check=True, timeout=60
    )
    assert '"langauge" is a misspelling of "language"' in done.stdout
    assert sorted(file.name for file in path.parent.iterdir()) == ["misspell", "misspell.lock"]
