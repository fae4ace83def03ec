"""The live view, against a dashboard of loopback: once in a pipe, again and again on a terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests import ran, ui_stack
from tests.hostile import TITLE
from trainyard.access.terminal import CONTROL, ESCAPE
from trainyard.tracking import runs

ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"  # of a terminal's second screen
DEADLINE_S = 60


@pytest.fixture
def outputs(outputs_file, values) -> Iterator[str]:
    run = runs.Run(values["storageUrl"], "run-0001")
    run.start({"epochs": 3})
    run.write_metrics([{"epoch": 0, "loss": 1.25}, {"epoch": 1, "loss": 0.5}])
    waits = {"metadata": {"run": "run-0002", "user": "ada"}, "message": f"it starts {TITLE}"}
    head = ui_stack.Head([ui_stack.job(1), ui_stack.job(2, "PENDING", **waits)])
    with ui_stack.serving(head) as url:
        yield str(outputs_file(values | {"dashboardUrl": url}))


def _command(outputs: str) -> list[str]:
    return [sys.executable, "-m", "trainyard.client", "watch", "--outputs", outputs]


def test_a_pipe_gets_one_look(outputs):
    done = ran.run(_command(outputs), timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "10.0.0.2\t88 %\t24.0/64.0 GiB\t87 %\t58.6/79.6 GiB\t30.0 GiB" in lines
    assert [line.split("\t")[:4] for line in lines if line.startswith("raysubmit_")] == [
        ["raysubmit_000002", "PENDING", "run-0002", "ada"],
        ["raysubmit_000001", "SUCCEEDED", "run-0001", "grace"],
    ]
    assert any(line.startswith("run-0001\t2/3\tSUCCEEDED\t0.5") for line in lines)
    assert not CONTROL.search(done.stdout.replace("\t", "").replace("\n", ""))
    assert re.match(r"this was one look: `\S*train watch` draws again on a terminal", done.stderr)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_terminal_is_drawn_again_and_restored_at_the_end(sent, code, outputs):
    leader, follower = pty.openpty()
    sized = os.environ | {"COLUMNS": "100", "LINES": "30", "TERM": "xterm-256color"}
    process = subprocess.Popen(_command(outputs), env=sized, stdout=follower, stderr=follower)
    os.close(follower)
    seen, deadline = b"", time.monotonic() + DEADLINE_S
    try:
        while seen.count(b"Ctrl-C ends") < 2:  # it has drawn twice
            assert time.monotonic() < deadline, seen
            seen += _read(leader)
        process.send_signal(sent)
        while chunk := _read(leader, wait=DEADLINE_S):
            seen += chunk
        assert process.wait(DEADLINE_S) == code, seen
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert seen.count(ENTERS) == seen.count(LEAVES) == 1
    assert seen.rindex(LEAVES) > seen.rindex(b"Ctrl-C ends")
    assert b"Traceback" not in seen
    text = re.sub(ESCAPE, "", seen.decode())
    for said in (
        "stack dev",
        "88 %",
        "87 %",
        "run-0001",
        "2/3",
        "000002: it starts \\x1b]0;",
    ):
        assert said in text
    assert TITLE.encode() not in seen  # F39


def _read(leader: int, wait: float = 1) -> bytes:
    """What the terminal shows next; b"" if nothing came, or at its end."""
    if not select.select([leader], [], [], wait)[0]:
        return b""
    try:
        return os.read(leader, 65536)
    except OSError:  # Linux says so at the end of the program
        return b""
