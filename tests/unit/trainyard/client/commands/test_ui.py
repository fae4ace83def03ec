"""`train ui`, from its start to Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from tests import ui_stack, waiting
from trainyard.client.commands import ui as command
from trainyard.client.errors import ClientError


def test_a_port_that_is_taken_is_one_message():
    with command._listen(0) as listening:
        port = listening.getsockname()[1]
        assert listening.getsockname()[0] == "127.0.0.1"
        with pytest.raises(ClientError, match=rf"port {port} .* --port, or 0"):
            command._listen(port)


@pytest.mark.parametrize("follows", [False, True])
def test_ctrl_c_ends_it_while_a_log_is_followed(tmp_path, head_running, follows):
    with ui_stack.up(head_running, tmp_path, tmp_path / "store") as file:
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


BROWSER = """
import json, os, pathlib, sys, urllib.parse
file = pathlib.Path(urllib.parse.urlsplit(sys.argv[1]).path)
modes = [os.stat(each).st_mode & 0o777 for each in (file, file.parent)]
seen = {"arguments": sys.argv[1:], "text": file.read_text(), "modes": modes}
done = pathlib.Path(__file__).with_suffix(".json")
done.with_suffix(".new").write_text(json.dumps(seen))
done.with_suffix(".new").rename(done)
"""


def test_other_users_see_a_path_and_no_key(tmp_path, head_running):
    script, seen = tmp_path / "browser.py", tmp_path / "browser.json"
    script.write_text(BROWSER)
    with (
        ui_stack.up(head_running, tmp_path, tmp_path / "store") as file,
        subprocess.Popen(
            [sys.executable, "-m", "trainyard.client", "ui", "--port=0", f"--outputs={file}"],
            env=os.environ | {"BROWSER": f"{sys.executable} {script} %s", "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        ) as served,
    ):
        try:
            assert served.stdout is not None
            url = served.stdout.readline().split()[1]
            waiting.wait_for("the browser", seen.exists)
            found = json.loads(seen.read_text())
            assert found["modes"] == [0o600, 0o700]  # F66
            assert f"url={url}" in found["text"]
            [opened] = found["arguments"]
            assert url.partition("=")[2] not in opened
            page = Path(urlsplit(opened).path)
            assert page.exists()
            ui_stack.exchange_key(requests.Session(), url)
            assert not page.exists()
            served.terminate()
            assert served.wait(waiting.DEADLINE_S) == 128 + signal.SIGTERM
            assert list(tmp_path.glob("trainyard-ui-*")) == []
        finally:
            served.kill()


@pytest.fixture
def head_running() -> ui_stack.Head:
    return ui_stack.Head([ui_stack.job(1, "RUNNING")])
