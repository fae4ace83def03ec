"""Without a terminal, uv's lines of downloads become one line from time to time."""

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_for

ROOT = Path(__file__).parents[3]
RUN = """import sys; from infra import downloads
downloads.PERIOD_SECONDS = 0.05
sys.exit(downloads.main(["sh", "-c", "cat >&2; exit 3"]))"""


def test_downloads_are_summed_up_also_while_uv_says_nothing(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", RUN]
    with (
        out.open("wb") as file,
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=file, stderr=file
        ) as process,
    ):
        fd = process.stdin.fileno()
        os.write(fd, b"Resolved 2 packages in 4s\nDownloading torch (1.5GiB)\nDownloading x (512")
        first = "downloaded 0 of 1 packages, 0 of 1536 MiB"
        wait_for("two lines", lambda: out.read_text().count(first) > 1)
        os.write(
            fd, b"KiB)\n Downloaded torch\n Downloading numpy (2.0MiB)\nInstalled 2\n + x==1\n"
        )
        process.stdin.close()
        assert process.wait(30) == 3  # as uv's
    lines = out.read_text().splitlines()
    assert lines[0] == "Resolved 2 packages in 4s"
    assert "Installed 2" in lines
    assert lines[-1] == "downloaded 1 of 3 packages, 1536 of 1538 MiB"
    assert not [line for line in lines if "Downloading" in line or "+" in line]
