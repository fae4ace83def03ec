"""`train ui`, from its start to Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests import ui_stack, waiting
from trainyard.client.errors import ClientError
from trainyard.client.ui import command


def test_a_port_that_is_taken_is_one_message() -> None:
    with command._listen(0) as listening:
        port = listening.getsockname()[1]
        assert listening.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ClientError, match=rf"port {port} .* --port, or 0"):
            command._listen(port)


@pytest.mark.parametrize("follows", [False, True])
def test_ctrl_c_ends_it_while_a_log_is_followed(
    tmp_path: Path, head_running: ui_stack.Head, follows: bool
) -> None:
    with ui_stack.serving(head_running) as address:
        file = ui_stack.write_outputs(tmp_path / "outputs.json", address, tmp_path / "store")
        words = ("ui", "--no-open", "--port", "0", "--outputs", str(file))
        served = subprocess.Popen(
            [sys.executable, "-m", "trainyard.client", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        try:
            assert served.stdout is not None
            url = served.stdout.readline().split()[1]
            session = requests.Session()
            url = ui_stack.exchange_key(session, url)
            if follows:
                log = f"{url}api/dev/jobs/raysubmit_000001/log"
                stream = session.get(log, stream=True, timeout=20)
                assert b'["log", ' in next(stream.iter_content(64))
            served.send_signal(signal.SIGINT)
            out, err = served.communicate(timeout=waiting.DEADLINE_S)
        finally:
            served.kill()
    assert (served.returncode, err) == (0, "")
    assert out.endswith("\npage closed\n")


@pytest.fixture
def head_running() -> ui_stack.Head:
    return ui_stack.Head([ui_stack.job(1, "RUNNING")])
